"""The golden files that the jobs of a CI run uploaded, with a problem for each unavailable one.

Nothing is guessed or dropped: each requested file is in ``files``, or the reason is in ``problems``.  Names alone do
not suffice: the name of a GitHub artifact contains the test case but not the model, platform or attempt, and the jobs
of a test case have the same name on every platform.  So an upload is matched with the job during which it was created,
and an upload that fits several jobs stays ambiguous: callers must not guess.
Sources: ``.github/actions/action.yml`` and ``tests/test_utils/python_scripts/download_golden_values.py`` in
Megatron-LM.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Literal

from runbook_lib.errors import RunbookError
from runbook_lib.pins.bump import ImageType
from runbook_lib.text.recipes.file_names import FOLDER, GoldenFileName, baseline_of
from runbook_lib.world.github.models import Artifact
from runbook_lib.world.ports import SecondCi
from runbook_lib.world.transport.archives import Archive, FileInParts, Member, is_safe
from runbook_lib.world.transport.parser import Parser, ProgressReport, SharedFile

TestState = Literal["passed", "failed", "cancelled", "timed out", "skipped", "unfinished"]

#: GitHub's times are in whole seconds, and the clocks of its services differ slightly.
_SLACK = timedelta(seconds=5)
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
#: What a performance test measured, in the folder of its job.
RESULTS = "perf_results/results.json"
_GITLAB_MEMBER = re.compile(rf"results/iteration=([0-9]{{1,9}})/([^/]+)/assets/basic/[^/]+/(?:[^/]+|{RESULTS})")
_MAX_NAME = 200


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


@dataclass(frozen=True)
class CollectedFile:
    """A golden file written by a job; ``path`` is its path in the repository, ``bytes`` its content, unchanged.

    ``runner`` is empty if unknown.  ``platform``: the content is only what a performance test measured on this
    platform, such as ``gb200``; empty for a golden file.
    """

    path: str
    job: str
    artifact: str
    bytes: bytes = field(repr=False)
    runner: str = ""
    platform: str = ""


@dataclass(frozen=True)
class CollectionProblem:
    """A requested file, artifact or job without values; ``artifact`` and ``file`` are empty if not applicable.

    ``by_job``: the job ended before it wrote values, so none were lost.  ``retryable``: the values exist but could not
    be read; another attempt may succeed.
    """

    job: str
    sentence: str
    artifact: str = ""
    file: str = ""
    by_job: bool = False
    retryable: bool = False


@dataclass(frozen=True)
class GoldenCollection:
    """Collected golden files, and a problem for each unavailable file."""

    files: tuple[CollectedFile, ...]
    problems: tuple[CollectionProblem, ...]


@dataclass(frozen=True)
class GoldenSource:
    """A finished run: its functional jobs, their uploads, and where to read the files of each upload.

    ``second_ci``: where it ran; None for a run of the forge.  ``unusable`` is the reason why none of its values may be
    used, if any.  ``failed`` are the names of all jobs of a run of the forge that failed, unit tests too.
    """

    name: str
    jobs: tuple[FunctionalTestJob, ...]
    matches: tuple[UploadMatch, ...]
    download: Callable[[Artifact], FileInParts] = field(repr=False)
    environment: ImageType = "dev"
    second_ci: SecondCi | None = field(default=None, repr=False)
    unusable: str = ""
    problems: tuple[CollectionProblem, ...] = ()
    failed: tuple[str, ...] = ()

    @property
    def gitlab(self) -> bool:
        """True for a pipeline of the second CI."""
        return self.second_ci is not None


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


def _expected(
    source: GoldenSource, job: FunctionalTestJob, known: AbstractSet[str], platforms: AbstractSet[str] = frozenset()
) -> set[str]:
    """Return the golden files of a job's test, on these platforms or without any on all; some have none by design."""
    folder = f"{FOLDER}/{job.model}/{job.test_case}/"
    files = {baseline_of(job.model, job.test_case)} & known
    for path in known:
        name = GoldenFileName.parse(path.removeprefix(folder))
        if name and name.environment == source.environment and (not platforms or name.platform in platforms):
            files.add(path)
    return files


def _last_attempts(uploads: Iterable[Artifact], run: int) -> Iterable[tuple[Artifact, str]]:
    """Return one upload per UUID, with its test case: a second attempt replaces a failed first one."""
    newest: dict[str, tuple[Artifact, str]] = {}
    for upload in sorted(uploads, key=lambda upload: (upload.name.endswith("-retry"), upload.id)):
        if match := re.fullmatch(rf"logs-(.+)-{run}-({_UUID})(?:-retry)?", upload.name):
            newest[match[2]] = upload, match[1]
    return newest.values()


