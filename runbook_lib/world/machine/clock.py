"""The time in UTC."""

from datetime import UTC, datetime


def now() -> datetime:
    """Return the time in UTC."""
    return datetime.now(UTC)


def stamp(time: datetime) -> str:
    """Return a time as records write it: UTC, to the millisecond."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ago(time: str) -> str:
    """Return how long ago a time was, as records write it: ``3 hours ago``."""
    seconds = (now() - datetime.fromisoformat(time)).total_seconds()
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        number = int(seconds // size)
        if number >= 1:
            return f"{number} {unit}{'s' * (number != 1)} ago"
    return "just now"
