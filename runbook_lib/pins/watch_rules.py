"""The rules for ``runbook watch`` to propose newer tags: cool-down, holds, pull request or issue.

They are the key ``watch`` of a pins file, or a file of their own beside pins that are built in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

from runbook_lib.text import user_file
from runbook_lib.text.user_file import Keys, UserFile

#: The file with the rules of a repository whose pins are built in.
FILE = ".base-image-watch.yaml"


@dataclass(frozen=True)
class Hold:
    """A tag (``*``: every tag) that must not be proposed before the day ``until``, or ever if that is empty."""

    tag: str
    reason: str
    until: date | None = None

    def concerns(self, tag: str, today: date) -> bool:
        """Return True if the hold prevents this tag from being proposed today."""
        return self.tag in ("*", tag) and (self.until is None or today < self.until)

    @property
    def sentence(self) -> str:
        """The hold in one sentence."""
        end = f"until {self.until}" if self.until else "without an end"
        return f"It is held {end}: {self.reason.rstrip('.')}."


@dataclass(frozen=True)
class WatchRules:
    """``cool_down``: days after the build of an image in which it is not proposed."""

    report: Literal["pull-request", "issue"] = "pull-request"
    cool_down: int = 0
    holds: tuple[Hold, ...] = ()


def active(holds: Sequence[Hold], tag: str, today: date) -> Hold | None:
    """Return the hold on a tag today that ends last; None if there is none."""
    concerned = [hold for hold in holds if hold.concerns(tag, today)]
    return max(concerned, key=lambda hold: hold.until or date.max, default=None)


def parse(text: str, schema_of_pins: Mapping[str, Any], origin: str = FILE) -> WatchRules:
    """Parse a separate rules file.  Raises RunbookError, with the line, if it is invalid."""
    definitions = schema_of_pins["definitions"]
    return of(user_file.read(text, {**definitions["watch"], "definitions": definitions}, "watch file", origin), ())


def of(file: UserFile, keys: Keys) -> WatchRules:
    """Return the rules at ``keys`` of a file that fits its schema.  Raises RunbookError for an impossible day."""
    values: Any = file.values
    for key in keys:
        values = values.get(key, {})
    holds = []
    for index, entry in enumerate(values.get("hold", ())):
        until = None
        if "until" in entry:
            try:
                until = date.fromisoformat(str(entry["until"]))
            except ValueError:
                raise file.refusal((*keys, "hold", index, "until"), "a day that exists, such as 2026-12-01") from None
        holds.append(Hold(str(entry["tag"]), str(entry["reason"]), until))
    return WatchRules(values.get("report", "pull-request"), values.get("cool-down", 0), tuple(holds))