def _during(upload: Artifact, job: FunctionalTestJob) -> bool:
    if upload.created is None or job.started is None or job.completed is None:
        return False
    return job.started - _SLACK <= upload.created <= job.completed + _SLACK


def _eliminate(matches: list[UploadMatch]) -> tuple[UploadMatch, ...]:
    """Remove a job from all uploads except the one that can belong only to it: each job uploads once."""
    while True:
        counts = Counter(match.jobs for match in matches if len(match.jobs) == 1)
        # A job with two such uploads stays with both, and both are reported.
        settled = {job for (job,), count in counts.items() if count == 1}
        narrowed = []
        for match in matches:
            others = tuple(job for job in match.jobs if job not in settled)
            narrowed.append(UploadMatch(match.upload, others or match.jobs))
        if narrowed == matches:
            return tuple(matches)
        matches = narrowed


def _numeric(text: str) -> tuple[int, str]:
    """Return a sort key by the first number in a text, then by the text."""
    digits = re.search(r"[0-9]{1,18}", text)
    return int(digits[0]) if digits else -1, text


def collect(
    source: GoldenSource, known: AbstractSet[str], *, progress: ProgressReport | None = None
) -> GoldenCollection:
    """Read the golden files of the jobs that failed.

    ``known`` are the paths of the repository's golden files: they show which jobs upload none by design, and which
    files of a job are missing.  Values of jobs that did not finish are never used.
    """
    problems = list(source.problems)
    if source.unusable:
        return GoldenCollection((), (*problems, CollectionProblem(source.name, source.unusable)))
    for job in source.jobs:
        if job.state not in ("passed", "failed"):
            states = {"unfinished": "has not ended", "timed out": "reached its time limit"}
            sentence = f"The job {states.get(job.state, f'was {job.state}')}: its golden values are not used."
            problems.append(CollectionProblem(job.name, sentence, by_job=True))
    matches = [match for match in source.matches if any(job.state == "failed" for job in match.jobs)]
    answers = _read(source, [match for match in matches if not match.upload.expired], progress)
    uses: list[tuple[UploadMatch, list[CollectedFile]]] = []
    for match in matches:
        answer, files = answers.get(match.upload.id), list[CollectedFile]()
        if isinstance(answer, tuple):
            match = _of_platform(match, answer)
        if all(job.state == "passed" for job in match.jobs):
            continue
        tests = {(job.model, job.test_case, job.state) for job in match.jobs}
        if isinstance(answer, tuple) and len(tests) == 1 and match.jobs[0].state == "failed":
            files, found = _use(source, match, answer, known)
            problems += found
        elif any(_expected(source, job, known) for job in match.jobs):  # some tests have no golden file by design
            problems.append(_unread(match, answer))
        uses.append((match, files))
    conflicts = _conflicts(uses)
    collected: list[CollectedFile] = []
    for match, files in uses:
        conflict = conflicts.get(match.upload.id)
        if files and conflict:
            problems.append(_problem(match, conflict))
        else:
            collected += files
    problems += _without_upload(source, known)
    return GoldenCollection(tuple(sorted(collected, key=lambda file: file.path)), tuple(problems))


def _read(
    source: GoldenSource, matches: Sequence[UploadMatch], progress: ProgressReport | None
) -> dict[int, tuple[Member, ...] | RunbookError]:
    """Return the golden members of each upload by its ID, or why they cannot be read."""
    parser = Parser(partial(_read_members, gitlab=source.gitlab))
    asked = [(parser.share(source.download(match.upload)), match.upload.size) for match in matches]
    answers = parser.each(asked, [match.jobs[0].name for match in matches], progress)
    return {match.upload.id: answer for match, answer in zip(matches, answers, strict=True)}


def _read_members(upload: tuple[SharedFile, int], gitlab: bool) -> tuple[Member, ...]:
    file, size = upload
    return tuple(Archive(file, size).read(partial(golden_members, gitlab=gitlab)))


def _of_platform(match: UploadMatch, members: Iterable[Member]) -> UploadMatch:
    """Return an upload with the jobs that ran on the platform of its golden files, if there are any."""
    names = (_golden_name(member) for member in members if not member.problem)
    platforms = {"", *(name.platform for name in names if name)}
    return UploadMatch(match.upload, tuple(job for job in match.jobs if job.platform in platforms) or match.jobs)


