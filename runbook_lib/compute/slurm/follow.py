"""The tests of a matrix on the cluster: each array is submitted once, and its tests are followed to their end.

A poll costs at most one query of the scheduler, regardless of the number of tests.  Files written by a job need no
query.  If a test could not write how it ended (a time limit, a lost node), that is saved beside its results, because a
controller forgets.
"""

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from runbook_lib.compute.slurm import rounds
from runbook_lib.compute.slurm.client import OVER, ArrayElement, Slurm
from runbook_lib.compute.slurm.rounds import RoundTest, Submission
from runbook_lib.golden.values import MAX_BYTES, BadGoldenFile, parse
from runbook_lib.system import files
from runbook_lib.transport import polling

#: Consecutive polls in which a test may be missing from the queue, because new files appear late on shared disks.
_MAX_MISSED = 8
#: Queries of the queue for an array whose submission got no reply, before it is submitted again.
_QUERIES = 3
#: The state of a test if neither Slurm nor its own files show how it ended.
GONE = "GONE"
_SAVED = ("state", "reason", "code", "early")
#: Plainer words for states with unclear names.
_WORDS = {
    "": "not submitted", "PENDING": "waiting", "TIMEOUT": "time limit", "DEADLINE": "time limit",
    "NODE_FAIL": "node failed", "BOOT_FAIL": "node failed", "REVOKED": "cancelled",
}  # fmt: skip


@dataclass(frozen=True)
class ObservedTest:
    """The state of a test at the last poll: Slurm's word, GONE, or empty before submission.

    ``values``: its golden values are complete; ``early``: it was cancelled because of that.
    """

    entry: RoundTest
    state: str = ""
    reason: str = ""
    code: int | None = None
    early: bool = False
    values: bool = False

    @property
    def over(self) -> bool:
        """True if the state no longer changes."""
        return self.state in OVER or self.state == GONE

    @property
    def pending(self) -> bool:
        """True if it was submitted and is not over."""
        return self.entry.job is not None and not self.over

    @property
    def word(self) -> str:
        """The state in plain words."""
        return "ended early" if self.early else _in_words(self.state)

    @property
    def key(self) -> tuple[str, int, int]:
        """What Slurm calls it.  Slurm reuses job IDs, so the array's name must match too."""
        return self.entry.array.name, self.entry.job or 0, self.entry.index


def _in_words(state: str) -> str:
    return _WORDS.get(state, state.lower().replace("_", " "))


def submit(
    slurm: Slurm, array: Submission, *, sleep: Callable[[float], None] = time.sleep,
    say: Callable[[str], object] = print,
) -> Submission:  # fmt: skip
    """Submit an array that has no job yet, and return it with its job.

    The queue is queried for its name first: an earlier submission may have been interrupted before the ID was written,
    and after a call without a reply Slurm may have accepted the array.  Raises Refused if Slurm rejects it, and
    Unreachable if its controller stays down.
    """
    queries = 1

    def attempt() -> int:
        nonlocal queries
        for number in range(queries):
            if number:
                sleep(polling.PAUSE)
            job = _jobs_by_name(slurm).get(array.name)
            if job is not None:
                return job
        queries = _QUERIES
        return slurm.submit(array.path)

    return rounds.write_job(array, array.job or polling.patiently(attempt, sleep, say))


def adopt_jobs(slurm: Slurm, submissions: Sequence[Submission]) -> tuple[Submission, ...]:
    """Return the arrays, filling in missing IDs from the queue by name.  Writes nothing.

    The submission of such an array was interrupted before the ID was written.  Raises Unreachable if the controller is
    down.
    """
    if all(submission.job is not None for submission in submissions):
        return tuple(submissions)
    known = _jobs_by_name(slurm)
    return tuple(replace(array, job=array.job or known.get(array.name)) for array in submissions)


def unfinished(elements: Iterable[ArrayElement], entries: Iterable[RoundTest]) -> tuple[RoundTest, ...]:
    """Return the tests that wait or run according to the queue."""
    matched = _match([ObservedTest(entry) for entry in entries], elements)
    return tuple(test.entry for test in matched.values() if test.pending)


def cancel(slurm: Slurm, entries: Sequence[RoundTest]) -> None:
    """Ask Slurm to end tests.  It forgets at once those that had not begun, so their end is saved here."""
    slurm.cancel((entry.job or 0, entry.index) for entry in entries)
    listed = {(element.name, element.job, element.index) for element in slurm.queue()}
    for test in map(ObservedTest, entries):
        if test.key not in listed and not (test.entry.folder / "started").exists():
            _save(replace(test, state="CANCELLED"))


def _save(test: ObservedTest) -> None:
    """Save how a test ended beside its results."""
    files.write(test.entry.folder / "state.json", json.dumps({name: getattr(test, name) for name in _SAVED}))


def _jobs_by_name(slurm: Slurm) -> dict[str, int]:
    return {element.name: element.job for element in slurm.queue()}


