"""The matrix of tests in the results folder: what was planned, its job IDs, and how each test ended.

``<base>/<round>/matrix.json`` lists a round's arrays, ``<base>/<round>/<array>/job`` has the ID assigned by Slurm.  A
test belongs to its newest round: running it again creates another round, so nothing is overwritten.  The list is
written before anything is submitted and the ID right afterwards, so an interrupted submission can be continued.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from runbook_lib.compute.slurm.batch_files import JobArray
from runbook_lib.errors import CannotTell
from runbook_lib.recipes.workloads import Workload
from runbook_lib.system import files

_LIST = "matrix.json"
#: Messages that Slurm writes to a job's log when it ends the job, the most reliable first.
_LOG_SIGNS = (
    ("TIMEOUT", b"DUE TO TIME LIMIT"), ("PREEMPTED", b"DUE TO PREEMPTION"), ("NODE_FAIL", b"DUE TO NODE FAILURE"),
    ("NODE_FAIL", b"Node failure on"), ("NODE_FAIL", b"srun: error: Task launch for"),
    ("OUT_OF_MEMORY", b"oom_kill"), ("OUT_OF_MEMORY", b"oom-kill"), ("CANCELLED", b" CANCELLED AT "),
)  # fmt: skip
_LOG_TAIL = 16384  # bytes


@dataclass(frozen=True)
class Submission:
    """An array of a round, in its folder.  ``job`` is None before it is submitted."""

    name: str
    folder: Path
    round: int
    tests: tuple[Workload, ...]
    job: int | None = None

    @property
    def path(self) -> str:
        """Its batch file."""
        return str(self.folder / "array.sbatch")

    @property
    def entries(self) -> "tuple[RoundTest, ...]":
        """Its tests, each with its place in the array."""
        return tuple(RoundTest(test, self, index) for index, test in enumerate(self.tests))


@dataclass(frozen=True)
class RoundTest:
    """A test of a round, as an element of its array."""

    test: Workload
    array: Submission
    index: int

    @property
    def job(self) -> int | None:
        """The ID of the array, None before it is submitted."""
        return self.array.job

    @property
    def folder(self) -> Path:
        """The folder with its results."""
        return self.array.folder / str(self.index)

    @property
    def exit_record(self) -> tuple[int, int] | None:
        """Job ID and exit status, written by the job itself at its end."""
        words = _text(self.folder / "ended").split()
        if len(words) != 2 or not "".join(words).isdecimal():
            return None
        return int(words[0]), int(words[1])


def read(base: Path) -> tuple[Submission, ...]:
    """Return all arrays of all rounds, the oldest first.  Raises CannotTell for a damaged list."""
    submissions: list[Submission] = []
    for number in _rounds(base):
        submissions += _round(base / str(number), number)
    return tuple(submissions)


def newest(submissions: Iterable[Submission]) -> dict[str, RoundTest]:
    """Return the newest entry of each test, by the test's name."""
    return {entry.test.name: entry for submission in submissions for entry in submission.entries}


def next_round(base: Path) -> int:
    """Return the number of the round that is planned next."""
    return max(_rounds(base), default=0) + 1


def write_round(base: Path, number: int, arrays: Sequence[JobArray]) -> tuple[Submission, ...]:
    """Write a round's files, its list last.  Raises RunbookError if that fails."""
    listed = []
    for array in arrays:
        for path, text in array.files.items():
            files.make_folder(Path(path).parent)
            files.write(Path(path), text)
        listed.append({"name": array.name, "tests": [asdict(task.workload) for task in array.tasks]})
    files.write(base / str(number) / _LIST, json.dumps({"arrays": listed}, indent=1))
    return tuple(_round(base / str(number), number))


def discard_round(base: Path, number: int) -> None:
    """Remove a round without a job, so that the next gets its number.  A round with a job stays."""
    if all(submission.job is None for submission in _round(base / str(number), number)):
        (base / str(number) / _LIST).unlink(missing_ok=True)


def write_job(submission: Submission, job: int) -> Submission:
    """Write the ID that Slurm assigned to an array; return the updated array."""
    files.write(submission.folder / "job", f"{job}\n")
    return replace(submission, job=job)


def log_tail(path: Path, size: int = _LOG_TAIL) -> bytes:
    """Return the last bytes of a log; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read(size)
    except OSError:
        return b""


def state_in_log(folder: Path) -> str:
    """Return the state that Slurm wrote at the end of a job's log; empty if there is none."""
    tail = log_tail(folder / "job.log")
    return next((state for state, sign in _LOG_SIGNS if sign in tail), "")


def _rounds(base: Path) -> list[int]:
    names = [path.parent.name for path in base.glob(f"[0-9]*/{_LIST}")]
    return sorted(map(int, filter(str.isdecimal, names)))


def _round(folder: Path, number: int) -> Iterator[Submission]:
    try:
        for listed in json.loads((folder / _LIST).read_text())["arrays"]:
            array = folder / str(listed["name"])
            tests = tuple(Workload(**{**data, "scopes": tuple(data["scopes"])}) for data in listed["tests"])
            yield Submission(array.name, array, number, tests, _job(array))
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise CannotTell(
            f"{folder / _LIST} cannot be read ({error}). It lists the submitted tests: restore it, or choose another "
            "folder for results."
        ) from error


def _job(folder: Path) -> int | None:
    """Return the ID of an array, written after its submission or by one of its elements at the start."""
    texts = (_text(file).strip() for file in (folder / "job", *sorted(folder.glob("*/started"))))
    return next((int(text) for text in texts if text.isdecimal()), None)


def _text(path: Path) -> str:
    try:
        with path.open(errors="replace") as file:
            return file.read(200)
    except OSError:
        return ""
