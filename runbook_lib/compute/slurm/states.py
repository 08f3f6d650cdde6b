"""Answers of Slurm's commands: elements of arrays, in the forms of all versions, and partitions.  Pure.

Slurm 22.05 writes states as texts and exit codes as wait statuses; from 23.02 on states are lists, and a number may be
``{"set": true, "infinite": false, "number": 3}``.  Source: the schemas ``data_parser/v0.0.39`` and later of Slurm, and
actual output of 22.05.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from runbook_lib.errors import CannotTell, Unreachable

#: Final states of an element; all other states change.
OVER = frozenset({
    "COMPLETED", "FAILED", "TIMEOUT", "DEADLINE", "CANCELLED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
    "REVOKED",
})  # fmt: skip
_ACTIVE = frozenset({"RUNNING", "PENDING", "SUSPENDED"})
#: With one of these in addition, an element that is over starts again.
_REQUEUED = frozenset({"REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})
_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7})(?::(\d{1,7}))?)?")
_MAX_ELEMENTS = 100_000


@dataclass(frozen=True)
class ArrayElement:
    """An element of an array; ``index`` is None for all elements together that are not listed individually.

    ``state`` is Slurm's word, ``code`` the exit status of an element that is over, ``restarts`` the number of times it
    was requeued.
    """

    name: str
    job: int
    index: int | None
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


def elements(text: str, command: str) -> tuple[ArrayElement, ...]:
    """Return the elements of arrays in an answer, without other jobs.  ``command`` is named in messages.

    Raises CannotTell for an answer of another form, and Unreachable for one that lists errors: so 22.05 answers, with
    an empty list of jobs and exit status 0, while its controller is down.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        output = text.strip()[:200]
        raise CannotTell(f"{command} printed {output!r} instead of JSON. Slurm 21.08 or later is needed.") from error
    if not isinstance(data, dict) or not isinstance(data.get("jobs"), list):
        raise CannotTell(f"{command} listed no jobs: its output does not have Slurm's format.")
    if errors := data.get("errors"):
        raise Unreachable(f"Slurm's controller cannot be reached: {command} reports {_messages(errors)!r}.")
    jobs = filter(lambda job: isinstance(job, dict), data["jobs"])
    return tuple(itertools.chain.from_iterable(map(_elements, jobs)))


def _messages(errors: object) -> str:
    """Return the error messages in a reply, without the names of their fields."""
    messages: dict[str, None] = {}
    for error in errors if isinstance(errors, list) else [errors]:
        if isinstance(error, dict):
            messages |= dict.fromkeys([_text(error.get("description")), _text(error.get("error"))])
    return ", ".join(filter(None, messages))[:300] or json.dumps(errors)[:300]


def _elements(job: Mapping[str, Any]) -> Iterator[ArrayElement]:
    index, listed = job.get("array_task_id"), job.get("array_task_string")
    owner = _number(job.get("array_job_id"))
    if not owner:
        return
    state, reason = _state(job)
    code = _code(job.get("exit_code")) if state in OVER else None
    restarts = _number(job.get("restart_cnt")) or 0
    positions = [_number(index)]
    if positions == [None] or (positions == [0] and _text(listed)):  # with a list, 0 may mean none
        positions = _indices(_text(listed))
    for position in positions:
        yield ArrayElement(_text(job.get("name")), owner, position, state, reason, code, restarts)


def _indices(listed: str) -> list[int | None]:
    """Return the indices of a list such as ``0-3,7%2``; None for all others if there is no list, or a truncated one."""
    text = listed.partition("%")[0]
    if not text or "..." in text:
        return [None]
    indices: list[int | None] = []
    for match in _RANGE.finditer(text):
        first, last = int(match[1]), int(match[2] or match[1])
        indices += range(first, min(last, first + _MAX_ELEMENTS) + 1, int(match[3] or 1) or 1)
    return indices[:_MAX_ELEMENTS]


def _state(job: Mapping[str, Any]) -> tuple[str, str]:
    states, reason = job.get("job_state"), _text(job.get("state_reason"))
    if not isinstance(states, list):
        states = [states]
    words = [str(state).split()[0] for state in states if str(state).strip()]
    known = [word for word in words if word in OVER | _ACTIVE]
    base = "".join((known or words)[:1])
    if _REQUEUED & set(words):
        base = "PENDING"
    if reason in ("None", "null"):
        reason = ""
    return base, reason


def _number(value: object) -> int | None:
    """Return a number in any of Slurm's forms; None if it is not set, or negative."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value


def _code(value: object) -> int | None:
    """Return the exit status; for a signal add 128, like shells."""
    if isinstance(value, dict):
        signal = value.get("signal")
        if isinstance(signal, dict) and (number := _number(signal.get("id", signal.get("signal_id")))):
            return 128 + number
        return _number(value.get("return_code"))
    status = _number(value)
    if status is None or status & 127 == 0:
        return status and status >> 8
    return 128 + (status & 127)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


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