class Follower:
    """The state of each test at the last poll.

    ``expected`` maps a test's name to the golden files that it should write; with ``early`` a test is cancelled as soon
    as all of them are complete.  ``notes``: save the results of tests, which Slurm forgets.
    """

    def __init__(
        self, slurm: Slurm, entries: Iterable[RoundTest], expected: Mapping[str, Sequence[str]] | None = None,
        *, early: bool = False, notes: bool = True,
    ) -> None:  # fmt: skip
        self._slurm, self._expected, self._early, self._notes = slurm, expected or {}, early, notes
        self.tests = tuple(saved_state(entry) for entry in entries)
        self._missed: Counter[tuple[str, int, int]] = Counter()
        self._cancelled: set[tuple[str, int, int]] = set()

    def poll(self) -> tuple[ObservedTest, ...]:
        """Query once, and return all tests.  Raises Unreachable if Slurm's controller is down."""
        self.tests = tuple(map(self._read_files, self.tests))
        waiting = [test for test in self.tests if test.pending]
        if waiting:
            matched = _match(waiting, self._slurm.queue())
            self.tests = tuple(self._updated(test, matched) if test.pending else test for test in self.tests)
        if self._early:
            self._cancel_complete()
        return self.tests

    def _read_files(self, test: ObservedTest) -> ObservedTest:
        if not test.over and test.entry.exit_record is not None:
            return saved_state(test.entry)
        return replace(test, values=self._has_values(test)) if test.state == "RUNNING" else test

    def _updated(self, test: ObservedTest, matched: Mapping[tuple[str, int, int], ObservedTest]) -> ObservedTest:
        if test.key in matched:
            self._missed[test.key] = 0
            test = matched[test.key]
            if test.key in self._cancelled and test.state == "CANCELLED":
                test = _ended_early(test)
            if test.over:
                self._save(test)
            return test
        self._missed[test.key] += 1
        if self._missed[test.key] < _MAX_MISSED:
            return test
        return replace(test, state=rounds.state_in_log(test.entry.folder) or GONE, reason="")

    def _save(self, test: ObservedTest) -> None:
        """Save how a test ended, unless its job wrote it itself."""
        if self._notes and (test.entry.exit_record is None or test.early):
            _save(test)

    def _has_values(self, test: ObservedTest) -> bool:
        """Return True if all golden files that a test should write are written to their last byte."""
        names = self._expected.get(test.entry.test.name, ())
        try:
            for name in names:
                with (test.entry.folder / "assets" / name).open("rb") as file:
                    if parse(file.read(MAX_BYTES + 1)).blank:
                        return False
        except (OSError, BadGoldenFile):
            return False
        return bool(names)

    def _cancel_complete(self) -> None:
        complete = []
        for test in self.tests:
            if test.state == "RUNNING" and test.values and test.entry.exit_record is None:
                complete.append(test)
        if not complete:
            return
        # Cancel first, then save: a test that is saved as over is never queried again, although it might still run.
        self._cancelled.update(test.key for test in complete)
        self._slurm.cancel(test.key[1:] for test in complete)
        for test in complete:
            self._save(_ended_early(test))
        self.tests = tuple(_ended_early(test) if test in complete else test for test in self.tests)


def _ended_early(test: ObservedTest) -> ObservedTest:
    """Return the test marked as cancelled because its golden values were complete."""
    return replace(test, state="COMPLETED", reason="", code=None, early=True)


def follow(
    follower: Follower, *, wait: bool = False, sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic, say: Callable[[str], object] = print,
) -> tuple[ObservedTest, ...]:  # fmt: skip
    """Return the tests in their current state, or with ``wait`` their final state; ``say`` receives each change.

    Raises Unreachable if Slurm's controller stays down.
    """
    return polling.follow(
        follower.poll,
        lambda tests: polling.Observation(counts(tests), over=not any(test.pending for test in tests)),
        wait=wait, sleep=sleep, clock=clock, say=say, unreachable="The jobs continue meanwhile. Trying again.",
    )  # fmt: skip


def counts(tests: Iterable[ObservedTest]) -> str:
    """Return for example ``3 passed, 2 running``."""
    words = [test.word for test in tests]
    return ", ".join(f"{words.count(word)} {word}" for word in sorted(set(words))) or "no test"


def _match(tests: Iterable[ObservedTest], elements: Iterable[ArrayElement]) -> dict[tuple[str, int, int], ObservedTest]:
    """Return the tests listed in a reply, updated."""
    listed = {(element.name, element.job, element.index): element for element in elements}
    matched = {}
    for test in tests:
        if match := listed.get(test.key):
            state = match.state if match.over or match.state == "PENDING" else "RUNNING"
            matched[test.key] = replace(
                test, state=state, reason=match.reason, code=match.code
            )  # fmt: skip
    return matched


def saved_state(entry: RoundTest) -> ObservedTest:
    """Return the final state of a test, as saved or as written by its job, or the state before submission."""
    exit_record = entry.exit_record
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        data = json.loads((entry.folder / "state.json").read_text())
        test = ObservedTest(entry, **{name: data[name] for name in _SAVED})
        if test.over and (test.early or exit_record is None):
            return test
    if exit_record is None:
        return ObservedTest(entry)
    code = exit_record[1]
    state = rounds.state_in_log(entry.folder) or "FAILED" if code else "COMPLETED"
    return ObservedTest(entry, state, code=code)
