"""Submits the arrays of a matrix, each once, and follows their tests to the end.

A poll costs one query of the scheduler at most, whatever the number of tests: ``squeue``, or ``sacct`` instead for what
has left the queue.  What a job wrote down itself needs no query.  How a test ended that could not write it down (a time
limit, a lost node) is noted beside its results, since a controller forgets.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runbook_lib.errors import CannotTell, Unreachable
from runbook_lib.golden.values import MAX_BYTES, BadGolden, parse
from runbook_lib.slurm import submissions as slurm_matrix
from runbook_lib.slurm.client import Slurm
from runbook_lib.slurm.states import OVER, Element
from runbook_lib.slurm.submissions import Entry, Submission
from runbook_lib.system import atomic_files
from runbook_lib.transport import polling

#: So many polls in a row may a test be missing from the queue before it counts as gone: shared disks show files late.
_MAX_MISSED = 8
#: So often is the queue asked for an array whose submission was not answered, before it is submitted again.
_LOOKS = 3
#: A test of which neither Slurm nor its own files tell how it ended.
GONE = "GONE"
#: What Slurm writes into a job's log when it ends the job, in the order in which it is believed.
_WORDS = (
    ("TIMEOUT", b"DUE TO TIME LIMIT"), ("PREEMPTED", b"DUE TO PREEMPTION"), ("NODE_FAIL", b"DUE TO NODE FAILURE"),
    ("NODE_FAIL", b"Node failure on"), ("NODE_FAIL", b"srun: error: Task launch for"),
    ("OUT_OF_MEMORY", b"oom_kill"), ("OUT_OF_MEMORY", b"oom-kill"), ("CANCELLED", b" CANCELLED AT "),
)  # fmt: skip
_KEPT = ("state", "reason", "code", "restarts", "early", "values")
_TAIL = 16384  # bytes of the end of a log
_SHOWN = {
    "": "not submitted", "PENDING": "waiting", "RUNNING": "running", "COMPLETED": "passed", "FAILED": "failed",
    "TIMEOUT": "time limit", "DEADLINE": "time limit", "CANCELLED": "cancelled", "NODE_FAIL": "node failed",
    "BOOT_FAIL": "node failed", "OUT_OF_MEMORY": "out of memory", "PREEMPTED": "preempted", "REVOKED": "cancelled",
    GONE: "gone",
}  # fmt: skip


@dataclass(frozen=True)
class Now:
    """Where a test stands.  ``state`` is Slurm's word, GONE, or empty before it is submitted.

    ``early``: it was ended because its golden values were there; ``values``: they are there.
    """

    entry: Entry
    state: str = ""
    reason: str = ""
    code: int | None = None
    restarts: int = 0
    early: bool = False
    values: bool = False

    @property
    def over(self) -> bool:
        """Whether nothing more will come of it."""
        return self.state in OVER or self.state == GONE

    @property
    def failed(self) -> bool:
        """Whether it ended otherwise than well."""
        return self.over and self.state != "COMPLETED"

    @property
    def word(self) -> str:
        """The state as people say it."""
        return _SHOWN.get(self.state, self.state.lower().replace("_", " "))


def submit(
    slurm: Slurm, submissions: Sequence[Submission], tell: Callable[[Submission], object] = lambda _: None, *,
    sleep: Callable[[float], None] = time.sleep, say: Callable[[str], object] = print,
) -> tuple[Submission, ...]:  # fmt: skip
    """Submit what was not submitted yet, and ``tell`` each that was; all arrays as they are then.

    An array that the controller knows by name is taken up: whoever submitted it was interrupted before noting the id.
    Raises Refused where Slurm takes one not, and Unreachable where its controller stays away.
    """
    if all(it.job is not None for it in submissions):
        return tuple(submissions)
    known = polling.patiently(lambda: _names(slurm), sleep, say)
    done = []
    for it in submissions:
        job = it.job if it.job is not None else known.get(it.name)
        if job is None:
            job = _submitted(slurm, it, sleep, say)
            tell(it.with_job(job))
        done.append(it if it.job is not None else slurm_matrix.submitted(it, job))
    return tuple(done)


def _submitted(
    slurm: Slurm, it: Submission, sleep: Callable[[float], None], say: Callable[[str], object]
) -> int:  # fmt: skip
    """The job that an array became.  What got no answer may have been taken all the same, and be listed later."""
    looks = 0

    def once() -> int:
        nonlocal looks
        for _ in range(looks):
            if (job := _names(slurm).get(it.name)) is not None:
                return job
            sleep(polling.PAUSE)
        looks = _LOOKS
        return slurm.submit(it.path)

    return polling.patiently(once, sleep, say)


def taken_up(slurm: Slurm, submissions: Sequence[Submission]) -> tuple[Submission, ...]:
    """The arrays, with its id each that has none and that the queue knows by name; nothing is noted.

    Whoever submitted such an array was interrupted before noting its id.  Raises Unreachable where nobody can tell.
    """
    if all(it.job is not None for it in submissions):
        return tuple(submissions)
    known = _names(slurm)
    return tuple(it.with_job(known[it.name]) if it.job is None and it.name in known else it for it in submissions)


def alive(found: Iterable[Element], entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Those tests of which the queue says that they wait or run."""
    waiting = {(it.array, it.index): Now(it) for it in entries if it.job is not None}
    return tuple(it.entry for it in _match(waiting, found).values() if not it.over)


