"""The hint for a misspelled name."""

from collections.abc import Iterable


def did_you_mean(text: str, choices: Iterable[str], limit: int = 1) -> str:
    """Return `` (did you mean … or …?)`` with the most similar choices, or an empty string if none is similar."""
    from difflib import get_close_matches  # only messages need it

    similar = get_close_matches(text[:200], list(choices), limit)
    return f" (did you mean {' or '.join(similar)}?)" if similar else ""
