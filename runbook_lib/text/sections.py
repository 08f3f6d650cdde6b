"""Our parts of a text that people write too, such as a pull request's description: each between its own two markers."""

import re

from runbook_lib.errors import CannotTell


def compose_body(text: str, part: str, section: str = "") -> str:
    """Return ``text``, a template or a body, with ``part`` between its markers if it has them, else at the end.

    The text outside the markers is preserved byte for byte.  ``part`` includes its markers, those of ``section``.
    Raises CannotTell if ``text`` has any markers other than one pair in order.
    """
    name = f"base-image-runbook:{section}{':' * bool(section)}"
    begins = list(re.finditer(rf"<!-- {name}begin(?: [^\s<>]+)? -->", text))
    ends = list(re.finditer(rf"<!-- {name}end -->", text))
    if not begins and not ends:
        return f"{text.rstrip()}\n\n{part}\n" if text.strip() else f"{part}\n"
    if len(begins) != 1 or len(ends) != 1 or begins[0].end() > ends[0].start():
        raise CannotTell(
            "The markers of this tool's part in the pull request's description are damaged or duplicated, so it was "
            "not changed.",
            "Remove the lines `<!-- base-image-runbook:… -->` and the text between them, then run again.",
        )
    start, end = begins[0].start(), ends[0].end()
    # GitHub's form sends CRLF line endings; ignore that difference.
    if text[start:end].replace("\r\n", "\n") == part:
        return text
    return text[:start] + part + text[end:]