def _golden_name(member: Member) -> GoldenFileName | None:
    return GoldenFileName.of_artifact(re.split(r"[/\\]", member.name)[-1])


def _unread(match: UploadMatch, answer: tuple[Member, ...] | RunbookError | None) -> CollectionProblem:
    """Return why nothing of an upload is used."""
    if answer is None:
        return _problem(match, "The artifact has expired. Run the test again.")
    if isinstance(answer, RunbookError):
        return replace(_problem(match, f"Its golden files are unavailable. {answer}"), retryable=True)
    names = [f"{job.name} ({', '.join(filter(None, (job.state, job.platform)))})" for job in match.jobs]
    return _problem(match, f"Several jobs may have created the artifact, so it is not used: {', '.join(names)}.")


def _use(
    source: GoldenSource, match: UploadMatch, members: Iterable[Member], known: AbstractSet[str]
) -> tuple[list[CollectedFile], list[CollectionProblem]]:
    """Return the members that are golden files of the test, and a problem for each other or missing one."""
    job = match.jobs[0]
    files, problems = list[CollectedFile](), list[CollectionProblem]()
    platforms = {job.platform} - {""}
    make = partial(CollectedFile, job=job.name, artifact=match.upload.name, runner=job.runner)
    for member in members:
        name = _golden_name(member)
        if not member.problem and member.name.endswith(RESULTS) and job.platform:
            path = baseline_of(job.model, job.test_case)
            files.append(make(path, bytes=member.data, platform=job.platform.removeprefix("dgx_")))
        elif member.problem or name is None:
            sentence = f"A golden file was left out: {member.problem or 'its platform is unknown'}."
            problems.append(_problem(match, sentence, _printable(member.name)))
        elif name.environment != source.environment:
            sentence = f"It contains values for the {name.environment} image, not for {source.environment}."
            problems.append(_problem(match, sentence, name.file))
        elif job.platform and name.platform not in ("", job.platform):
            problems.append(_problem(match, f"The job ran on {job.platform}, not on {name.platform}.", name.file))
        else:
            platforms |= {name.platform} - {""}
            files.append(make(f"{FOLDER}/{job.model}/{job.test_case}/{name.file}", bytes=member.data))
    expected = _expected(source, job, known, platforms)
    if expected and not (files or problems):
        sentence = "The artifact contains no golden file: the test ended before it wrote one."
        return files, [replace(_problem(match, sentence), by_job=True)]
    found = {path.rpartition("/")[2] for path in (*(file.path for file in files), *(it.file for it in problems))}
    missing = sorted(path for path in expected if path.rpartition("/")[2] not in found)
    return files, problems + [_problem(match, "This file is missing from the artifact.", path) for path in missing]


def _conflicts(uses: Iterable[tuple[UploadMatch, list[CollectedFile]]]) -> dict[int, str]:
    """Return the uploads that may not be used because another claims the same job, or another member the same file."""
    claims: dict[str, list[int]] = defaultdict(list)
    for match, files in uses:
        if len(match.jobs) == 1:
            claims[f"artifacts were created during the job {match.jobs[0].id}"].append(match.upload.id)
        for file in files:
            claims[f"members of artifacts are {file.path} {file.platform}".rstrip()].append(match.upload.id)
    conflicts: dict[int, str] = {}
    for claim, uploads in claims.items():
        if len(uploads) > 1:
            conflicts |= dict.fromkeys(uploads, f"{len(uploads)} {claim}, so none of them is used.")
    return conflicts


def _without_upload(source: GoldenSource, known: AbstractSet[str]) -> Iterator[CollectionProblem]:
    """Yield a problem for each failed job in a set of jobs with fewer uploads than jobs."""
    groups = Counter(match.jobs for match in source.matches)
    for job in source.jobs:
        own = [group for group in groups if job in group]
        is_short = not own or any(groups[group] < len(group) for group in own)
        if job.state == "failed" and is_short and _expected(source, job, known):
            of_jobs = f"; {max(map(len, own))} of this name ran at the same time" if own else ""
            yield CollectionProblem(job.name, f"The job uploaded no artifact{of_jobs}.")


def _problem(match: UploadMatch, sentence: str, file: str = "") -> CollectionProblem:
    names = sorted({job.name for job in match.jobs})
    return CollectionProblem(" or ".join(names), sentence, _printable(match.upload.name), file)


def _printable(name: str) -> str:
    """Return a name from the network on one line, shortened."""
    return "".join(char if char.isprintable() else "?" for char in name[:_MAX_NAME])
