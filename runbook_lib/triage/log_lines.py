"""Lines of a log without colours, control characters and the prefixes of launchers.  Pure."""

import re
from collections.abc import Iterator

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
#: Control characters, and those that turn the direction of writing or end a line for some programs.
_CONTROL = dict.fromkeys([*range(9), *range(10, 32), *range(127, 160), 0x2028, 0x2029, *range(0x202A, 0x202F),
                          *range(0x2066, 0x206A), 0xFEFF])  # fmt: skip
#: The beginnings of other output.
_MARKS = (
    "[", "##[", "====", "----", "Root Cause", "E   ", "+ ", "W0", "E0", "I0", "WARNING", "INFO", "ERROR", "FAILED",
)  # fmt: skip
_STAMP = re.compile(r"\d{4}-(\d\d-\d\d)T(\d\d:\d\d:\d\d(?:\.\d{1,9})?)Z ?(?:\d\d[OE][+ ]?)?")
_PREFIX = re.compile(r"[A-Za-z][\w.-]{0,60}/\d{1,4} |\[([A-Za-z_]{0,20})(\d{1,6})\]: ?| {0,4}(\d{1,4}): ")
_INNER = re.compile(
    r"\d{4}-(\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)|\b[EWIF](\d{1,2})(\d\d) (\d\d:\d\d:\d\d\.\d{1,9})"
)


def clean(raw: bytes) -> str:
    """Return text without colours and control characters; ``�`` stands for bytes that are not UTF-8."""
    return _ANSI.sub("", raw.decode("utf-8", "replace")).translate(_CONTROL)


def split(text: str) -> tuple[str, int | None, str]:
    """Split a line into time (month to second), rank and the rest; the innermost rank counts."""
    time, rank = "", None
    text = text.lstrip("\ufeff")
    stamp = _STAMP.match(text)
    if stamp:
        time, text = f"{stamp[1]}T{stamp[2]}", text[stamp.end() :]
    for _ in range(4):
        prefix = _PREFIX.match(text)
        if prefix is None:
            break
        if prefix[2] or prefix[3]:
            rank = int(prefix[2] or prefix[3])
        text = text[prefix.end() :]
    return time, rank, text


def inner_time(text: str) -> str:
    """Return the time that a program wrote near the beginning of a line, in the form of ``split``."""
    match = _INNER.search(text, 0, 80)
    if match is None:
        return ""
    if match[1]:
        return f"{match[1]}T{match[2].replace(',', '.')}"
    return f"{match[3]:>02}-{match[4]}T{match[5]}"


def parts(raw: bytes) -> Iterator[bytes]:
    """Yield the states of a line between its carriage returns, without blank ones; the last hundred at most."""
    if b"\r" not in raw:
        yield raw
        return
    yield from [state for state in raw.split(b"\r") if state.strip()][-100:]


def is_other_output(bare: str) -> bool:
    """Report if a line below an exception is other output: it has a time, a bracket or a mark of its own."""
    text = bare.lstrip()
    return text.startswith(_MARKS) or " iteration " in bare[:80] or bool(_INNER.match(text))
