"""The tags of the monthly NGC images: ``26.04-py3``, ``26.04-py3-igpu``."""

import re

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import Kind, Tag

_MONTHLY = re.compile(r"(?P<year>[0-9]{2})\.(?P<month>0[1-9]|1[0-2])-(?P<variant>py3(?:-[a-z0-9]+)*)")


def parse(text: str) -> Tag:
    """Parse ``YY.MM-py3[-variant]``; for anything else RunbookError describes the problem.

    A variant is special: for different hardware or a different purpose than the plain image.
    """
    match = _MONTHLY.fullmatch(text)
    if match is None:
        raise RunbookError(f"{text!r} is not a tag of the monthly NGC images: {_describe_problem(text)}")
    kind: Kind = "release" if match["variant"] == "py3" else "special"
    return Tag(text, (int(match["year"]), int(match["month"])), kind=kind, edition=match["variant"])


def _describe_problem(text: str) -> str:
    if "/" in text or ":" in text:
        return "give only the tag, such as 26.04-py3, not an image reference."
    if _MONTHLY.fullmatch(plain := text.strip().lower()):
        return f"it has spaces or capitals; did you mean {plain!r}?"
    if re.fullmatch(r"[0-9]{2}\.[1-9]", text):
        # A number loses its last zero: 26.1 may have been 26.10.
        october = ""
        if text.endswith("1"):
            october = f" or '{text}0-py3'"
        return f"a month has two digits. Did you mean '{text[:3]}0{text[3:]}-py3'{october}? Give the complete tag."
    if _MONTHLY.fullmatch(f"{text}-py3"):
        return f"the variant is missing; did you mean '{text}-py3'?"
    return "expected YY.MM-py3, such as 26.04-py3."
