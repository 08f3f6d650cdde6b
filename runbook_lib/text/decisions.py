"""What a person decides in one parameter: ``name: reason; name: reason``."""

import os

from runbook_lib.errors import Refused
from runbook_lib.text.redact import Redactor


def entries(text: str, parameter: str, form: str) -> dict[str, str]:
    """The reasons by name, in their order.  ``form`` shows how an entry must read, such as ``file: reason``.

    A colon of a reason is its own: a name ends with the first.  Raises Refused for an entry without a reason or twice.
    Reasons are published, so secrets are taken out before anything is made of them.
    """
    found: dict[str, str] = {}
    for entry in filter(None, map(str.strip, Redactor(os.environ).text(text).split(";"))):
        name, colon, reason = (part.strip() for part in entry.partition(":"))
        if not colon or not name or not reason:
            raise Refused(f"{parameter} has the entry {entry!r}; it must read `{form}`, entries divided by `;`.")
        if name in found:
            raise Refused(f"{parameter} names {name} twice. Give it one reason.")
        found[name] = " ".join(reason.split())
    return found
