"""Collects the golden files that the jobs of a CI run have left behind, and names whatever is not to be had.

Nothing is guessed, nothing dropped: what was asked for is in ``files``, or the reason is in ``problems``.
"""

import hashlib
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from runbook_lib.bump import ImageType
from runbook_lib.errors import RunbookError
from runbook_lib.golden import match_artifacts
from runbook_lib.golden.match_artifacts import Pair, RanJob, Upload
from runbook_lib.system import atomic_files
from runbook_lib.transport import remote_zip
from runbook_lib.transport.ranges import Address, Web
from runbook_lib.transport.remote_zip import Member, Tail

WORKERS = 24
#: done, total, and what was done last.
Progress = Callable[[int, int, str], object]


@dataclass(frozen=True)
class GoldenFile:
    """A golden file as a job wrote it; ``path`` is its place in the repository, ``stored`` where its bytes lie."""

    path: str
    platform: str
    test_case: str
    model: str
    job: str
    artifact: str
    stored: Path
    sha256: str
    size: int
    #: Whether the job that wrote it failed.
    failed: bool = True

    @property
    def bytes(self) -> bytes:
        """The content, as it was in the artifact."""
        return self.stored.read_bytes()


@dataclass(frozen=True)
class Problem:
    """Something asked for that is not there; ``artifact`` and ``file`` are empty where it is not about one.

    ``by_job``: the job itself gave no values, since it did not get so far; nothing of what it gave was lost.
    ``again``: it is there, but could not be read, which another look may mend.
    """

    job: str
    sentence: str
    artifact: str = ""
    file: str = ""
    by_job: bool = False
    again: bool = False


@dataclass(frozen=True)
class Collection:
    """What was collected.  Complete when there is no problem."""

    files: tuple[GoldenFile, ...]
    problems: tuple[Problem, ...]
    received: int = 0  # bytes of answers

    @property
    def complete(self) -> bool:
        return not self.problems


@dataclass(frozen=True)
class Source:
    """A finished run: its functional jobs, the uploads laid to them, and how to reach an upload.

    ``unusable`` says why none of its values may be used, if so.
    """

    name: str
    jobs: tuple[RanJob, ...]
    pairs: tuple[Pair, ...]
    address: Callable[[Upload], Address] = field(repr=False)
    environment: ImageType = "dev"
    gitlab: bool = False
    unusable: str = ""
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class _Read:
    """What came out of one upload."""

    pair: Pair
    files: tuple[GoldenFile, ...] = ()
    problems: tuple[Problem, ...] = ()


def collect(
    source: Source, into: Path, *, only_failing: bool = True, known: AbstractSet[str] | None = None,
    progress: Progress | None = None, workers: int = WORKERS, web: Web | None = None,
) -> Collection:  # fmt: skip
    """Read the golden files of the jobs that failed (or of all jobs) into the folder ``into``.

    ``known`` are the paths of the repository's golden files: they tell which jobs leave none by design, and which
    files of a job are lacking.  Values of jobs that did not run to their end are never used.
    """
    if source.unusable:
        return Collection((), (*source.problems, Problem(source.name, source.unusable)))
    jobs = [job for job in source.jobs if not (only_failing and job.state == "passed")]
    good = {job.id for job in jobs if job.state in ("passed", "failed")}
    problems = [
        *source.problems,
        *(Problem(job.name, _not_ended(job), by_job=True) for job in jobs if job.id not in good),
    ]
    asked = [it for it in source.pairs if any(job.id in good for job in it.jobs)]
    atomic_files.make_folder(into)
    with web or Web(workers) as open_web:
        reader = _Reader(source, into, open_web, known, good)
        done = _read_all(reader, asked, workers, progress)
        received = open_web.received
    found: list[GoldenFile] = []
    doubled = _doubled(done)
    for it in done:
        problems += it.problems
        if it.files and it.pair.upload.id in doubled:
            problems.append(_problem(it.pair, doubled[it.pair.upload.id]))
        else:
            found += it.files
    problems += _without_upload(source, [job for job in jobs if job.id in good], known)
    return Collection(tuple(sorted(found, key=lambda file: file.path)), tuple(problems), received)


