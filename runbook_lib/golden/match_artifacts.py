"""Which upload of a CI run belongs to which job, and which of its members are golden values.  Pure.

Names alone do not tell: an artifact of GitHub carries the test case but neither model, platform nor attempt, and the
jobs of one test case have the same name on every platform.  So an upload is laid to the job during which it was
made, and what then fits several jobs is left open: whoever asks must not guess.
Sources: ``.github/actions/action.yml`` and ``tests/test_utils/python_scripts/download_golden_values.py`` of
Megatron-LM.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from runbook_lib.transport.remote_zip import is_safe

TEST_CASES = "tests/functional_tests/test_cases"
State = Literal["passed", "failed", "cancelled", "timed out", "skipped", "unfinished"]

#: GitHub tells whole seconds, and the clocks of its services differ by a little.
_SLACK = timedelta(seconds=5)
_GOLDEN = re.compile(
    r"(?:golden_values|generations)_(?P<environment>dev|lts)(?:_(?P<platform>[a-z0-9]+(?:_[a-z0-9]+)*?))??"
    r"(?P<second>_2nd)?\.json"
)
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+-]*"


@dataclass(frozen=True)
class RanJob:
    """A functional test as a job ran it; ``platform`` and ``environment`` are empty where its name does not tell."""

    id: int
    name: str
    model: str
    test_case: str
    state: State
    started: datetime | None = None
    completed: datetime | None = None
    platform: str = ""
    environment: str = ""


@dataclass(frozen=True)
class Upload:
    """A zip that a job left behind; ``size`` in bytes.  ``job`` is its job's id where the forge tells it."""

    id: int
    name: str
    size: int
    expired: bool
    created: datetime | None = None
    job: int | None = None


@dataclass(frozen=True)
class Pair:
    """An upload with the jobs whose it may be: one, or several that cannot be told apart."""

    upload: Upload
    jobs: tuple[RanJob, ...]


@dataclass(frozen=True)
class Golden:
    """What the name of a golden file says.  ``file`` is its name in the repository."""

    file: str
    environment: str
    platform: str
    second: bool


def golden(name: str) -> Golden | None:
    """Read a file name (no folders); None for anything else.  ``generations…`` stands for ``golden_values…``."""
    found = _GOLDEN.fullmatch(name)
    if found is None:
        return None
    file = re.sub(r"^generations", "golden_values", name)
    return Golden(file, found["environment"], found["platform"] or "", found["second"] is not None)


def named(job_name: str) -> tuple[str, str] | None:
    """Model and test case of a functional job's name on GitHub, ``<model>/<test case> - latest``; None for others.

    The buckets of unit tests are paths below ``tests``.
    """
    found = re.fullmatch(rf"({_NAME})/({_NAME}) - \S.*", job_name)
    return (found[1], found[2]) if found and found[1] != "tests" else None


def is_name(text: str) -> bool:
    """Whether a model or test case from the network may become one part of a path."""
    return re.fullmatch(_NAME, text) is not None


def test_case_of(upload: str, run: int) -> tuple[str, str, bool] | None:
    """Test case as written in an artifact's name, its uuid, and whether it is the second try to upload."""
    found = re.fullmatch(rf"logs-(.+)-{run}-({_UUID})(-retry)?", upload)
    return (found[1], found[2], found[3] is not None) if found else None


def pair(jobs: Sequence[RanJob], uploads: Iterable[Upload], run: int) -> tuple[Pair, ...]:
    """Lay the uploads of a run to its jobs.  Uploads of other jobs, and of earlier attempts, are left out."""
    pairs: list[Pair] = []
    for upload, case in _last_tries(uploads, run):
        fitting = tuple(job for job in jobs if _slug(job.test_case) == case and _during(upload, job))
        if fitting:
            pairs.append(Pair(upload, fitting))
    return _eliminate(pairs)


def golden_members(names: Iterable[str], *, gitlab: bool = False) -> tuple[str, ...]:
    """The members, of those names, that hold the golden values of a job.

    GitHub's lie at the top of the archive.  GitLab's lie under ``results/iteration=<n>/<restart>/assets/basic/<job>``:
    those of the last restart of the last iteration.  Names that are not safe are among them: whoever reads refuses
    them by name rather than have them vanish.
    """
    chosen = [name for name in names if golden(re.split(r"[/\\]", name)[-1])]
    if not gitlab:
        return tuple(name for name in chosen if "/" not in name or not is_safe(name))
    places: dict[tuple[tuple[int, str], ...], list[str]] = defaultdict(list)
    for name in chosen:
        found = re.fullmatch(r"results/iteration=([0-9]{1,9})/([^/]+)/assets/basic/[^/]+/[^/]+", name)
        if found:
            places[_order(found[1]), _order(found[2])].append(name)
        elif not is_safe(name):
            places[()].append(name)
    last = max(places, default=())
    return tuple(places[()] + (places[last] if last else [])) if places else ()


def expected(known: Collection[str], job: RanJob, environment: str, platforms: Collection[str]) -> frozenset[str]:
    """The golden files that the repository holds for a job's test case, on these platforms (none: on any)."""
    folder = f"{TEST_CASES}/{job.model}/{job.test_case}/"
    found = set()
    for path in known:
        file = golden(path.removeprefix(folder)) if path.startswith(folder) else None
        if file and file.environment == environment and (not platforms or file.platform in platforms):
            found.add(path)
    return frozenset(found)


def _last_tries(uploads: Iterable[Upload], run: int) -> list[tuple[Upload, str]]:
    """One upload for each uuid: the second try stands for a first that failed."""
    kept: dict[tuple[str, str], tuple[bool, Upload]] = {}
    for upload in uploads:
        if parts := test_case_of(upload.name, run):
            case, unique, again = parts
            before = kept.get((case, unique))
            if before is None or (again, upload.id) > (before[0], before[1].id):
                kept[case, unique] = again, upload
    return [(upload, case) for (case, _), (_, upload) in kept.items()]


def _during(upload: Upload, job: RanJob) -> bool:
    if upload.created is None or job.started is None or job.completed is None:
        return False
    return job.started - _SLACK <= upload.created <= job.completed + _SLACK


def _eliminate(pairs: list[Pair]) -> tuple[Pair, ...]:
    """Take a job that one upload alone can belong to from the others: each job uploads once."""
    settled: dict[int, int] = {}
    while True:
        alone: dict[int, list[int]] = defaultdict(list)
        for it in pairs:
            if len(it.jobs) == 1 and it.upload.id not in settled:
                alone[it.jobs[0].id].append(it.upload.id)
        # A job with two uploads of its own explains neither: both stay with it, to be told.
        new = {job: ids[0] for job, ids in alone.items() if len(ids) == 1}
        if not new:
            return tuple(pairs)
        settled |= {upload: job for job, upload in new.items()}
        pairs = [
            it if it.upload.id in settled else Pair(it.upload, tuple(j for j in it.jobs if j.id not in new) or it.jobs)
            for it in pairs
        ]


def _slug(test_case: str) -> str:
    return test_case.replace("/", "-").replace("*", "-")


def _order(text: str) -> tuple[int, str]:
    """Numbers in their order, whatever else by its text."""
    digits = re.search(r"[0-9]{1,18}", text)
    return int(digits[0]) if digits else -1, text
