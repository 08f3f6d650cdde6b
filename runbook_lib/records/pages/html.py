"""HTML pages of an archive: templates, and the bytes that are stored.

A page loads nothing and can be printed.  Its content security policy forbids everything that quoted text may have
brought along; the only script that may run is the page's own, which the policy names by its hash.
"""

import base64
import contextlib
import os
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runbook_lib import display
from runbook_lib.records.pages.formats import format_time, format_value, run_duration, truncate
from runbook_lib.records.status import is_preview
from runbook_lib.text.sanitize import visible

if TYPE_CHECKING:
    from jinja2 import BytecodeCache, Environment
    from jinja2.bccache import Bucket
    from markupsafe import Markup

#: Characters of a cell that stays on one line, and of a word that may be broken.
_SHORT_CELL, _LONG_WORD = 20, 24


class ByteBudget:
    """Bytes that are left for the parts of a page."""

    def __init__(self, size: int) -> None:
        self._left = size

    def take(self, markup: str) -> bool:
        """Subtract the size of the markup and return True, or return False where it does not fit."""
        size = len(to_bytes(markup))
        if size > self._left:
            return False
        self._left -= size
        return True


def to_bytes(page: str) -> bytes:
    """Return a page as it is stored, with hidden characters spelled out."""
    return visible(page).encode("utf-8", "xmlcharrefreplace")


def sealed(page: bytes, place: str) -> bytes:
    """Return the page with a last line that shows whether it was changed or moved from this place since."""
    seal = sha256(place.encode("utf-8", "surrogateescape") + b"\n" + page).hexdigest()
    return page + f"<!-- sha256 {seal} -->\n".encode()


def is_sealed(content: bytes, place: str) -> bool:
    """Return True for a page as ``sealed`` made it for this place."""
    page, mark, _ = content.rpartition(b"<!-- sha256 ")
    return bool(mark) and content == sealed(page, place)


def render(template: str, **values: object) -> str:
    """Return a page made from a template of this package.  Values are escaped unless they are Markup."""
    return environment().get_template(template).render(values)


def macros(template: str, package: str = __package__) -> Any:
    """Return the macros of a template as attributes: functions that return Markup."""
    return environment(package).get_template(template).module


@cache
def environment(package: str = __package__) -> "Environment":
    """Return the environment of the templates that ship with a package."""
    import jinja2  # commands that show no page start without it

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=True,
        auto_reload=False,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_bytecode_cache(),
    )
    templates.filters |= {
        "as_list": _as_list,
        "cell_class": _cell_class,
        "duration": run_duration,
        "linked": _linked,
        "number_of": display.count,
        "script_hash": _script_hash,
        "shorten": truncate,
        "time": format_time,
        "value": format_value,
    }
    templates.globals["MARKS"] = display.MARKS
    templates.tests |= {"preview": is_preview, "web_address": is_web_address}
    return templates


def _bytecode_cache() -> "BytecodeCache | None":
    """Return a cache of compiled templates beside this module's own bytecode; None where Python writes none.

    Compiling the templates takes longer than rendering them.
    """
    from jinja2 import FileSystemBytecodeCache

    class ModuleCache(FileSystemBytecodeCache):
        def dump_bytecode(self, bucket: "Bucket") -> None:
            with contextlib.suppress(OSError):  # a full disk
                super().dump_bytecode(bucket)

    module = Path(__file__)
    folder = module.with_name("__pycache__")
    if sys.dont_write_bytecode or not os.access(folder, os.W_OK):
        return None
    # The options of the environment are compiled in, and they are set in this module.
    version = sha256(module.read_bytes()).hexdigest()[:8]
    return ModuleCache(str(folder), f"jinja-{version}-%s.cache")


def is_web_address(url: str) -> bool:
    """Return True for an address to which a page may link: on the web, so that following it runs nothing."""
    return url.startswith(("https://", "http://"))


def link(text: str, url: str) -> str:
    """Return a link as HTML, or the escaped text alone where ``url`` is not a web address."""
    return str(macros("parts.html").link(text, url))


def _linked(text: object) -> "Markup":
    from markupsafe import Markup

    return Markup(display.linked(str(text)))


def _as_list(value: object) -> list[object]:
    if isinstance(value, list | tuple):
        return list(value)
    return [value]


def _cell_class(text: str) -> str:
    if len(text) <= _SHORT_CELL:
        return "short"
    longest_word = max(map(len, text.split()), default=0)
    return "long" if longest_word > _LONG_WORD else ""


def _script_hash(script: str) -> str:
    """Return the source expression by which a content security policy allows a script."""
    return f"sha256-{base64.b64encode(sha256(script.encode()).digest()).decode()}"
