"""Lists of names, long texts and misspelled names in messages, and tables as lines."""

from collections.abc import Iterable, Iterator, Sequence


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


def did_you_mean(text: str, choices: Iterable[str], limit: int = 1) -> str:
    """Return `` (did you mean … or …?)`` with the most similar choices, or an empty string if none is similar."""
    from difflib import get_close_matches  # only messages need it

    similar = get_close_matches(text[:200], list(choices), limit)
    return f" (did you mean {' or '.join(similar)}?)" if similar else ""


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the rows of a table as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(map(str.ljust, row, widths)).rstrip()
