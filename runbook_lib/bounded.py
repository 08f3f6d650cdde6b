"""Matches a regular expression that came from outside, in a process of its own that is ended when it takes too long.

Python's matcher backtracks, and some patterns need longer than a life for one line; it cannot be stopped from within,
and no rule over patterns tells the harmless ones apart.
"""

import json
import subprocess
import sys
from functools import lru_cache

from runbook_lib.errors import CannotTell

#: Seconds; matching an ordinary file takes a hundredth of one, the start of the process most of the rest.
LIMIT = 10.0
_LONGEST = 1000  # characters of a pattern
_PROGRAM = """
import json, re, sys
pattern, text = json.load(sys.stdin)
spans = [match.span("image") for match in re.finditer(pattern, text, re.MULTILINE)]
json.dump([span for span in spans if span[0] >= 0], sys.stdout)
"""


@lru_cache(maxsize=256)
def spans(pattern: str, text: str) -> tuple[tuple[int, int], ...]:
    """Where the group ``image`` of each match stands; ``^`` and ``$`` match at each line's ends.

    Raises CannotTell for a pattern that is none, lacks that group, or takes longer than ``LIMIT``.
    """
    if len(pattern) > _LONGEST:
        raise CannotTell(f"the pattern has {len(pattern)} characters; expected at most {_LONGEST}.")
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROGRAM],
            input=json.dumps([pattern, text]), capture_output=True, timeout=LIMIT, check=False, encoding="utf-8",
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise CannotTell(
            f"the pattern {_short(pattern)} did not end within {LIMIT:.0f} seconds on this file: it backtracks without "
            "end. Write it without a repetition inside of a repetition, such as (a+)+, and without several .* in a row."
        ) from error
    if done.returncode:
        told = (done.stderr.strip().splitlines() or ["it failed"])[-1].partition(": ")
        raise CannotTell(f"the pattern {_short(pattern)} cannot be used: {told[2] or told[0]}.")
    return tuple((start, end) for start, end in json.loads(done.stdout))


def _short(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 80 else f"{pattern[:77]}…")