def _names(slurm: Slurm) -> dict[str, int]:
    return {it.name: it.job for it in slurm.queue()}


class Follower:
    """Knows where each test stood at the last poll.

    ``expected`` are the names of the golden files that each test should leave, by its name; with ``early`` a test is
    ended as soon as all of them are there and whole.  ``notes``: keep how tests ended, which Slurm forgets.
    """

    def __init__(
        self, slurm: Slurm, entries: Iterable[Entry], expected: Mapping[str, Sequence[str]] | None = None,
        *, early: bool = False, notes: bool = True,
    ) -> None:  # fmt: skip
        self._slurm, self._expected, self._early, self._notes = slurm, expected or {}, early, notes
        self._now = {(it.array, it.index): last_seen(it) for it in entries}
        self._missed: Counter[tuple[str, int]] = Counter()
        self._ending: set[tuple[str, int]] = set()
        self._accounts = True  # whether the cluster keeps any, as far as we know

    @property
    def tests(self) -> tuple[Now, ...]:
        """Where each stands."""
        return tuple(self._now.values())

    def poll(self) -> tuple[Now, ...]:
        """Look once.  Raises Unreachable where Slurm's controller is away."""
        for key, now in self._now.items():
            if not now.over:
                self._now[key] = replace(now, values=self._there(now)) if now.state == "RUNNING" else now
                if now.entry.ended is not None:
                    self._now[key] = replace(last_seen(now.entry), values=self._there(now))
        waiting = {key: now for key, now in self._now.items() if not now.over and now.entry.job is not None}
        if waiting:
            self._ask(waiting)
        if self._early:
            self._end_early()
        return self.tests

    def _ask(self, waiting: Mapping[tuple[str, int], Now]) -> None:
        """One query: of the queue, or in turns with it of the accounts, for what the queue had no longer."""
        keys = [key for key in waiting if self._missed[key] % 2] if self._accounts else []
        found: tuple[Element, ...] = ()
        if keys:
            try:
                found = self._slurm.accounts(sorted({waiting[key].entry.job or 0 for key in keys}))
            except CannotTell:
                self._accounts = False
            except Unreachable:
                pass  # the accounts alone are away: the queue is asked next
        else:
            keys = list(waiting)
            found = self._slurm.queue()
        matched = _match({key: waiting[key] for key in keys}, found)
        for key in keys:
            self._missed[key] = 0 if key in matched else self._missed[key] + 1
            if key in matched:
                self._set(key, matched[key])
            elif self._missed[key] >= _MAX_MISSED:
                self._now[key] = replace(self._now[key], state=_said(self._now[key].entry.folder) or GONE, reason="")

    def _set(self, key: tuple[str, int], now: Now) -> None:
        if now.over:
            now = replace(now, values=self._there(now))
            if key in self._ending and now.state == "CANCELLED":
                now = _enough(now)
            self._note(now)
        self._now[key] = now

    def _note(self, now: Now) -> None:
        """Keep how a test ended beside its results, unless its job did so itself."""
        if self._notes and (now.entry.ended is None or now.early):
            told = {name: getattr(now, name) for name in _KEPT}
            atomic_files.write(now.entry.folder / "state.json", json.dumps(told))

    def _there(self, now: Now) -> bool:
        names = self._expected.get(now.entry.test.name, ())
        return bool(names) and all(_whole(now.entry.folder / "assets" / name) for name in names)

    def _end_early(self) -> None:
        enough = {key: now for key, now in self._now.items() if now.state == "RUNNING" and now.values}
        if not enough:
            return
        # First ended, then noted: of what is noted as over nobody would look whether it still runs.
        self._ending |= enough.keys()
        self._slurm.cancel((now.entry.job or 0, now.entry.index) for now in enough.values())
        for key, now in enough.items():
            self._now[key] = _enough(now)
            self._note(self._now[key])


