"""The tags of the NeMo images: ``26.06``, ``26.06.01``, ``26.08.rc5``, ``26.02.nemotron_3_super``, and moving names.

The formats are those in Megatron-Bridge's documentation and history.
"""

import re

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import Kind, Tag

_MOVING = ("dev", "latest", "nightly")
_GENERAL = "framework"  # in the names of the general image until 24.05
_TAG = re.compile(
    r"(?P<year>[0-9]{2})\.(?P<month>0[1-9]|1[0-2])(?:\.(?P<patch>[0-9]{2}))?"
    r"(?:\.(?:rc(?P<candidate>0|[1-9][0-9]{0,3})|(?P<name>(?!rc(?:[0-9._-]|$))[a-z][a-z0-9_-]*(?:\.[a-z0-9_-]+)*)))?"
)


def parse(text: str) -> Tag:
    """Parse a tag; anything else raises RunbookError.

    An image of one model, and one whose tag moves (``nightly``, in an internal namespace), is special.
    """
    if text in _MOVING:
        return Tag(text, (0, 0), ((0,),), "special", text, (f"The image of {text} changes: pin a month or a digest.",))
    match = _TAG.fullmatch(text)
    if match is None:
        raise RunbookError(
            f"{text!r} is not a tag of the NeMo images: expected YY.MM, YY.MM.rcN or YY.MM.name, such as "
            "26.06, 26.08.rc5 or 26.02.nemotron_3_super."
        )
    kind: Kind = "release"
    edition, notes = match["name"] or "", tuple[str, ...]()
    if edition == _GENERAL:
        edition = ""
    if edition:
        kind, notes = "special", (f"Made for {edition}, not for general use.",)
    elif match["candidate"]:
        kind, notes = "candidate", ("A release candidate: it may disappear after the release.",)
    # The order: patch, then special images, candidates by number, and the release.
    last = int(match["patch"] or -1), ("special", "candidate", "release").index(kind), int(match["candidate"] or 0)
    return Tag(text, (int(match["year"]), int(match["month"])), (last,), kind, edition, notes)
