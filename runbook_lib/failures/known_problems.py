"""Known problems with builds, uv and Slurm, read from ``known_problems.toml``: the sign in a log, cause and fix."""

import re
from dataclasses import dataclass, field

from runbook_lib.failures.log_lines import clean
from runbook_lib.failures.patterns import read_table

_MAX_LINE = 4_000  # characters of a line that are searched
_MAX_LOG = 1_000_000  # characters at the end of a log that are searched: a program dies at the end


@dataclass(frozen=True)
class Pitfall:
    """A known problem that applies if all of ``patterns`` match; the texts are complete sentences."""

    sign: str
    cause: str
    fix: str
    patterns: tuple[str, ...] = field(repr=False)


PITFALLS = tuple(
    Pitfall(problem["sign"], problem["cause"], problem["advice"], tuple(problem["patterns"]))
    for problem in read_table("known_problems.toml")["problem"]
)


def find(text: str) -> tuple[Pitfall, ...]:
    """Return the pitfalls whose signs are in a log, in the order of the table; only the end of a long log is searched.

    Among pitfalls with the same first pattern, the first that applies wins.
    """
    lines = [clean(line[:_MAX_LINE].encode("utf-8", "replace")) for line in text[-_MAX_LOG:].splitlines()]
    log = "\n".join(lines)
    pitfalls: dict[str, Pitfall] = {}
    for pitfall in PITFALLS:
        if all(re.search(pattern, log, re.MULTILINE) for pattern in pitfall.patterns):
            pitfalls.setdefault(pitfall.patterns[0], pitfall)
    return tuple(pitfalls.values())
