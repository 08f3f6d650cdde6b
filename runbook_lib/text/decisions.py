"""Decisions of a user in one parameter: ``name: reason; name: reason``."""

import re

from runbook_lib.errors import Refused
from runbook_lib.text.redact import Redactor

#: Dangers of a golden value that nobody should accept without naming them.
DIVERGENCE, LOST_METRIC = "divergence", "lost metric"
#: The word by which a person names a danger: it is typed in a form, and begins the reason.
WORDS = {DIVERGENCE: "diverges", LOST_METRIC: "lost"}


def entries(text: str, parameter: str, form: str, redactor: Redactor) -> dict[str, str]:
    """Return the reasons by name, in the order of the text.

    A name ends at the first colon; further colons belong to the reason. Reasons are published, so ``redactor`` removes
    secrets first. Raises Refused, with ``form`` (such as ``file: reason``), for an entry without a name or a
    reason, and for a name that occurs twice.
    """
    reasons: dict[str, str] = {}
    for entry in filter(None, map(str.strip, redactor.text(text).split(";"))):
        name, colon, reason = (part.strip() for part in entry.partition(":"))
        if not colon or not name or not reason:
            raise Refused(
                f"{parameter} has the entry {entry!r}; it must have the form `{form}`, with entries separated by `;`."
            )
        if name in reasons:
            raise Refused(f"{parameter} names {name} twice. Give it one reason.")
        reasons[name] = " ".join(reason.split())
    return reasons


def confirms(reason: str, danger: str) -> bool:
    """Return True if a reason may accept a value: it begins with the word for the danger, or there is no danger."""
    first = re.search(r"\w+", reason)
    return danger not in WORDS or (first is not None and first[0].lower() == WORDS[danger])


def confirmed(reason: str, danger: str) -> str:
    """Return a reason that names the danger: ``diverges: reason``."""
    return reason if confirms(reason, danger) else f"{WORDS[danger]}: {reason}"
