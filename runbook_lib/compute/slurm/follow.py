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

from runbook_lib.compute.slurm import submissions as rounds
from runbook_lib.compute.slurm.client import Slurm
from runbook_lib.compute.slurm.states import OVER, ArrayElement
from runbook_lib.compute.slurm.submissions import RoundTest, Submission
from runbook_lib.golden.values import MAX_BYTES, BadGoldenFile, parse
from runbook_lib.system import files
from runbook_lib.transport import polling

#: Consecutive polls in which a test may be missing from the queue, because new files appear late on shared disks.
_MAX_MISSED = 8
#: Queries of the queue for an array whose submission got no reply, before it is submitted again.
_QUERIES = 3
#: The state of a test if neither Slurm nor its own files show how it ended.
GONE = "GONE"
_SAVED = ("state", "reason", "code", "restarts", "early")
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
    restarts: int = 0
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


def _in_words(state: str) -> str:
    return _WORDS.get(state, state.lower().replace("_", " "))


_Key = tuple[str, int]  # a test's array, and its index there


def submit(
    slurm: Slurm, submissions: Sequence[Submission], *, sleep: Callable[[float], None] = time.sleep,
    say: Callable[[str], object] = print,
) -> tuple[Submission, ...]:  # fmt: skip
    """Submit the arrays that have no job yet; return all arrays with their jobs.

    An array whose name the controller knows is adopted: its submission was interrupted before the ID was written.
    Raises Refused if Slurm rejects one, and Unreachable if its controller stays down.
    """
    result = []
    adopted = polling.patiently(lambda: adopt_jobs(slurm, submissions), sleep, say)
    for submission, known in zip(submissions, adopted, strict=True):
        if submission.job is None:
            known = rounds.write_job(submission, known.job or _submit(slurm, submission, sleep, say))
        result.append(known)
    return tuple(result)


def _submit(
    slurm: Slurm, submission: Submission, sleep: Callable[[float], None], say: Callable[[str], object]
) -> int:  # fmt: skip
    """Submit an array.  After a call without a reply the queue is queried first: Slurm may have accepted the array."""
    queries = 0

    def attempt() -> int:
        nonlocal queries
        for _ in range(queries):
            job = _jobs_by_name(slurm).get(submission.name)
            if job is not None:
                return job
            sleep(polling.PAUSE)
        queries = _QUERIES
        return slurm.submit(submission.path)

    return polling.patiently(attempt, sleep, say)


def adopt_jobs(slurm: Slurm, submissions: Sequence[Submission]) -> tuple[Submission, ...]:
    """Return the arrays, filling in missing IDs from the queue by name.  Writes nothing.

    The submission of such an array was interrupted before the ID was written.  Raises Unreachable if the controller is
    down.
    """
    result = list(submissions)
    if all(submission.job is not None for submission in submissions):
        return tuple(result)
    known = _jobs_by_name(slurm)
    for index, submission in enumerate(submissions):
        if submission.job is None and submission.name in known:
            result[index] = submission.with_job(known[submission.name])
    return tuple(result)


def unfinished(elements: Iterable[ArrayElement], entries: Iterable[RoundTest]) -> tuple[RoundTest, ...]:
    """Return the tests that wait or run according to the queue."""
    tests = {(entry.array, entry.index): ObservedTest(entry) for entry in entries}
    return tuple(test.entry for test in _match(tests, elements).values() if test.pending)


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
        self._tests: dict[_Key, ObservedTest] = {(entry.array, entry.index): saved_state(entry) for entry in entries}
        self._missed: Counter[_Key] = Counter()
        self._cancelled: set[_Key] = set()

    @property
    def tests(self) -> tuple[ObservedTest, ...]:
        """All tests in their state at the last poll."""
        return tuple(self._tests.values())

    def poll(self) -> tuple[ObservedTest, ...]:
        """Query once.  Raises Unreachable if Slurm's controller is down."""
        for key, test in self._tests.items():
            if not test.over and test.entry.exit_record is not None:
                self._tests[key] = saved_state(test.entry)
            elif test.state == "RUNNING":
                self._tests[key] = replace(test, values=self._has_values(test))
        waiting = {key: test for key, test in self._tests.items() if test.pending}
        if waiting:
            self._query(waiting)
        if self._early:
            self._cancel_complete()
        return self.tests

    def _query(self, waiting: Mapping[_Key, ObservedTest]) -> None:
        matched = _match(waiting, self._slurm.queue())
        for key in waiting:
            if key in matched:
                self._missed[key] = 0
                test = matched[key]
                if key in self._cancelled and test.state == "CANCELLED":
                    test = _ended_early(test)
                if test.over:
                    self._save(test)
                self._tests[key] = test
                continue
            self._missed[key] += 1
            if self._missed[key] >= _MAX_MISSED:
                state = rounds.state_in_log(self._tests[key].entry.folder) or GONE
                self._tests[key] = replace(self._tests[key], state=state, reason="")

    def _save(self, test: ObservedTest) -> None:
        """Save how a test ended beside its results, unless its job wrote it itself."""
        if self._notes and (test.entry.exit_record is None or test.early):
            data = {name: getattr(test, name) for name in _SAVED}
            files.write(test.entry.folder / "state.json", json.dumps(data))

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
        complete = {}
        for key, test in self._tests.items():
            if test.state == "RUNNING" and test.values and test.entry.exit_record is None:
                complete[key] = test
        if not complete:
            return
        # Cancel first, then save: a test that is saved as over is never queried again, although it might still run.
        self._cancelled |= complete.keys()
        self._slurm.cancel((test.entry.job or 0, test.entry.index) for test in complete.values())
        for key, test in complete.items():
            self._tests[key] = _ended_early(test)
            self._save(self._tests[key])


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


def _match(tests: Mapping[_Key, ObservedTest], elements: Iterable[ArrayElement]) -> dict[_Key, ObservedTest]:
    """Return the tests listed in a reply, updated.  Slurm reuses job IDs, so the array's name must match too."""
    listed = {(element.name, element.job, element.index): element for element in elements}
    matched = {}
    for key, test in tests.items():
        match = listed.get((test.entry.array, test.entry.job or 0, test.entry.index))
        if match is not None:
            state = match.state if match.over or match.state == "PENDING" else "RUNNING"
            matched[key] = replace(test, state=state, reason=match.reason, code=match.code, restarts=match.restarts)
    return matched


def earlier_attempts(entry: RoundTest) -> tuple[str, ...]:
    """Return how each attempt before the last ended, as sentences: Slurm requeued the test after it."""
    sentences = []
    for number, folder in enumerate(entry.earlier, 1):
        state = rounds.state_in_log(folder)
        reason = f" ({_in_words(state)})" if state else ""
        sentences.append(
            f"Slurm restarted {entry.test} after attempt {number}{reason}. That attempt is not judged: see {folder}"
        )
    return tuple(sentences)


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
    _, code = exit_record
    state = "COMPLETED"
    if code:
        state = rounds.state_in_log(entry.folder) or "FAILED"
    return ObservedTest(entry, state, code=code, restarts=len(entry.earlier))
