"""Lists of names, and long texts, in messages."""

from collections.abc import Sequence


def join_first(names: Sequence[str], limit: int) -> str:
    """Return the names comma-separated, at most ``limit`` of them, such as ``a, b and 3 more``."""
    text = ", ".join(names[:limit])
    if len(names) > limit:
        text += f" and {len(names) - limit} more"
    return text


def shorten(text: str, limit: int) -> str:
    """Return the text, or its first characters and ``…`` if it has more than ``limit``."""
    if len(text) <= limit:
        return text
    return f"{text[: limit - 1]}…"


def capitalized(text: str) -> str:
    """Return the text with its first letter in upper case."""
    return f"{text[:1].upper()}{text[1:]}"
