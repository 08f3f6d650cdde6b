"""One line of a log as it was meant: without colours, control characters and the prefixes put before it.  Pure."""

import re
from collections.abc import Iterator

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
#: Control characters, and those that turn the direction of writing or end a line for some programs.
_CONTROL = dict.fromkeys([*range(9), *range(10, 32), *range(127, 160), 0x2028, 0x2029, *range(0x202A, 0x202F),
                          *range(0x2066, 0x206A), 0xFEFF])  # fmt: skip
#: What other output begins with.
_MARKS = (
    "[", "##[", "====", "----", "Root Cause", "E   ", "+ ", "W0", "E0", "I0", "WARNING", "INFO", "ERROR", "FAILED",
)  # fmt: skip
_STAMP = re.compile(r"\d{4}-(\d\d-\d\d)T(\d\d:\d\d:\d\d(?:\.\d{1,9})?)Z ?(?:\d\d[OE][+ ]?)?")
_PREFIX = re.compile(r"[A-Za-z][\w.-]{0,60}/\d{1,4} |\[([A-Za-z_]{0,20})(\d{1,6})\]: ?| {0,4}(\d{1,4}): ")
_INNER = re.compile(
    r"\d{4}-(\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)|\b[EWIF](\d{1,2})(\d\d) (\d\d:\d\d:\d\d\.\d{1,9})"
)


def clean(raw: bytes) -> str:
    """Text without colours and control characters, whatever the bytes; ``�`` where they are no UTF-8."""
    return _ANSI.sub("", raw.decode("utf-8", "replace")).translate(_CONTROL)


def split(text: str) -> tuple[str, int | None, str]:
    """Time (month to second), rank and the rest of a line; the innermost rank counts."""
    time, rank = "", None
    text = text.lstrip("\ufeff")
    if found := _STAMP.match(text):
        time, text = f"{found[1]}T{found[2]}", text[found.end() :]
    for _ in range(4):
        prefix = _PREFIX.match(text)
        if prefix is None:
            break
        number = prefix[2] or prefix[3]
        rank = int(number) if number else rank
        text = text[prefix.end() :]
    return time, rank, text


def inner_time(text: str) -> str:
    """The time that a program wrote near the beginning of a line, as ``split`` gives it."""
    found = _INNER.search(text, 0, 80)
    if found is None:
        return ""
    if found[1]:
        return f"{found[1]}T{found[2].replace(',', '.')}"
    return f"{found[3]:>02}-{found[4]}T{found[5]}"


def parts(raw: bytes) -> Iterator[bytes]:
    """A line as its carriage returns left it: each state that is more than empty, the last hundred at most."""
    if b"\r" not in raw:
        yield raw
        return
    yield from [it for it in raw.split(b"\r") if it.strip()][-100:]


def foreign(bare: str) -> bool:
    """Whether a line below an exception is plainly other output: it has a time, a bracket or a mark of its own."""
    text = bare.lstrip()
    return text.startswith(_MARKS) or " iteration " in bare[:80] or bool(_INNER.match(text))
