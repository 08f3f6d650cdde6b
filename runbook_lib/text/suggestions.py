"""The hint for a misspelled name."""

from collections.abc import Iterable


def did_you_mean(text: str, choices: Iterable[str]) -> str:
    """Return `` (did you mean …?)`` with the most similar choice, or an empty string if none is similar."""
    from difflib import get_close_matches  # only messages need it

    similar = get_close_matches(text[:80], list(choices), 1)
    return f" (did you mean {similar[0]}?)" if similar else ""
