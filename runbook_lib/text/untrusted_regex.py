"""Matches a regular expression that came from outside, in a process of its own with little time and memory.

Python's matcher backtracks, and some patterns need longer than a life for one line; it cannot be stopped from within,
and no rule over patterns tells the harmless ones apart.
"""

import json
import subprocess
import sys
from hashlib import sha256

from runbook_lib.errors import CannotTell

#: Seconds; matching an ordinary file takes a hundredth of one, the start of the process most of the rest.
LIMIT = 10.0
_LONGEST = 1000  # characters of a pattern
_LARGEST = 10_000_000  # characters of a text
_MOST = 10_000  # places; a pin has at most 1000
_KEPT = 256  # answers that are remembered
_MEMORY = 2**29  # bytes of the process
_PROGRAM = """
import json, re, sys
memory, most = map(int, sys.argv[1:])
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
except (ImportError, ValueError, OSError):
    pass  # a system without such a limit; the sizes of text and answer are bounded all the same
pattern, text = json.load(sys.stdin)
spans = []
for match in re.finditer(pattern, text, re.MULTILINE):
    if match.start("image") >= 0:
        spans.append(match.span("image"))
        if len(spans) > most:
            break
json.dump(spans, sys.stdout)
"""
_known: dict[str, tuple[tuple[int, int], ...]] = {}


def spans(pattern: str, text: str) -> tuple[tuple[int, int], ...]:
    """Where the group ``image`` of each match stands; ``^`` and ``$`` match at each line's ends.

    Raises CannotTell for a pattern that is none, lacks that group, takes longer than ``LIMIT``, or needs or finds too
    much, and for a text that is too large.
    """
    if len(pattern) > _LONGEST:
        raise CannotTell(f"the pattern has {len(pattern)} characters; expected at most {_LONGEST}.")
    if len(text) > _LARGEST:
        raise CannotTell(f"the file has {len(text)} characters; a pattern is tried on at most {_LARGEST}.")
    key = sha256(f"{pattern}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()
    if key not in _known:
        found = _spans(pattern, text)
        if len(_known) >= _KEPT:
            _known.clear()
        _known[key] = found
    return _known[key]


def _spans(pattern: str, text: str) -> tuple[tuple[int, int], ...]:
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, str(_MEMORY), str(_MOST)],
            input=json.dumps([pattern, text]), capture_output=True, timeout=LIMIT, check=False, encoding="utf-8",
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise CannotTell(
            f"the pattern {_short(pattern)} did not end within {LIMIT:.0f} seconds on this file: it backtracks without "
            "end. Write it without a repetition inside of a repetition, such as (a+)+, and without several .* in a row."
        ) from error
    if "MemoryError" in done.stderr or done.returncode < 0:
        raise CannotTell(f"the pattern {_short(pattern)} needs more than {_MEMORY >> 20} MB of memory on this file.")
    if done.returncode:
        told = (done.stderr.strip().splitlines() or ["it failed"])[-1].partition(": ")
        raise CannotTell(f"the pattern {_short(pattern)} cannot be used: {told[2] or told[0]}.")
    found = tuple((start, end) for start, end in json.loads(done.stdout))
    if len(found) > _MOST:
        raise CannotTell(f"the pattern {_short(pattern)} is found more than {_MOST} times in this file.")
    return found


def _short(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 80 else f"{pattern[:77]}…")
