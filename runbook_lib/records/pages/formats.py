"""Values from records, formatted as text for people."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from runbook_lib.records.statement import parse_time

#: Maximum characters of a value within a sentence, or before and after a change.
_LONGEST_VALUE = 160
_HOUR, _DAY = 3600, 86400


def format_value(value: object) -> str:
    """Return a value as text: mappings as ``name value``, lists comma-separated, None as nothing."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {format_value(item)}" for key, item in value.items() if item not in (None, ""))
    if isinstance(value, list | tuple):
        return ", ".join(map(format_value, value))
    return str(value)


def abbreviate(value: object, mark: str = "…") -> str:
    """Return a value as text of at most 160 characters, with hashes abbreviated as git does."""
    text = re.sub(r"\b([0-9a-f]{10})(?:[0-9a-f]{30}|[0-9a-f]{54})\b", r"\1", format_value(value))
    return truncate(text, _LONGEST_VALUE, mark)


def truncate(text: str, limit: int, mark: str = "…") -> str:
    """Return at most ``limit`` characters of a text, with ``mark`` after a cut."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]} {mark}"


def run_duration(predicate: Mapping[str, Any]) -> str:
    """Return the duration of a run in words; empty while it is running."""
    return format_period(predicate["started"], predicate.get("ended") or "")


def format_period(start: str, end: str) -> str:
    """Return the time between two stamps in words; empty if either stamp is."""
    if not start or not end:
        return ""
    return format_duration(parse_time(end) - parse_time(start))


def format_duration(duration: timedelta) -> str:
    """Return a duration in words."""
    seconds = duration.total_seconds()
    if seconds < 120:
        return f"{max(seconds, 0):.1f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / 60:.0f} min"
    if seconds < 2 * _DAY:
        return f"{seconds / _HOUR:.0f} hours"
    return f"{seconds / _DAY:.0f} days"


def format_time(stamp: str) -> str:
    """Return a record's time in UTC, to the second; text that is not a time is returned unchanged."""
    if not stamp:
        return ""
    try:
        return f"{parse_time(stamp):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, TypeError):
        return str(stamp)
