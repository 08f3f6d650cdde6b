"""Log lines without colours, control characters and launcher prefixes.  Pure."""

import re
from collections.abc import Iterator

_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
#: Control characters, including those that change the text direction or end a line in some programs.
_CONTROL = dict.fromkeys([*range(9), *range(10, 32), *range(127, 160), 0x2028, 0x2029, *range(0x202A, 0x202F),
                          *range(0x2066, 0x206A), 0xFEFF])  # fmt: skip
#: Line beginnings that indicate other output.
_MARKS = (
    "[", "##[", "====", "----", "Root Cause", "E   ", "+ ", "W0", "E0", "I0", "WARNING", "INFO", "ERROR", "FAILED",
    "error: ", "note: ", "srun: ", "slurmstepd: ", "fatal: ", "NCCL version ", "curl: (",
)  # fmt: skip
_STAMP = re.compile(r"\d{4}-(\d\d-\d\d)T(\d\d:\d\d:\d\d(?:\.\d{1,9})?)Z ?(?:\d\d[OE][+ ]?)?")
#: Prefixes of nemo-run, torchrun, srun, Ray, SGLang and mpirun, of pytest-xdist, BuildKit and Docker Compose.
_PREFIX = re.compile(
    r"\w[\w.-]{0,60}/\d{1,4} |\[([A-Za-z_]{0,20})(\d{1,6})\]: ?| {0,4}(\d{1,4}): |\[gw\d{1,4}\] |"
    r"\(\w{1,60} pid=\d{1,9}[^)\n]{0,60}\) |\[[-\d: ]{19} (?:DP\d{1,3} )?TP(\d{1,4})[^\]\n]{0,30}\] |"
    r"\[\d{1,3},(\d{1,6})\]<std(?:err|out)>: ?|#\d{1,4} \d{1,6}\.\d{1,6} |[\w.-]{1,60} {1,20}\| (?=Traceback| )"
)
#: Prefixes of glog and Python's logging; removed only from the lines of a traceback.
_LOGGER = re.compile(
    r"(?:(?:ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^]\n]{1,80}\]|"
    r"\[?[EWIF]\d{3,4} \d\d:\d\d:\d\d\.\d{1,9} [^\n]{1,160}?\]|"
    r"\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[^\n]{0,120}?(?:\]|\bERROR\b(?: -)?|:))"
    r" (?=Traceback \(most|  +\S|[A-Za-z_][\w.]{0,100}(?:Error|Exception|Interrupt|Exit)\b|$|"
    r"During handling|The above exception)"
)
_INNER = re.compile(
    r"\d{4}-(\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)|\b[EWIF](\d{1,2})(\d\d) (\d\d:\d\d:\d\d\.\d{1,9})"
)

_TEST = re.compile(
    r"(?:\[gw\d{1,4}\] )?(?:\[ {0,2}\d{1,3}%\] )?(?:FAILED(?: CONSISTENTLY:)?|ERROR)(?: \[[\d. s]{1,14}\])? "
    r"(?=[\w./\\-]{1,200}\.py)"
)


def clean(raw: bytes) -> str:
    """Return text without colours and control characters; ``�`` stands for bytes that are not UTF-8."""
    return without_colours(raw).decode("utf-8", "replace").translate(_CONTROL)


def without_colours(raw: bytes) -> bytes:
    """Remove colours, which would split literals."""
    return _ANSI.sub(b"", raw) if b"\x1b" in raw else raw


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
        number = next(filter(None, prefix.groups()[1:]), None)
        if number:
            rank = int(number)
        text = text[prefix.end() :]
    logger = _LOGGER.match(text)
    if logger:
        time, text = time or inner_time(text), text[logger.end() :]
    return time, rank, text


def inner_time(text: str) -> str:
    """Return the time that a program wrote near the beginning of a line, in the format of ``split``."""
    match = _INNER.search(text, 0, 80)
    if match is None:
        return ""
    if match[1]:
        return f"{match[1]}T{match[2].replace(',', '.')}"
    return f"{match[3]:>02}-{match[4]}T{match[5]}"


def parts(raw: bytes) -> Iterator[bytes]:
    """Yield the states of a line between carriage returns, without blank ones; at most the last hundred."""
    if b"\r" not in raw:
        yield raw
        return
    yield from [state for state in raw.split(b"\r") if state.strip()][-100:]


def is_other_output(bare: str) -> bool:
    """Return True if a line below an exception is other output: it starts with a time, a bracket or a mark."""
    text = bare.lstrip()
    is_progress = " iteration " in bare[:80] or " NCCL INFO " in bare[:120]
    return text.startswith(_MARKS) or is_progress or bool(_INNER.match(text))


def failed_test(bare: str) -> tuple[str, str]:
    """Return the ID of the test that a line reports as failed, and the error; empty if there is none."""
    summary = _TEST.match(bare)
    if summary:
        name, _, error = bare[summary.end() :].strip().partition(" - ")
        return name, error
    before, failed, _ = bare.partition(" FAILED")
    name = before.rpartition(" ")[2]
    return (name, "") if failed and ".py::" in name else ("", "")
