"""The rules for ``runbook watch`` to propose newer tags: cool-down and holds.

They are the key ``watch`` of a pins file, or a file of their own beside pins that are built in.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runbook_lib.text import user_file

#: The file with the rules of a repository whose pins are built in.
FILE = ".base-image-watch.yaml"


@dataclass(frozen=True)
class WatchRules:
    """``cool_down``: days after the build of an image in which it is not proposed.

    ``holds`` are pairs of a tag (``*``: every tag) that must not be proposed, and the reason.
    """

    cool_down: int = 0
    holds: tuple[tuple[str, str], ...] = ()

    def hold(self, tag: str) -> str:
        """Return the reason why a tag is held; empty if it is not."""
        return next((reason for held, reason in self.holds if held in ("*", tag)), "")


def parse(text: str, schema_of_pins: Mapping[str, Any], origin: str = FILE) -> WatchRules:
    """Parse a separate rules file.  Raises RunbookError, with the line, if it is invalid."""
    definitions = schema_of_pins["definitions"]
    schema = {**definitions["watch"], "definitions": definitions}
    return of(user_file.read(text, schema, "watch file", origin).values)


def of(values: Mapping[str, Any]) -> WatchRules:
    """Return the rules in values that fit their schema."""
    holds = tuple((str(entry["tag"]), str(entry["reason"])) for entry in values.get("hold", ()))
    return WatchRules(values.get("cool-down", 0), holds)
