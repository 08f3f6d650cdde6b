"""Values that are only a part of a reference: the tag, its month, the version at its beginning, or the digest.

The form of a tag has the part in braces: ``{tag}``, ``{month}-py3``, ``{version}-cudnn-devel-ubuntu24.04``.  ``*``
stands for the parts that other pins of the file hold: ``{version}-devel-ubuntu*`` and ``*-devel-ubuntu{version}``.  The
form ``{digest}`` is of a digest apart from its tag, such as at a key of its own.
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
ANY = "*"
_ANY_TEXT = r"[A-Za-z0-9_.]+"
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


def skeleton(form: str) -> str:
    """Return the form with ``*`` for its own part too, which all pins of the parts of a tag have in common."""
    return _PLACEHOLDER.sub(ANY, form)


def position(form: str) -> int:
    """Return the number of ``*`` before the form's own part."""
    return _PLACEHOLDER.split(form, maxsplit=1)[0].count(ANY)


def extract(form: str, tag: str) -> str:
    """Return the part of a tag.  Raises CannotTell for a tag with a different form."""
    before, part, after = _PLACEHOLDER.split(form, maxsplit=1)
    match = re.fullmatch(f"{_literal(before)}({PARTS[part]}){_literal(after)}", tag)
    if match is None:
        raise CannotTell(f"the tag {tag} does not have the form {form}, of which the file names a part.")
    return match[1]


def _literal(text: str) -> str:
    return _ANY_TEXT.join(map(re.escape, text.split(ANY)))


def form_around(before: str, value: str, after: str) -> str:
    """Return the form of a tag that has ``value`` between two texts."""
    part = "tag"
    if before or after:
        names = ("month", "version") if ANY not in before else ("version",)
        part = next((name for name in names if re.fullmatch(PARTS[name], value)), "tag")
    return f"{before}{{{part}}}{after}"
