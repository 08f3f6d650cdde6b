"""Collection of the golden files uploaded by the jobs of a CI run, with a problem for each unavailable file.

Nothing is guessed or dropped: each requested file is in ``files``, or the reason is in ``problems``.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial

from runbook_lib.errors import RunbookError
from runbook_lib.golden import match_artifacts
from runbook_lib.golden.match_artifacts import FunctionalTestJob, UploadMatch
from runbook_lib.pins.bump import ImageType
from runbook_lib.text.recipes.file_names import FOLDER, GoldenFileName, baseline_of
from runbook_lib.world.github.models import Artifact
from runbook_lib.world.ports import SecondCi
from runbook_lib.world.transport.archives import Archive, Member
from runbook_lib.world.transport.downloads import FileInParts
from runbook_lib.world.transport.parser import Parser, ProgressReport, SharedFile

_MAX_NAME = 200


@dataclass(frozen=True)
class CollectedFile:
    """A golden file written by a job; ``path`` is its path in the repository, ``bytes`` its content, unchanged.

    ``failed``: the job that wrote it failed.  ``runner`` is empty if unknown.  ``platform``: the content is only what a
    performance test measured on this platform, such as ``gb200``; empty for a golden file.
    """

    path: str
    job: str
    artifact: str
    bytes: bytes = field(repr=False)
    failed: bool = True
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
    used, if any.
    """

    name: str
    jobs: tuple[FunctionalTestJob, ...]
    matches: tuple[UploadMatch, ...]
    download: Callable[[Artifact], FileInParts] = field(repr=False)
    environment: ImageType = "dev"
    second_ci: SecondCi | None = field(default=None, repr=False)
    unusable: str = ""
    problems: tuple[CollectionProblem, ...] = ()

    @property
    def gitlab(self) -> bool:
        """True for a pipeline of the second CI."""
        return self.second_ci is not None


@dataclass(frozen=True)
class _ReadUpload:
    match: UploadMatch
    files: tuple[CollectedFile, ...] = ()
    problems: tuple[CollectionProblem, ...] = ()


def collect(
    source: GoldenSource, *, known: AbstractSet[str] | None = None,
    progress: ProgressReport | None = None,
) -> GoldenCollection:  # fmt: skip
    """Read the golden files of the jobs that failed.

    ``known`` are the paths of the repository's golden files: they show which jobs upload none by design, and which
    files of a job are missing.  Values of jobs that did not finish are never used.
    """
    if source.unusable:
        return GoldenCollection((), (*source.problems, CollectionProblem(source.name, source.unusable)))
    jobs: dict[int, FunctionalTestJob] = {}
    problems = list(source.problems)
    for job in source.jobs:
        if job.state == "failed":
            jobs[job.id] = job
        elif job.state != "passed":
            states = {"unfinished": "has not ended", "timed out": "reached its time limit"}
            sentence = f"The job {states.get(job.state, f'was {job.state}')}: its golden values are not used."
            problems.append(CollectionProblem(job.name, sentence, by_job=True))
    requested = [match for match in source.matches if not match.job_ids.isdisjoint(jobs)]
    reads = _UploadReader(source, known, jobs.keys()).read_all(requested, progress)
    files: list[CollectedFile] = []
    conflicts = _conflicts(reads)
    for read in reads:
        problems += read.problems
        conflict = conflicts.get(read.match.upload.id)
        if read.files and conflict:
            problems.append(_problem(read.match, conflict))
        else:
            files += read.files
    problems += _without_upload(source, jobs.values(), known)
    return GoldenCollection(tuple(sorted(files, key=lambda file: file.path)), tuple(problems))


