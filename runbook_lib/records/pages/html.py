"""HTML pages of an archive: templates, and the stored bytes.

A page loads nothing and can be printed.  Its content security policy blocks anything that quoted text might contain;
the only script allowed to run is the page's own, which the policy identifies by its hash.
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

#: Maximum characters of a cell kept on one line, and minimum characters of a word that may be broken.
_SHORT_CELL, _LONG_WORD = 20, 24


class ByteBudget:
    """The bytes left for the parts of a page."""

    def __init__(self, size: int) -> None:
        self._left = size

    def take(self, markup: str) -> bool:
        """Subtract the size of the markup and return True, or return False if it does not fit."""
        size = len(to_bytes(markup))
        if size > self._left:
            return False
        self._left -= size
        return True


def to_bytes(page: str) -> bytes:
    """Return a page in its stored form, with hidden characters made visible."""
    return visible(page).encode("utf-8", "xmlcharrefreplace")


def sealed(page: bytes, place: str) -> bytes:
    """Return the page with a last line that reveals whether it has been changed or moved from this place."""
    seal = sha256(place.encode("utf-8", "surrogateescape") + b"\n" + page).hexdigest()
    return page + f"<!-- sha256 {seal} -->\n".encode()


def is_sealed(content: bytes, place: str) -> bool:
    """Return True for an unchanged page that ``sealed`` returned for this place."""
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
    """Return the environment for the templates that ship with a package."""
    import jinja2  # commands that render no page start without it
    from markupsafe import Markup

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
        "as_list": lambda value: value if isinstance(value, list | tuple) else [value],
        "cell_class": _cell_class,
        "duration": run_duration,
        "linked": lambda text: Markup(display.linked(str(text))),
        "number_of": display.count,
        "script_hash": _script_hash,
        "shorten": truncate,
        "time": format_time,
        "value": format_value,
    }
    templates.globals["MARKS"] = display.MARKS
    templates.globals["mark"] = display.mark
    templates.tests |= {"preview": is_preview, "web_address": is_web_address}
    return templates


def _bytecode_cache() -> "BytecodeCache | None":
    """Return a cache of compiled templates beside this module's own bytecode; None if Python writes none.

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
    # The environment's options are compiled in, and are set in this module.
    version = sha256(module.read_bytes()).hexdigest()[:8]
    return ModuleCache(str(folder), f"jinja-{version}-%s.cache")


def is_web_address(url: str) -> bool:
    """Return True for a URL that a page may link to: a web address, so that following it runs nothing."""
    return url.startswith(("https://", "http://"))


def link(text: str, url: str) -> str:
    """Return a link as HTML, or only the escaped text if ``url`` is not a web address."""
    return str(macros("parts.html").link(text, url))


def _cell_class(text: str) -> str:
    if len(text) <= _SHORT_CELL:
        return "short"
    longest_word = max(map(len, text.split()), default=0)
    return "long" if longest_word > _LONG_WORD else ""


def _script_hash(script: str) -> str:
    """Return the source expression that allows a script in a content security policy."""
    return f"sha256-{base64.b64encode(sha256(script.encode()).digest()).decode()}"
