"""The tests of a matrix on the cluster: each array is submitted once, and its tests are followed to their end.

A poll costs at most one query of the scheduler, regardless of the number of tests.  What a job wrote needs none: how
it ended, and what Slurm noted in its log.
"""

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
#: Marks a test that was cancelled before it began: Slurm forgets it at once.
_CANCELLED = "cancelled"
#: Plainer words for states with unclear names.
_WORDS = {
    "": "not submitted", "PENDING": "waiting", "TIMEOUT": "time limit", "DEADLINE": "time limit",
    "NODE_FAIL": "node failed", "BOOT_FAIL": "node failed", "REVOKED": "cancelled",
}  # fmt: skip
Key = tuple[str, int, int]


@dataclass(frozen=True)
class ObservedTest:
    """The state of a test at the last poll: Slurm's word, GONE, or empty before submission.

    ``early``: it was cancelled because its golden values were complete.
    """

    entry: RoundTest
    state: str = ""
    reason: str = ""
    code: int | None = None
    early: bool = False

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
        return "ended early" if self.early else _WORDS.get(self.state, self.state.lower().replace("_", " "))

    @property
    def key(self) -> Key:
        """What Slurm calls it.  Slurm reuses job IDs, so the array's name must match too."""
        return self.entry.array.name, self.entry.job or 0, self.entry.index


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
    listed = _by_key(elements)
    return tuple(it for it in entries if (found := listed.get(ObservedTest(it).key)) and not found.over)


def cancel(slurm: Slurm, entries: Sequence[RoundTest]) -> None:
    """Ask Slurm to end tests, and mark those that had not begun."""
    slurm.cancel((entry.job or 0, entry.index) for entry in entries)
    for entry in entries:
        if not (entry.folder / "started").exists():
            files.write(entry.folder / _CANCELLED, "")


def _jobs_by_name(slurm: Slurm) -> dict[str, int]:
    return {element.name: element.job for element in slurm.queue()}


def _by_key(elements: Iterable[ArrayElement]) -> dict[Key, ArrayElement]:
    return {(element.name, element.job, element.index): element for element in elements}


class Follower:
    """The state of each test at the last poll.

    ``expected`` maps a test's name to the golden files that it should write; with ``early`` a test is cancelled as soon
    as all of them are complete.
    """

    def __init__(
        self, slurm: Slurm, entries: Iterable[RoundTest], expected: Mapping[str, Sequence[str]] | None = None,
        *, early: bool = False,
    ) -> None:  # fmt: skip
        self._slurm, self._expected, self._early = slurm, expected or {}, early
        self.tests = tuple(map(ObservedTest, entries))
        self._missed: Counter[Key] = Counter()

    def poll(self) -> tuple[ObservedTest, ...]:
        """Query once, and return all tests.  Raises Unreachable if Slurm's controller is down."""
        self.tests = tuple(test if test.over else saved_state(test.entry, test.state) for test in self.tests)
        if any(test.pending for test in self.tests):
            listed = _by_key(self._slurm.queue())
            self.tests = tuple(self._updated(test, listed) if test.pending else test for test in self.tests)
        self.tests = tuple(map(self._ended_early, self.tests))
        complete = [test for test in self.tests if test.state == "RUNNING" and self._early and self._has_values(test)]
        if complete:
            self._slurm.cancel(test.key[1:] for test in complete)
        return self.tests

    def _updated(self, test: ObservedTest, listed: Mapping[Key, ArrayElement]) -> ObservedTest:
        if found := listed.get(test.key):
            self._missed[test.key] = 0
            state = found.state if found.over or found.state == "PENDING" else "RUNNING"
            return replace(test, state=state, reason=found.reason, code=found.code)
        self._missed[test.key] += 1
        if self._missed[test.key] < _MAX_MISSED:
            return test
        return replace(test, state=rounds.state_in_log(test.entry.folder) or GONE, reason="")

    def _ended_early(self, test: ObservedTest) -> ObservedTest:
        """Return a test that was cancelled after it had written its golden values as one that succeeded."""
        if test.state != "CANCELLED" or not self._has_values(test):
            return test
        return replace(test, state="COMPLETED", reason="", code=None, early=True)

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


def saved_state(entry: RoundTest, state: str = "") -> ObservedTest:
    """Return the final state of a test as written by its job, or ``state`` before it has ended."""
    if entry.exit_record is None:
        is_cancelled = (entry.folder / _CANCELLED).exists() and not (entry.folder / "started").exists()
        return ObservedTest(entry, "CANCELLED" if is_cancelled else state)
    code = entry.exit_record[1]
    return ObservedTest(entry, rounds.state_in_log(entry.folder) or "FAILED" if code else "COMPLETED", code=code)
