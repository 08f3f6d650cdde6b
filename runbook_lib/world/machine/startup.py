"""Modules that a process does without, because they take long to import."""

import sys


def skip_httpx_command() -> None:
    """Keep httpx from importing the command of its name, with the colours and the parser of options that it needs."""
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]


def skip_notebook_formats() -> None:
    """Keep jsonschema, which validates notebooks, from checking formats that notebooks do not contain.

    Its checkers of URIs and durations take more than a second to import.
    """
    for module in ("rfc3987_syntax", "isoduration", "rfc3986_validator"):
        sys.modules.setdefault(module, None)  # type: ignore[arg-type]