def _read_all(reader: "_Reader", pairs: Sequence[Pair], workers: int, progress: Progress | None) -> tuple[_Read, ...]:
    pool = ThreadPoolExecutor(workers, thread_name_prefix="artifacts")
    try:
        return reader.web.each(pool, reader.read, pairs, lambda pair: pair.jobs[0].name, progress)
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class _Reader:
    """Reads one upload after another, in many threads."""

    source: Source
    into: Path
    web: Web
    known: AbstractSet[str] | None
    good: AbstractSet[int]
    tail: Tail = field(default_factory=Tail)

    def read(self, pair: Pair) -> _Read:
        upload = pair.upload
        if upload.expired:
            return self._failed(pair, "The artifact has expired: run the test again.")
        try:
            members = remote_zip.read(
                self.web.file(self.source.address(upload)), upload.size,
                lambda names: match_artifacts.golden_members(names, gitlab=self.source.gitlab), self.tail, self._stored,
            )  # fmt: skip
            return self._kept(pair, members)
        except RunbookError as error:
            return self._failed(pair, f"Its golden files are not to be had. {error}", again=True)
        except OSError as error:  # the temporary file of a whole archive
            return self._failed(pair, str(atomic_files.cannot_write(Path(tempfile.gettempdir()), error)), again=True)

    def _kept(self, pair: Pair, members: tuple[Member, ...]) -> _Read:
        named = [(it, match_artifacts.golden(it.name.rpartition("/")[2].rpartition("\\")[2])) for it in members]
        platforms = {name.platform for it, name in named if name and not it.problem and name.platform}
        jobs = tuple(job for job in pair.jobs if not job.platform or not platforms or job.platform in platforms)
        if len({(job.model, job.test_case) for job in jobs}) > 1 or any(job.id not in self.good for job in jobs):
            return self._failed(pair, _ambiguous(jobs))
        if not jobs:
            return self._failed(pair, f"The job ran on {pair.jobs[0].platform}, its files say {', '.join(platforms)}.")
        pair, job = Pair(pair.upload, jobs), jobs[0]
        kept: list[GoldenFile] = []
        problems: list[Problem] = []
        for it, name in named:
            if it.problem or name is None:
                problems.append(_problem(pair, f"A golden file was left out: {it.problem}.", _shown(it.name)))
            elif name.environment != self.source.environment:
                said = f"It holds values of the {name.environment} image, not of {self.source.environment}."
                problems.append(_problem(pair, said, name.file))
            elif job.platform and name.platform not in ("", job.platform):
                problems.append(_problem(pair, f"The job ran on {job.platform}, not on {name.platform}.", name.file))
            else:
                kept.append(_golden_file(pair, name, it))
        twice = {path for path, times in Counter(file.path for file in kept).items() if times > 1}
        problems += [_problem(pair, "Two members of the archive stand for this file.", path) for path in sorted(twice)]
        problems += self._lacking(pair, platforms, {it.path for it in kept} | {it.file for it in problems})
        return _Read(pair, tuple(it for it in kept if it.path not in twice), tuple(problems))

    def _stored(self, member: Member) -> Member:
        """Move a member's content from memory to the disk."""
        if member.problem:
            return member
        # No name from the network becomes a name on the disk.
        stored = self.into / f"{hashlib.sha256(member.data).hexdigest()}.json"
        atomic_files.write(stored, member.data)
        return replace(member, data=b"", stored=stored)

    def _lacking(self, pair: Pair, platforms: AbstractSet[str], have: AbstractSet[str]) -> list[Problem]:
        """Golden files that the repository has for this test, and the artifact has not."""
        job = pair.jobs[0]
        if self.known is None:
            return [] if have else [_problem(pair, "The artifact holds no golden file.")]
        on = {job.platform} if job.platform else platforms
        wanted = match_artifacts.expected(self.known, job, self.source.environment, on)
        if not have and wanted:
            said = "The artifact holds no golden file: the test ended before it wrote one."
            return [replace(_problem(pair, said), by_job=True)]
        names = {path.rpartition("/")[2] for path in have}
        lacking = sorted(path for path in wanted if path.rpartition("/")[2] not in names)
        return [_problem(pair, "The artifact lacks this file.", path) for path in lacking]

    def _failed(self, pair: Pair, sentence: str, *, again: bool = False) -> _Read:
        if self.known is not None and not any(
            match_artifacts.expected(self.known, job, self.source.environment, ()) for job in pair.jobs
        ):
            return _Read(pair)  # by design there is nothing in it
        return _Read(pair, problems=(replace(_problem(pair, sentence), again=again),))


