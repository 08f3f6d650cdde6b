"""Answers of Slurm's commands: elements of arrays, and partitions.  Pure."""

import re
from dataclasses import dataclass

from runbook_lib.errors import CannotTell

#: Final states of an element; all other states change.
OVER = frozenset({
    "COMPLETED", "FAILED", "TIMEOUT", "DEADLINE", "CANCELLED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
    "REVOKED",
})  # fmt: skip
#: In these an element that is over starts again.
_REQUEUED = frozenset({"REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})
_NUMBER = re.compile(r"[0-9]{1,18}")
#: What ``squeue --Format`` prints of an element; the name comes last, because it may contain anything.
FIELDS = "ArrayJobID:20|,ArrayTaskID:20|,State:40|,exit_code:20|,RestartCnt:20|,Reason:200|,Name:300"


@dataclass(frozen=True)
class ArrayElement:
    """An element of an array.

    ``state`` is Slurm's word, ``code`` the exit status of an element that is over, ``restarts`` the number of times it
    was requeued.
    """

    name: str
    job: int
    index: int
    state: str
    reason: str = ""
    code: int | None = None
    restarts: int = 0

    @property
    def over(self) -> bool:
        """True if the state no longer changes by itself."""
        return self.state in OVER


@dataclass(frozen=True)
class Partition:
    """A partition; ``seconds`` is its maximum time limit, None for none; ``gpus`` are per node, 0 if unknown."""

    name: str
    seconds: int | None
    nodes: int
    gpus: int
    default: bool = False


def elements(text: str) -> tuple[ArrayElement, ...]:
    """Return the elements of arrays in an answer of ``squeue --array`` with FIELDS, without other jobs.

    Raises CannotTell for an answer of another form.
    """
    result = []
    for line in filter(str.strip, text.splitlines()):
        fields = [field.strip() for field in line.split("|", 6)]
        if len(fields) != 7:
            raise CannotTell(f"squeue printed {line[:200]!r}, not the fields that it was asked for.")
        job, index, state, code, restarts, reason, name = fields
        if not (_NUMBER.fullmatch(job) and _NUMBER.fullmatch(index)):
            continue
        result.append(ArrayElement(
            name, int(job), int(index), "PENDING" if state in _REQUEUED else state, reason if reason != "None" else "",
            _code(code) if state in OVER else None, int(restarts) if _NUMBER.fullmatch(restarts) else 0,
        ))  # fmt: skip
    return tuple(result)


def _code(text: str) -> int | None:
    """Return the exit status in a wait status, or in ``status:signal``; for a signal add 128, like shells."""
    status, _, signal = text.partition(":")
    if not _NUMBER.fullmatch(status):
        return None
    if signal:
        return 128 + int(signal) if _NUMBER.fullmatch(signal) and int(signal) else int(status)
    number = int(status)
    return 128 + (number & 127) if number & 127 else number >> 8


def partitions(text: str) -> tuple[Partition, ...]:
    """Return the partitions in ``sinfo --noheader --format=%P|%l|%D|%G``, which prints one line per kind of node."""
    result: dict[str, Partition] = {}
    for line in text.splitlines():
        if line.count("|") != 3:
            continue
        name, limit, nodes, gres = line.strip().split("|")
        bare = name.rstrip("*")
        previous = result.get(bare, Partition(bare, None, 0, 0))
        gpus = sum(map(int, re.findall(r"\bgpu(?::[\w.-]{1,60})?:(\d{1,4})\b", gres)))
        count = previous.nodes + int(re.sub(r"\D", "", nodes) or 0)
        result[bare] = Partition(bare, seconds(limit), count, max(previous.gpus, gpus), name.endswith("*"))
    return tuple(result.values())


def seconds(limit: str) -> int | None:
    """Return the seconds of a time limit ``[days-]hours:minutes:seconds``; None for ``infinite`` and other texts."""
    match = re.fullmatch(r"(?:(\d{1,9})-)?(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9})", limit.strip())
    if match is None:
        return None
    days, hours, minutes, rest = map(int, match.groups("0"))
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest
