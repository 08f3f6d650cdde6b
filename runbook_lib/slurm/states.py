"""What Slurm's commands say: elements of arrays, in the forms of all versions, and partitions.  Pure.

Slurm 22.05 writes states as texts and exit codes as wait statuses; from 23.02 on states are lists, and a number may be
``{"set": true, "infinite": false, "number": 3}``.  Source: the schemas ``data_parser/v0.0.39`` and later of Slurm, and
what 22.05 really prints.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from runbook_lib.errors import CannotTell, Unreachable

#: States in which an element is over; all others lead on.
OVER = frozenset({
    "COMPLETED", "FAILED", "TIMEOUT", "DEADLINE", "CANCELLED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
    "REVOKED",
})  # fmt: skip
_ON = frozenset({"RUNNING", "PENDING", "SUSPENDED"})
#: With one of these beside it an element that is over begins anew.
_AGAIN = frozenset({"REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})
_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7})(?::(\d{1,7}))?)?")
_MOST = 100_000


@dataclass(frozen=True)
class Element:
    """An element of an array; ``index`` is None for all those together that are not listed by themselves.

    ``state`` is Slurm's word, ``code`` the exit status where the element is over, ``restarts`` how often it was put
    back into the queue.
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
        """Whether nothing more will come of it by itself."""
        return self.state in OVER


@dataclass(frozen=True)
class Partition:
    """A partition; ``seconds`` is its longest time limit, None for none.  ``gpus`` a node, 0 where none are known."""

    name: str
    seconds: int | None
    nodes: int
    gpus: int
    default: bool = False


def elements(text: str, what: str) -> tuple[Element, ...]:
    """The elements of arrays that an answer lists; other jobs are left out.  ``what`` is the command, for messages.

    Raises CannotTell for an answer of another form, and Unreachable for one that tells of errors: 22.05 answers so,
    with an empty list and the exit status 0, while its controller is away.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        said = text.strip()[:200] or "nothing"
        raise CannotTell(f"{what} printed no JSON, but {said!r}. It needs Slurm 21.08 or later.") from error
    jobs = data.get("jobs") if isinstance(data, dict) else None
    if not isinstance(jobs, list):
        raise CannotTell(f"{what} listed no jobs: its answer has another form than Slurm's.")
    if errors := data.get("errors"):
        raise Unreachable(f"Slurm's controller cannot be reached: {what} says {_words(errors)!r}.")
    return tuple(element for job in jobs if isinstance(job, dict) for element in _elements(job))


def _words(errors: object) -> str:
    """What an answer tells of its errors, without the names of its fields."""
    listed = [it for it in (errors if isinstance(errors, list) else [errors]) if isinstance(it, dict)]
    said = [_text(it.get(key)) for it in listed for key in ("description", "error")]
    return ", ".join(dict.fromkeys(filter(None, said)))[:300] or json.dumps(errors)[:300]


def _elements(job: Mapping[str, Any]) -> Iterator[Element]:
    array = job.get("array")
    if isinstance(array, dict):  # sacct
        number, index, listed = array.get("job_id"), array.get("task_id"), array.get("task")
    else:
        number, index, listed = job.get("array_job_id"), job.get("array_task_id"), job.get("array_task_string")
    owner = _number(number)
    if not owner:
        return
    state, reason = _state(job)
    code = _code(job.get("exit_code")) if state in OVER else None
    if state == "FAILED" and code == 0:
        code = None  # sacct 22.05 prints 0 for every job
    own = _number(index)
    alone = own is not None and not (own == 0 and _text(listed))  # 0 may stand for none, beside a list
    for one in [own] if alone else _indices(_text(listed)):
        yield Element(_text(job.get("name")), owner, one, state, reason, code, _number(job.get("restart_cnt")) or 0)


def _indices(listed: str) -> list[int | None]:
    """Those of ``0-3,7%2``; None for all others where there is no list, or one that was cut."""
    text = listed.partition("%")[0]
    if not text or "..." in text:
        return [None]
    found: list[int | None] = []
    for match in _RANGE.finditer(text):
        first, last = int(match[1]), int(match[2] or match[1])
        found += range(first, min(last, first + _MOST) + 1, int(match[3] or 1) or 1)
    return found[:_MOST]


def _state(job: Mapping[str, Any]) -> tuple[str, str]:
    told = job.get("job_state")
    reason = _text(job.get("state_reason"))
    if told is None and isinstance(job.get("state"), dict):  # sacct
        told, reason = job["state"].get("current"), _text(job["state"].get("reason"))
    words = [str(it).split()[0] for it in (told if isinstance(told, list) else [told]) if str(it).strip()]
    base = next((it for it in words if it in OVER | _ON), words[0] if words else "")
    if _AGAIN & set(words):
        base = "PENDING"
    return base, "" if reason in ("None", "null") else reason


def _number(value: object) -> int | None:
    """A number in any of Slurm's forms; None where it is not set."""
    if isinstance(value, dict):
        return _number(value.get("number")) if value.get("set") and not value.get("infinite") else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _code(value: object) -> int | None:
    """The exit status; that of a signal is 128 more, as shells have it."""
    if isinstance(value, dict):
        signal = value.get("signal")
        number = _number(signal.get("id", signal.get("signal_id"))) if isinstance(signal, dict) else None
        return 128 + number if number else _number(value.get("return_code"))
    status = _number(value)
    if status is None:
        return None
    return 128 + (status & 127) if status & 127 else status >> 8


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def partitions(text: str) -> tuple[Partition, ...]:
    """The partitions that ``sinfo --noheader --format=%P|%l|%D|%G`` lists, a line for each kind of node."""
    found: dict[str, Partition] = {}
    for line in text.splitlines():
        if line.count("|") != 3:
            continue
        name, limit, nodes, gres = line.strip().split("|")
        bare = name.rstrip("*")
        before = found.get(bare, Partition(bare, None, 0, 0))
        gpus = sum(int(it) for it in re.findall(r"\bgpu(?::[\w.-]{1,60})?:(\d{1,4})\b", gres))
        found[bare] = Partition(
            bare, seconds(limit), before.nodes + int(re.sub(r"\D", "", nodes) or 0), max(before.gpus, gpus),
            name.endswith("*"),
        )  # fmt: skip
    return tuple(found.values())


def seconds(limit: str) -> int | None:
    """A time limit as Slurm writes it, ``[days-]hours:minutes:seconds``; None for ``infinite`` and what is none."""
    found = re.fullmatch(r"(?:(\d{1,9})-)?(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9})", limit.strip())
    if found is None:
        return None
    days, hours, minutes, rest = (int(it or 0) for it in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest
