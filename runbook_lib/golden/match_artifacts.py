"""Matching of a CI run's uploads with its jobs, and selection of the golden values in an upload.  Pure.

Names alone do not suffice: the name of a GitHub artifact contains the test case but not the model, platform or attempt,
and the jobs of a test case have the same name on every platform.  So an upload is matched with the job during which it
was created, and an upload that fits several jobs stays ambiguous: callers must not guess.
Sources: ``.github/actions/action.yml`` and ``tests/test_utils/python_scripts/download_golden_values.py`` in
Megatron-LM.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from runbook_lib.text.recipes.file_names import FOLDER, GoldenFileName, baseline_of
from runbook_lib.world.github.models import Artifact
from runbook_lib.world.transport.archives import is_safe

TestState = Literal["passed", "failed", "cancelled", "timed out", "skipped", "unfinished"]

#: GitHub's times are in whole seconds, and the clocks of its services differ slightly.
_SLACK = timedelta(seconds=5)
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+-]*"
#: What a performance test measured, in the folder of its job.
RESULTS = "perf_results/results.json"
_GITLAB_MEMBER = re.compile(rf"results/iteration=([0-9]{{1,9}})/([^/]+)/assets/basic/[^/]+/(?:[^/]+|{RESULTS})")


@dataclass(frozen=True)
class FunctionalTestJob:
    """A job that ran a functional test; ``platform`` and ``runner`` are empty if unknown."""

    id: int
    name: str
    model: str
    test_case: str
    state: TestState
    started: datetime | None = None
    completed: datetime | None = None
    platform: str = ""
    runner: str = ""


@dataclass(frozen=True)
class UploadMatch:
    """An upload with the job that created it, or with all candidates."""

    upload: Artifact
    jobs: tuple[FunctionalTestJob, ...]

    @property
    def job_ids(self) -> frozenset[int]:
        return frozenset(job.id for job in self.jobs)


def parse_job_name(name: str) -> tuple[str, str] | None:
    """Parse a functional job's name on GitHub, ``<model>/<test case> - latest``.  Return None for other jobs.

    The buckets of unit tests are paths below ``tests``.
    """
    match = re.fullmatch(rf"({_NAME})/({_NAME}) - \S.*", name)
    if match is None or match[1] == "tests":
        return None
    return match[1], match[2]


def is_path_part(text: str) -> bool:
    """Return True if a model or test case from the network is safe as one path component."""
    return re.fullmatch(_NAME, text) is not None


def match_uploads(jobs: Sequence[FunctionalTestJob], uploads: Iterable[Artifact], run: int) -> tuple[UploadMatch, ...]:
    """Match the uploads of a run with its jobs.  Uploads of other jobs, and of earlier attempts, are left out."""
    by_case: dict[str, list[FunctionalTestJob]] = defaultdict(list)
    for job in jobs:
        by_case[re.sub("[/*]", "-", job.test_case)].append(job)
    matches: list[UploadMatch] = []
    for upload, case in _last_attempts(uploads, run):
        candidates = tuple(job for job in by_case[case] if _during(upload, job))
        if candidates:
            matches.append(UploadMatch(upload, candidates))
    return _eliminate(matches)


def golden_members(names: Iterable[str], *, gitlab: bool = False) -> tuple[str, ...]:
    """Return the members of an archive that contain the golden values of a job.

    On GitHub they are at the top of the archive.  On GitLab they are below
    ``results/iteration=<n>/<restart>/assets/basic/<job>``, for the last restart of the last iteration, with the results
    of a performance test.  Unsafe names are included, so that the reader reports them instead of dropping them.
    """
    members = []
    for name in names:
        if GoldenFileName.of_artifact(re.split(r"[/\\]", name)[-1]) or (gitlab and name.endswith(f"/{RESULTS}")):
            members.append(name)
    if not gitlab:
        return tuple(name for name in members if "/" not in name or not is_safe(name))
    unsafe: list[str] = []
    restarts: dict[tuple[tuple[int, str], ...], list[str]] = defaultdict(list)
    for name in members:
        match = _GITLAB_MEMBER.fullmatch(name)
        if match:
            restarts[_numeric(match[1]), _numeric(match[2])].append(name)
        elif not is_safe(name):
            unsafe.append(name)
    last = restarts[max(restarts)] if restarts else []
    return (*unsafe, *last)


def expected_files(
    known: Collection[str], job: FunctionalTestJob, environment: str, platforms: Collection[str]
) -> frozenset[str]:
    """Return the repository's golden files for a job's test case on these platforms, or without any, on all."""
    folder = f"{FOLDER}/{job.model}/{job.test_case}/"
    files = {baseline_of(job.model, job.test_case)}.intersection(known)
    for path in known:
        if path.startswith(folder):
            name = GoldenFileName.parse(path.removeprefix(folder))
            if name and name.environment == environment and (not platforms or name.platform in platforms):
                files.add(path)
    return frozenset(files)


def _last_attempts(uploads: Iterable[Artifact], run: int) -> list[tuple[Artifact, str]]:
    """Return one upload per UUID, with its test case: a second attempt replaces a failed first one."""
    newest: dict[str, tuple[bool, int, Artifact, str]] = {}
    for upload in uploads:
        if match := re.fullmatch(rf"logs-(.+)-{run}-({_UUID})(-retry)?", upload.name):
            attempt = (match[3] is not None, upload.id, upload, match[1])
            newest[match[2]] = max(attempt, newest.get(match[2], attempt), key=lambda attempt: attempt[:2])
    return [attempt[2:] for attempt in newest.values()]


def _during(upload: Artifact, job: FunctionalTestJob) -> bool:
    if upload.created is None or job.started is None or job.completed is None:
        return False
    return job.started - _SLACK <= upload.created <= job.completed + _SLACK


def _eliminate(matches: list[UploadMatch]) -> tuple[UploadMatch, ...]:
    """Remove a job from all uploads except the one that can belong only to it: each job uploads once."""
    settled: set[frozenset[int]] = set()
    while True:
        counts = Counter(match.job_ids for match in matches if len(match.jobs) == 1)
        # A job with two such uploads stays with both, and both are reported.
        new = {job for job, count in counts.items() if count == 1} - settled
        if not new:
            return tuple(matches)
        settled |= new
        for index, match in enumerate(matches):
            if others := tuple(job for job in match.jobs if frozenset({job.id}) not in new):
                matches[index] = UploadMatch(match.upload, others)


def _numeric(text: str) -> tuple[int, str]:
    """Return a sort key by the first number in a text, then by the text."""
    digits = re.search(r"[0-9]{1,18}", text)
    return int(digits[0]) if digits else -1, text
