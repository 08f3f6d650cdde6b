"""Values that are only a part of a reference: the tag, its month, the version at its beginning, or the digest.

The form of a tag has the part in braces: ``{tag}``, ``{month}-py3``, ``{version}-cudnn-devel-ubuntu24.04``.  The form
``{digest}`` is of a digest apart from its tag, such as at a key of its own.
"""

import re
from collections.abc import Mapping

from runbook_lib.errors import CannotTell

#: The parts, and the text of each.
PARTS: Mapping[str, str] = {
    "tag": r"[A-Za-z0-9_](?:[\w.-]{0,126}\w)?",
    "month": r"[0-9]{2}\.(?:0[1-9]|1[0-2])",
    "version": r"[0-9]{1,9}(?:\.[0-9]{1,9}){1,5}",
    "digest": r"sha256:[0-9a-f]{64}",
}
_PLACEHOLDER = re.compile(r"\{(tag|month|version|digest)\}")
_MONTH_OF_NGC = "{month}-py3"


def default_form(part: str) -> str:
    """Return the default form of a tag for a part whose pin declares none."""
    return _MONTH_OF_NGC if part == "month" else f"{{{part}}}"


def part_of(form: str) -> str:
    """Return the part that a form has in braces; empty if there is none."""
    match = _PLACEHOLDER.search(form)
    return match[1] if match else ""


def compose(form: str, value: str) -> str:
    """Return the tag with a value in place of its part."""
    return _PLACEHOLDER.sub(lambda _: value, form, count=1)


def extract(form: str, tag: str) -> str:
    """Return the part of a tag.  Raises CannotTell for a tag with a different form."""
    before, part, after = _PLACEHOLDER.split(form, maxsplit=1)
    value = tag[len(before) : len(tag) - len(after)]
    if not tag.startswith(before) or not tag.endswith(after) or not re.fullmatch(PARTS[part], value):
        raise CannotTell(f"the tag {tag} does not have the form {form}, of which the file names a part.")
    return value


def form_around(before: str, value: str, after: str) -> str:
    """Return the form of a tag that has ``value`` between two texts."""
    part = "tag"
    if before or after:
        part = next((name for name in ("month", "version") if re.fullmatch(PARTS[name], value)), "tag")
    return f"{before}{{{part}}}{after}"
