"""The matrix of tests as it lies in the folder for results: what was planned, submitted, and how each test ended.

``<base>/<round>/matrix.json`` lists a round's arrays, ``<base>/<round>/<array>/job`` holds the id that Slurm gave.
A test belongs to its newest round: running one again makes another round, so nothing is written over.
The list is written before anything is submitted, the id right after: whatever is interrupted can be gone on with.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runbook_lib.errors import CannotTell
from runbook_lib.recipes.workloads import Workload
from runbook_lib.slurm.batch_files import Array
from runbook_lib.system import atomic_files

_LIST = "matrix.json"
_TEXTS = ("recipe", "model", "case", "environment", "platform")
_NUMBERS = ("nodes", "gpus", "time_limit")


@dataclass(frozen=True)
class Entry:
    """A test of a round; ``folder`` holds its results.  ``job`` is None before its array is submitted."""

    test: Workload
    round: int
    array: str
    index: int
    folder: Path
    job: int | None = None

    @property
    def ended(self) -> tuple[int, int] | None:
        """Job id and exit status, as the job itself wrote them down at its end."""
        words = _text(self.folder / "ended").split()
        return (int(words[0]), int(words[1])) if len(words) == 2 and all(it.isdecimal() for it in words) else None

    @property
    def earlier(self) -> tuple[Path, ...]:
        """What the attempts before left that Slurm put back into the queue, a folder each, the oldest first."""
        found = self.folder.parent.glob(f"{self.folder.name}.attempt-*")
        return tuple(sorted(found, key=lambda it: int(re.sub(r"\D", "", it.name.rpartition("-")[2]) or 0)))


@dataclass(frozen=True)
class Submission:
    """An array of a round."""

    name: str
    folder: Path
    entries: tuple[Entry, ...]
    job: int | None = None

    @property
    def path(self) -> str:
        """Its batch file."""
        return str(self.folder / "array.sbatch")

    def with_job(self, job: int) -> "Submission":
        """The same, submitted as that job."""
        return replace(self, job=job, entries=tuple(replace(it, job=job) for it in self.entries))


def read(base: Path) -> tuple[Submission, ...]:
    """All arrays of all rounds, the oldest first; none before the first round.  CannotTell for a damaged list."""
    numbers = sorted(int(it.name) for it in base.glob("[0-9]*") if it.name.isdecimal() and (it / _LIST).is_file())
    return tuple(it for number in numbers for it in _round(base / str(number), number))


def newest(submissions: Iterable[Submission]) -> dict[str, Entry]:
    """The newest entry of each test, by its name."""
    return {entry.test.name: entry for it in submissions for entry in it.entries}


def next_round(base: Path) -> int:
    """The number of the round that is planned next."""
    return (
        max((int(it.parent.name) for it in base.glob(f"[0-9]*/{_LIST}") if it.parent.name.isdecimal()), default=0) + 1
    )


def keep(base: Path, number: int, arrays: Sequence[Array]) -> tuple[Submission, ...]:
    """Write a round's files, its list last.  Raises RunbookError where that cannot be done."""
    for array in arrays:
        for task in array.tasks:
            atomic_files.make_folder(Path(task.folder))
        for path, text in array.files.items():
            atomic_files.write(Path(path), text)
    listed = [{"name": it.name, "tests": [_as_json(task.workload) for task in it.tasks]} for it in arrays]
    atomic_files.write(base / str(number) / _LIST, json.dumps({"arrays": listed}, indent=1), durable=True)
    return tuple(_round(base / str(number), number))


def drop(base: Path, number: int) -> None:
    """Forget a round of which Slurm took nothing; the next takes its number.  One with a job stays."""
    if all(it.job is None for it in _round(base / str(number), number)):
        (base / str(number) / _LIST).unlink(missing_ok=True)


def submitted(it: Submission, job: int) -> Submission:
    """Note the id that Slurm gave to an array."""
    atomic_files.write(it.folder / "job", f"{job}\n", durable=True)
    return it.with_job(job)


def _round(folder: Path, number: int) -> Iterator[Submission]:
    try:
        for listed in json.loads((folder / _LIST).read_text())["arrays"]:
            yield _submission(folder / str(listed["name"]), number, listed["tests"])
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise CannotTell(
            f"{folder / _LIST} cannot be read ({error}). It lists what was submitted: restore it, or give another "
            "folder for results."
        ) from error


def _submission(folder: Path, number: int, tests: Sequence[Mapping[str, Any]]) -> Submission:
    entries = tuple(
        Entry(_from_json(test), number, folder.name, index, folder / str(index)) for index, test in enumerate(tests)
    )
    found = Submission(folder.name, folder, entries)
    job = _job(folder)
    return found if job is None else found.with_job(job)


def _job(folder: Path) -> int | None:
    """The id of an array: as noted after it was submitted, or as an element of it noted when it began."""
    for file in (folder / "job", *sorted(folder.glob("*/started"))):
        if (text := _text(file).strip()).isdecimal():
            return int(text)
    return None


def _text(file: Path) -> str:
    try:
        with file.open(errors="replace") as opened:
            return opened.read(200)
    except OSError:
        return ""


def _as_json(test: Workload) -> dict[str, Any]:
    return {name: getattr(test, name) for name in (*_TEXTS, *_NUMBERS)} | {"tag": test.values.get("tag", "")}


def _from_json(data: Mapping[str, Any]) -> Workload:
    recipe, model, case, environment, platform = (str(data[name]) for name in _TEXTS)
    nodes, gpus, limit = (int(data[name]) for name in _NUMBERS)
    return Workload(recipe, model, case, environment, platform, (), nodes, gpus, limit, "", {"tag": str(data["tag"])})