def _enough(now: Now) -> Now:
    """A test that was ended because its golden values were there."""
    return replace(now, state="COMPLETED", reason="", code=None, early=True)


def follow(
    follower: Follower, *, wait: bool = False, sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic, say: Callable[[str], object] = print,
) -> tuple[Now, ...]:  # fmt: skip
    """Where the tests stand; with ``wait`` when all are over, saying each change.

    Raises Unreachable when Slurm's controller stays away.
    """

    def seen(tests: tuple[Now, ...]) -> polling.Seen:
        return polling.Seen(counts(tests), all(it.over or it.entry.job is None for it in tests))

    return polling.follow(
        follower.poll, seen, wait=wait, sleep=sleep, clock=clock, say=say,
        lost="The jobs go on without it. Trying again.",
    )  # fmt: skip


def counts(tests: Iterable[Now]) -> str:
    """``3 passed, 2 running``."""
    return ", ".join(f"{count} {word}" for word, count in sorted(Counter(it.word for it in tests).items())) or "no test"


def _match(waiting: Mapping[tuple[str, int], Now], found: Iterable[Element]) -> dict[tuple[str, int], Now]:
    """The tests that an answer tells of.  Slurm gives a number again in time: the array's name must be the same."""
    alone: dict[tuple[str, int, int], Element] = {}
    rest: dict[tuple[str, int], Element] = {}
    for element in found:
        if element.index is None:
            rest[element.name, element.job] = element
        else:
            alone[element.name, element.job, element.index] = element
    matched = {}
    for key, now in waiting.items():
        name = (now.entry.array, now.entry.job or 0)
        if (it := alone.get((*name, now.entry.index)) or rest.get(name)) is not None:
            state = it.state if it.over or it.state == "PENDING" else "RUNNING"
            matched[key] = replace(now, state=state, reason=it.reason, code=it.code, restarts=it.restarts)
    return matched


def _whole(file: Path) -> bool:
    """Whether a golden file is there to its last byte."""
    try:
        with file.open("rb") as opened:
            return not parse(opened.read(MAX_BYTES + 1)).blank
    except (OSError, BadGolden):
        return False


def _said(folder: Path) -> str:
    """What Slurm itself wrote at the end of a job's log about its end, as a state; empty where it did not."""
    try:
        with (folder / "job.log").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            tail = file.read(_TAIL).rpartition(b"DUE TO JOB REQUEUE")[2]  # what went before was begun anew
    except OSError:
        return ""
    return next((state for state, word in _WORDS if word in tail), "")


def earlier(entry: Entry) -> tuple[str, ...]:
    """How each attempt before the one that counts ended, as sentences: Slurm put the test back into the queue."""
    told = []
    for number, folder in enumerate(entry.earlier, 1):
        said = _said(folder)
        why = f" ({_SHOWN[said]})" if said else ""
        told.append(f"Slurm began {entry.test} anew after attempt {number}{why}, which is not judged: see {folder}")
    return tuple(told)


def last_seen(entry: Entry) -> Now:
    """Where a test stood when it was last looked at, if it was over then; what its job wrote since counts more."""
    ended = entry.ended
    try:
        told = json.loads((entry.folder / "state.json").read_text())
        now = Now(entry, **{name: told[name] for name in _KEPT})
        if now.over and (now.early or ended is None):
            return now
    except (OSError, ValueError, KeyError, TypeError):
        pass
    if ended is None:
        return Now(entry)
    state = (_said(entry.folder) or "FAILED") if ended[1] else "COMPLETED"
    return Now(entry, state, code=ended[1], restarts=len(entry.earlier))