def _golden_file(pair: Pair, name: match_artifacts.Golden, member: Member) -> GoldenFile:
    job = pair.jobs[0]
    assert member.stored is not None
    return GoldenFile(
        f"{match_artifacts.TEST_CASES}/{job.model}/{job.test_case}/{name.file}",
        name.platform,
        job.test_case,
        job.model,
        job.name,
        pair.upload.name,
        member.stored,
        member.stored.stem,
        member.stored.stat().st_size,
        failed=all(it.state == "failed" for it in pair.jobs),
    )


def _doubled(done: Iterable[_Read]) -> dict[int, str]:
    """Uploads that may not be used because another claims the same job or the same file."""
    by_job: dict[int, list[int]] = defaultdict(list)
    by_path: dict[str, list[int]] = defaultdict(list)
    for it in done:
        if len(it.pair.jobs) == 1:
            by_job[it.pair.jobs[0].id].append(it.pair.upload.id)
        for file in it.files:
            by_path[file.path].append(it.pair.upload.id)
    found: dict[int, str] = {}
    for uploads in by_job.values():
        if len(uploads) > 1:
            found |= dict.fromkeys(uploads, f"{len(uploads)} artifacts were made during this job: which counts?")
    for path, uploads in by_path.items():
        if len(uploads) > 1:
            found |= dict.fromkeys(uploads, f"{len(uploads)} artifacts hold {path}: which counts?")
    return found


def _without_upload(source: Source, jobs: Sequence[RanJob], known: AbstractSet[str] | None) -> list[Problem]:
    by_jobs: dict[frozenset[int], int] = Counter(frozenset(job.id for job in it.jobs) for it in source.pairs)
    missing = []
    for job in jobs:
        groups = [ids for ids in by_jobs if job.id in ids]
        if groups and all(by_jobs[ids] >= len(ids) for ids in groups):
            continue
        if known is not None and not match_artifacts.expected(known, job, source.environment, ()):
            continue
        if groups:
            others = max(len(ids) for ids in groups)
            said = f"{others} jobs of this name ran at the same time, and left fewer artifacts than that."
        else:
            said = "The job left no artifact."
        missing.append(Problem(job.name, said))
    return missing


def _not_ended(job: RanJob) -> str:
    said = {"unfinished": "has not ended", "timed out": "ran into its time limit"}.get(job.state, f"was {job.state}")
    return f"The job {said}: what it left behind is not used."


def _ambiguous(jobs: Iterable[RanJob]) -> str:
    listed = ", ".join(f"{job.name} ({job.state}{', ' + job.platform if job.platform else ''})" for job in jobs)
    return f"It cannot be told which of these jobs made the artifact, so it is not used: {listed}."


def _problem(pair: Pair, sentence: str, file: str = "") -> Problem:
    return Problem(" or ".join(sorted({job.name for job in pair.jobs})), sentence, _shown(pair.upload.name), file)


def _shown(text: str) -> str:
    """A name from the network, on one line and bounded."""
    return "".join(char if char.isprintable() else "?" for char in text)[:200]
