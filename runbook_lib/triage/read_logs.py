"""Reads of a failed job's logs what is needed to tell why it failed, many logs at a time, each as a stream.

The order is chosen so that little need be read.  First the end of the job's own log: a failed comparison stands there,
and which rank torchrun saw fail first.  Then, of the last attempt of the last repeat, the standard error and the
output of that rank; then the same of all ranks; then the attempts before, and the whole log of the job.  Reading ends
with the round that makes the cause sure.
Sources: ``--log-dir`` and ``--redirects`` in ``tests/functional_tests/shell_test_utils/_run_training.sh``, uploads in
``.github/actions/action.yml``, and GitLab's folders in ``tests/test_utils/python_scripts/launch_jet_workload.py``.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TypeVar

from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.text.redact import Redactor
from runbook_lib.transport import remote_zip
from runbook_lib.transport.ranges import Address, MissingFile, NoRanges, RemoteFile, Web
from runbook_lib.transport.remote_zip import Tail
from runbook_lib.triage import diagnose
from runbook_lib.triage.diagnose import FailedJob, Failure
from runbook_lib.triage.log_lines import clean
from runbook_lib.triage.log_scanner import Scanner, arguments
from runbook_lib.triage.log_summary import Reading

#: Jobs, and logs of all jobs together, that are read at a time.
JOBS, WORKERS = 40, 32
_END = 2**17  # bytes of the end of a job's own log
_HEAD = 2**15  # bytes, packed, in which rank 0 prints its arguments
_DIRECTORY = 2**14  # bytes of the directory of an archive with the logs of some dozen ranks
_CHUNK = 2**18
_LARGEST_LOG = 4 * 2**30
_LONGEST_FILE = 2**28  # bytes of the beginning and of the end of a file that are read
_MOST = 8192  # logs of one job
#: Attempts of a launcher are minutes apart; the nodes of one attempt end together.  Seconds.
_APART = 120.0
_MEMBER = re.compile(
    r"(?P<before>.*?)(?:^|/)(?P<repeat>\d{1,6})/(?P<run>[^/]+)/attempt_(?P<attempt>\d{1,6})/(?P<rank>\d{1,6})/"
    r"std(?P<stream>err|out)\.log"
)
T = TypeVar("T")
Progress = Callable[[int, int, str], object]


@dataclass(frozen=True)
class JobLogs:
    """A failed job and where its logs lie; ``size`` of the artifact in bytes, 0 where not known."""

    job: FailedJob
    artifact: Address | None = None
    size: int = 0
    expired: bool = False
    log: Address | None = None


@dataclass(frozen=True)
class _Log:
    """One log among others: what its name tells, and how to read it."""

    name: str
    changed: float
    stream: Callable[[int], Iterator[bytes]] = field(repr=False)  # given how many bytes to read at first

    @property
    def named(self) -> re.Match[str] | None:
        return _MEMBER.fullmatch(self.name)

    @property
    def rank(self) -> int | None:
        return int(self.named["rank"]) if self.named else None

    @property
    def error(self) -> bool:
        return self.named is not None and self.named["stream"] == "err"


def triage_all(
    asked: Sequence[JobLogs], *, hide: Callable[[str], str] | None = None, progress: Progress | None = None,
    web: Web | None = None, workers: int = WORKERS,
) -> tuple[Failure, ...]:  # fmt: skip
    """Why each of these jobs failed, in their order.

    What cannot be read is said in the failure.  ``hide`` takes secrets out; without it, those of this environment.
    """
    hide = hide or Redactor(os.environ).text
    with ExitStack() as stack:
        open_web = stack.enter_context(web or Web(JOBS + workers))
        members = ThreadPoolExecutor(workers, thread_name_prefix="logs")
        jobs = ThreadPoolExecutor(JOBS, thread_name_prefix="triage")
        tail = Tail()
        tail.size = _DIRECTORY
        try:
            return open_web.each(
                jobs, lambda it: _triage(it, open_web, members, tail, hide), asked, lambda it: it.job.name, progress
            )
        finally:
            jobs.shutdown(cancel_futures=True)
            members.shutdown(cancel_futures=True)


def of_folder(path: Path, job: FailedJob | None = None, *, hide: Callable[[str], str] | None = None) -> Failure:
    """Why a job failed, from a downloaded artifact: a folder, a zip, or a single log.

    Raises CannotTell where there is nothing to read at the path.
    """
    hide = hide or Redactor(os.environ).text
    job = job or FailedJob(path.name)
    try:
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(os.cpu_count() or 1))
            if path.is_dir():
                logs = [_of_file(it, it.relative_to(path).as_posix()) for it in sorted(path.rglob("*")) if _is_log(it)]
            elif path.suffix == ".zip":
                archive = stack.enter_context(remote_zip.local(path))
                logs = _of_archive(archive)
            else:
                logs = [_of_file(path, path.name)]
            if not logs:
                raise CannotTell(f"{path} holds no log: no file in it ends in .log or .txt.")
            return diagnose.conclude(job, _read(job, logs, pool), hide)
    except OSError as error:
        raise CannotTell(f"{path} cannot be read ({error.strerror or error}).") from error


def _triage(asked: JobLogs, web: Web, members: Executor, tail: Tail, hide: Callable[[str], str]) -> Failure:
    readings: list[Reading] = []
    problems: list[str] = []
    own: Reading | None = None
    if asked.log:
        own = _attempt(problems, "The job's log", lambda: _own_log(web, asked, whole=not asked.artifact))
        if own and diagnose.settled(asked.job, [own]):
            return diagnose.conclude(asked.job, [own], hide)
    if asked.expired:
        problems.append("The job's artifact has expired: run the job again to have its logs.")
    elif asked.artifact:
        first = own.first_rank[1] if own and own.first_rank else None
        readings = _attempt(problems, "The job's artifact", lambda: _artifact(web, asked, members, tail, first)) or []
        if own and not diagnose.named(asked.job, [*readings, own]):
            own = _attempt(problems, "The job's log", lambda: _own_log(web, asked, whole=True)) or own
    elif not asked.log:
        problems.append("The job left neither an artifact nor a log.")
    problem = " ".join([*problems, *dict.fromkeys(it.problem for it in readings if it.problem)])
    return diagnose.conclude(asked.job, [*readings, *([own] if own else [])], hide, problem)


def _attempt(problems: list[str], what: str, read: Callable[[], T]) -> T | None:
    try:
        return read()
    except MissingFile as error:
        problems.append(f"{what} is not to be had: {error}. Logs are kept for a limited time; run the job again.")
    except RunbookError as error:
        problems.append(f"{what} could not be read. {error}")
    except OSError as error:  # the temporary file of a whole archive
        problems.append(f"{what} could not be kept for reading ({error.strerror or error}).")
    return None


def _artifact(web: Web, asked: JobLogs, members: Executor, tail: Tail, first: int | None) -> list[Reading]:
    assert asked.artifact is not None
    with remote_zip.remote(web.file(asked.artifact), asked.size, tail) as archive:
        return _read(asked.job, _of_archive(archive), members, first)


def _of_archive(archive: remote_zip.Archive) -> list[_Log]:
    named = [it for it in archive.entries if _is_log_name(it.filename)]
    return [_Log(it.filename, remote_zip.modified(it), lambda first, it=it: archive.stream(it, first)) for it in named]  # type: ignore[misc]


def _of_file(path: Path, name: str) -> _Log:
    def stream(first: int) -> Iterator[bytes]:
        with path.open("rb") as opened:
            left = os.fstat(opened.fileno()).st_size  # what is written from now on is not followed
            if left > 2 * _LONGEST_FILE:
                yield from _read_on(opened, _LONGEST_FILE, first)
                yield b"\n"
                opened.seek(-_LONGEST_FILE, os.SEEK_END)
                left = _LONGEST_FILE
            yield from _read_on(opened, left, first)

    return _Log(name, path.stat().st_mtime, stream)


def _read_on(opened: IO[bytes], left: int, piece: int) -> Iterator[bytes]:
    while left > 0 and (read := opened.read(min(piece, left))):
        left -= len(read)
        yield read


def _is_log(path: Path) -> bool:
    return not path.is_symlink() and path.is_file() and _is_log_name(path.name)


def _is_log_name(name: str) -> bool:
    # The traces of NCCL are large, and name no cause that the ranks do not name.
    return name.endswith((".log", ".txt")) and not name.endswith("nccl_debug.log")


def _read(job: FailedJob, logs: Sequence[_Log], members: Executor, first: int | None = None) -> list[Reading]:
    """Read in rounds, until the cause is sure; ``first`` is the rank of its node that torchrun saw fail first."""
    last, earlier = _attempts(logs[:_MOST])
    groups = (
        [last] if first is None else [[it for it in last if it.rank == first], [it for it in last if it.rank != first]]
    )
    rounds = [[it for it in group if it.error is error] for group in groups for error in (True, False)]
    readings: list[Reading] = []
    for logs_of_round in rounds:
        readings += _scan(members, logs_of_round)
        if diagnose.settled(job, readings):
            break
    if earlier and not diagnose.named(job, readings):
        readings += _scan(members, [it for it in earlier if it.error])
    readings.sort(key=lambda it: (it.rank is None, it.rank or 0))
    if diagnose.wants_arguments(job, readings):
        printed = [it for it in last if it.rank == 0 and not it.error]
        readings += [_head(it) for it in printed]
    return readings


def _scan(members: Executor, logs: Iterable[_Log]) -> list[Reading]:
    return list(members.map(_scanned, sorted(logs, key=lambda it: (it.rank is None, it.rank or 0, it.name))))


def _scanned(log: _Log) -> Reading:
    scanner = Scanner(log.name, log.rank)
    try:
        for piece in log.stream(remote_zip.FIRST):
            scanner.feed(piece)
    except (RunbookError, OSError) as error:
        return scanner.reading(f"{log.name} could not be read to its end: {error}")
    return scanner.reading()


def _head(log: _Log) -> Reading:
    """What rank 0 prints at first: its arguments.  Errors in it were looked for elsewhere."""
    try:
        head = next(log.stream(_HEAD), b"")
    except (RunbookError, OSError):
        head = b""
    telling = b" \t".join(line for line in head.split(b"\n") if b"arallel" in line)
    return Reading(log.name, log.rank, parallelism=arguments(clean(telling)))


def _attempts(logs: Iterable[_Log]) -> tuple[list[_Log], list[_Log]]:
    """The logs of the last attempt of the last repeat (with those that are no rank's), and all others.

    A repeat has a folder for each node and each try of the launcher: what ended minutes before the last is a try
    that was given up.
    """
    others = [it for it in logs if it.named is None]
    folders: dict[tuple[tuple[int, ...], int, str, str], dict[int, list[_Log]]] = defaultdict(lambda: defaultdict(list))
    for it in logs:
        if named := it.named:
            numbers = tuple(int(number) for number in re.findall(r"\d{1,9}", named["before"]))
            key = (numbers, int(named["repeat"]), named["before"], named["run"])
            folders[key][int(named["attempt"])].append(it)
    if not folders:
        return others, []
    newest = {key: max(it.changed for found in by.values() for it in found) for key, by in folders.items()}
    end = max(newest.values())
    late = [key for key in folders if newest[key] > end - _APART]
    top = max(key[:2] for key in late)
    last = [it for key in late if key[:2] == top for it in folders[key][max(folders[key])]]
    chosen = {id(it) for it in last}
    earlier = [it for by in folders.values() for found in by.values() for it in found if id(it) not in chosen]
    return [*last, *others], earlier


def _own_log(web: Web, asked: JobLogs, *, whole: bool) -> Reading:
    """The job's own log, or its end.  Line numbers of an end are not known: they are 0."""
    assert asked.log is not None
    file = web.file(asked.log)
    scanner = Scanner("the job's log")
    start = 0
    try:
        file.part(0, 1)
        start = 0 if whole else max(0, file.size - _END)
        for piece in _pieces(file, start, min(file.size, start + _LARGEST_LOG)):
            scanner.feed(piece)
    except NoRanges:
        scanner = _whole(file, scanner)
    reading = scanner.reading()
    if not start:
        return reading
    return replace(
        reading,
        tracebacks=tuple(replace(it, line=0) for it in reading.tracebacks),
        hits=tuple(replace(it, line=0) for it in reading.hits),
    )


def _pieces(file: RemoteFile, start: int, end: int) -> Iterator[bytes]:
    while start < end:
        piece = file.part(start, min(_CHUNK * 4, end - start))
        if not piece:
            return
        start += len(piece)
        yield piece


def _whole(file: RemoteFile, scanner: Scanner) -> Scanner:
    """From a server without ranges: each attempt reads anew."""
    held = [scanner]

    def restart() -> None:
        held[0] = Scanner("the job's log")

    file.download(lambda piece: held[0].feed(piece), restart, _LARGEST_LOG)
    return held[0]