@dataclass(frozen=True)
class _UploadReader:
    """A reader of uploads; ``usable`` are the IDs of the jobs whose values are requested."""

    source: GoldenSource
    known: AbstractSet[str] | None
    usable: AbstractSet[int]

    def read_all(self, matches: Sequence[UploadMatch], progress: ProgressReport | None) -> list[_ReadUpload]:
        parser = Parser(partial(_read_members, gitlab=self.source.gitlab))
        present = [match for match in matches if not match.upload.expired]
        asked = [(parser.share(self.source.download(match.upload)), match.upload.size) for match in present]
        read = parser.each(asked, [match.jobs[0].name for match in present], progress)
        answers = {match.upload.id: answer for match, answer in zip(present, read, strict=True)}
        return [self._use(match, answers.get(match.upload.id)) for match in matches]

    def _use(self, match: UploadMatch, answer: tuple[Member, ...] | RunbookError | None) -> _ReadUpload:
        if answer is None:
            return self._failed(match, "The artifact has expired. Run the test again.")
        if isinstance(answer, RunbookError):
            return self._failed(match, f"Its golden files are unavailable. {answer}", retryable=True)
        return self._check(match, answer)

    def _check(self, match: UploadMatch, members: tuple[Member, ...]) -> _ReadUpload:
        """Keep the members that are golden files of the one job they can belong to."""
        named = [(member, GoldenFileName.of_artifact(re.split(r"[/\\]", member.name)[-1])) for member in members]
        platforms = {name.platform for member, name in named if name and not member.problem and name.platform}
        jobs = tuple(job for job in match.jobs if not job.platform or not platforms or job.platform in platforms)
        if len({(job.model, job.test_case) for job in jobs}) > 1 or any(job.id not in self.usable for job in jobs):
            return self._failed(match, _ambiguous(jobs))
        if not jobs:
            platform = match.jobs[0].platform
            return self._failed(match, f"The job ran on {platform}, but its files are for {', '.join(platforms)}.")
        match = UploadMatch(match.upload, jobs)
        job, failed = jobs[0], all(job.state == "failed" for job in jobs)
        files, problems = list[CollectedFile](), list[CollectionProblem]()
        for member, name in named:
            if not member.problem and member.name.endswith(match_artifacts.RESULTS) and job.platform:
                path, data = baseline_of(job.model, job.test_case), member.data
                platform = job.platform.removeprefix("dgx_")
                files.append(CollectedFile(path, job.name, match.upload.name, data, failed, job.runner, platform))
            elif member.problem or name is None:
                sentence = f"A golden file was left out: {member.problem or 'its platform is unknown'}."
                problems.append(_problem(match, sentence, _printable(member.name)))
            elif sentence := self._mismatch(name, job):
                problems.append(_problem(match, sentence, name.file))
            else:
                path = f"{FOLDER}/{job.model}/{job.test_case}/{name.file}"
                files.append(CollectedFile(path, job.name, match.upload.name, member.data, failed, job.runner))
        counts = Counter(file.path for file in files)
        for path in sorted(counts):
            if counts[path] > 1:
                problems.append(_problem(match, "Two members of the archive correspond to this file.", path))
        reported = counts.keys() | {problem.file for problem in problems}
        problems += self._missing(match, platforms, reported)
        return _ReadUpload(match, tuple(file for file in files if counts[file.path] == 1), tuple(problems))

    def _mismatch(self, name: GoldenFileName, job: FunctionalTestJob) -> str:
        if name.environment != self.source.environment:
            return f"It contains values for the {name.environment} image, not for {self.source.environment}."
        if job.platform and name.platform not in ("", job.platform):
            return f"The job ran on {job.platform}, not on {name.platform}."
        return ""

    def _missing(
        self, match: UploadMatch, platforms: AbstractSet[str], reported: AbstractSet[str]
    ) -> list[CollectionProblem]:
        """Return a problem for each golden file of this test that is missing from the artifact."""
        job = match.jobs[0]
        if self.known is None:
            return [] if reported else [_problem(match, "The artifact contains no golden file.")]
        if job.platform:
            platforms = {job.platform}
        expected = match_artifacts.expected_files(self.known, job, self.source.environment, platforms)
        if expected and not reported:
            sentence = "The artifact contains no golden file: the test ended before it wrote one."
            return [replace(_problem(match, sentence), by_job=True)]
        names = {path.rpartition("/")[2] for path in reported}
        missing = sorted(path for path in expected if path.rpartition("/")[2] not in names)
        return [_problem(match, "This file is missing from the artifact.", path) for path in missing]

    def _failed(self, match: UploadMatch, sentence: str, *, retryable: bool = False) -> _ReadUpload:
        if not any(_has_golden_files(self.source, job, self.known) for job in match.jobs):
            return _ReadUpload(match)
        return _ReadUpload(match, problems=(replace(_problem(match, sentence), retryable=retryable),))


def _read_members(upload: tuple[SharedFile, int], gitlab: bool) -> tuple[Member, ...]:
    file, size = upload
    return tuple(Archive(file, size).read(partial(match_artifacts.golden_members, gitlab=gitlab)))


def _has_golden_files(source: GoldenSource, job: FunctionalTestJob, known: AbstractSet[str] | None) -> bool:
    """Return True if the repository has golden files for a job; some tests have none by design."""
    return known is None or bool(match_artifacts.expected_files(known, job, source.environment, ()))


def _conflicts(reads: Iterable[_ReadUpload]) -> dict[int, str]:
    """Return the uploads that may not be used because another claims the same job or the same file."""
    claims: dict[str, list[int]] = defaultdict(list)
    for read in reads:
        upload = read.match.upload.id
        if len(read.match.jobs) == 1:
            claims[f"were created during the job {read.match.jobs[0].id}"].append(upload)
        for file in read.files:
            claims[f"contain {file.path} {file.platform}".rstrip()].append(upload)
    conflicts: dict[int, str] = {}
    for claim, uploads in claims.items():
        if len(uploads) > 1:
            conflicts |= dict.fromkeys(uploads, f"{len(uploads)} artifacts {claim}, so none of them is used.")
    return conflicts


def _without_upload(
    source: GoldenSource, jobs: Iterable[FunctionalTestJob], known: AbstractSet[str] | None
) -> Iterator[CollectionProblem]:
    """Yield a problem for each job in a set of jobs with fewer uploads than jobs."""
    groups = Counter(match.job_ids for match in source.matches)
    for job in jobs:
        own = [group for group in groups if job.id in group]
        if (not own or any(groups[group] < len(group) for group in own)) and _has_golden_files(source, job, known):
            of_jobs = f"; {max(map(len, own))} of this name ran at the same time" if own else ""
            yield CollectionProblem(job.name, f"The job uploaded no artifact{of_jobs}.")


def _ambiguous(jobs: Iterable[FunctionalTestJob]) -> str:
    names = [f"{job.name} ({', '.join(filter(None, (job.state, job.platform)))})" for job in jobs]
    return f"Several jobs may have created the artifact, so it is not used: {', '.join(names)}."


def _problem(match: UploadMatch, sentence: str, file: str = "") -> CollectionProblem:
    names = sorted({job.name for job in match.jobs})
    return CollectionProblem(" or ".join(names), sentence, _printable(match.upload.name), file)


def _printable(name: str) -> str:
    """Return a name from the network on one line, shortened."""
    return "".join(char if char.isprintable() else "?" for char in name[:_MAX_NAME])
