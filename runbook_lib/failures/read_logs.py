"""Reader of failed jobs' logs: concurrent, streaming, and limited to what a diagnosis needs.

The order minimizes reading.  The first round reads the end of the job's own log, which has any failed comparison and
the rank that failed first according to torchrun.  The next rounds read, for the last attempt of the last repeat, the
standard error and output of that rank, then of all ranks; then the earlier attempts, and the complete log of the job.
Reading ends after the round that makes the cause certain, or when the time for it is over.  All of it is done by the
parser, a process with limits.
Sources: ``--log-dir`` and ``--redirects`` in ``tests/functional_tests/shell_test_utils/_run_training.sh``, uploads in
``.github/actions/action.yml``, and GitLab's folders in ``tests/test_utils/python_scripts/launch_jet_workload.py``.
"""

import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from zipfile import ZipInfo

from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.failures import diagnose
from runbook_lib.failures.evidence import FailedJob, Failure, LogSummary
from runbook_lib.failures.log_scanner import Scanner
from runbook_lib.text.redact import Redactor
from runbook_lib.world.transport import archives
from runbook_lib.world.transport.archives import Archive, FileInParts, MissingFile
from runbook_lib.world.transport.parser import THREADS, Parser

#: Seconds of the processor for the logs of all jobs: what has been read by then is used.
SECONDS = 60.0
_OWN_LOG = "the job's log"
_END = 2**17  # bytes read from the end of a job's own log
_CHUNK = 2**20
#: Seconds between a launcher's attempts, which are minutes apart; the nodes of one attempt end together.
_ATTEMPTS_APART = 120.0
_MEMBER = re.compile(
    r"(?P<before>.*?)(?:^|/)(?P<repeat>\d{1,6})/(?P<run>[^/]+)/attempt_(?P<attempt>\d{1,6})/(?P<rank>\d{1,6})/"
    r"std(?P<stream>err|out)\.log"
)
#: The rank in the name of a log.
_NAMED_RANK = re.compile(r"(?:^|[/_.-])(?:rank|worker|task)[_.-]?(\d{1,6})(?=[_./-]|$)")
_LOG_NAMES = (".log", ".txt", ".out", ".err", "stdout", "stderr")
_Folder = tuple[tuple[int, ...], int, str, str]


@dataclass(frozen=True)
class JobLogs:
    """A failed job and its logs; ``size`` of the artifact in bytes, 0 if unknown."""

    job: FailedJob
    artifact: FileInParts | None = None
    size: int = 0
    log: FileInParts | None = None


@dataclass(frozen=True)
class _LocalFile:
    """A file on the disk, as a file in parts."""

    path: Path

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    def part(self, start: int, size: int) -> bytes:
        with self.path.open("rb") as file:
            return os.pread(file.fileno(), size, start)


@dataclass(frozen=True)
class _Log:
    """A log with the facts in its name; ``stream`` reads it.

    ``folder`` has the numbers before the folder of its ranks, its repeat, and its path; None for a log of another kind.
    """

    name: str
    changed: float
    stream: Callable[[], Iterator[bytes]] = field(repr=False)
    rank: int | None = None
    folder: _Folder | None = None
    attempt: int = 0
    is_error: bool = False

    @classmethod
    def named(cls, name: str, changed: float, stream: Callable[[], Iterator[bytes]]) -> "_Log":
        """Return a log with the facts in its name."""
        member = _MEMBER.fullmatch(name)
        if member is None:
            rank = _NAMED_RANK.search(name)
            return cls(name, changed, stream, int(rank[1]) if rank else None)
        numbers = tuple(map(int, re.findall(r"\d{1,9}", member["before"])))
        folder = numbers, int(member["repeat"]), member["before"], member["run"]
        is_error = member["stream"] == "err"
        return cls(name, changed, stream, int(member["rank"]), folder, int(member["attempt"]), is_error)

    @property
    def order(self) -> tuple[bool, int, str]:
        """A sort key: by rank, with logs without a rank last."""
        return self.rank is None, self.rank or 0, self.name


def diagnose_all(jobs: Sequence[JobLogs]) -> tuple[Failure, ...]:
    """Return the cause of each job's failure, in the same order, without the secrets of this environment.

    A failure reports logs that could not be read.
    """
    hide, parser, asked = Redactor(os.environ).text, Parser(_diagnose), []
    for logs in jobs:
        artifact = parser.share(logs.artifact) if logs.artifact else None
        log = parser.share(logs.log) if logs.log else None
        asked.append((JobLogs(logs.job, artifact, logs.size, log), hide))
    found = parser.each(asked, [logs.job.name for logs in jobs])
    failures = []
    for logs, failure in zip(jobs, found, strict=True):
        if isinstance(failure, RunbookError):
            failure = diagnose.conclude(logs.job, [], hide, f"The job's logs could not be read. {failure}")
        failures.append(failure)
    return tuple(failures)


def diagnose_folder(path: Path, job: FailedJob | None = None) -> Failure:
    """Return the cause of a job's failure, from a downloaded artifact: a folder, a zip, or a single log.

    Raises CannotTell if there is no log at the path, or if it could not be read.
    """
    asked = (path, job or FailedJob(path.name), Redactor(os.environ).text)
    (failure,) = Parser(_diagnose_folder).each([asked], [path.name])
    if isinstance(failure, RunbookError):
        raise failure
    return failure


def _diagnose_folder(asked: tuple[Path, FailedJob, Callable[[str], str]]) -> Failure:
    path, job, hide = asked
    try:
        if path.is_dir():
            files = sorted(filter(_is_log, path.rglob("*")))
            logs = [_file_log(file, file.relative_to(path).as_posix()) for file in files]
        elif path.suffix == ".zip":
            logs = _archive_logs(Archive(_LocalFile(path)))
        else:
            logs = [_file_log(path, path.name)]
        if not logs:
            raise CannotTell(f"{path} has no log: no file in it ends in .log, .txt, .out or .err.")
        return diagnose.conclude(job, _read(job, logs), hide)
    except OSError as error:
        raise CannotTell(f"{path} cannot be read ({error.strerror or error}).") from error


def _diagnose(item: tuple[JobLogs, Callable[[str], str]]) -> Failure:
    asked, hide = item
    job, log, problems = asked.job, asked.log, list[str]()
    own, of_ranks = list[LogSummary](), list[LogSummary]()
    if log:
        with _noting(problems, "The job's log"):
            own = [_own_log(log, complete=not asked.artifact)]
    if diagnose.is_settled(job, own):
        return diagnose.conclude(job, own, hide)
    if asked.artifact:
        first = own[0].first_rank if own else ()
        with _noting(problems, "The job's artifact"):
            of_ranks = _read(job, _archive_logs(Archive(asked.artifact, asked.size)), first[1] if first else None)
        if log and own and not diagnose.names_a_cause([*of_ranks, *own]):
            with _noting(problems, "The job's log"):
                own = [_own_log(log, complete=True)]
    elif not log:
        problems.append("The job left neither an artifact nor a log.")
    return diagnose.conclude(job, [*of_ranks, *own], hide, " ".join(problems))


@contextmanager
def _noting(problems: list[str], name: str) -> Iterator[None]:
    """Note why something could not be read."""
    try:
        yield
    except MissingFile as error:
        problems.append(f"{name} is unavailable: {error}. Logs are kept for a limited time; run the job again.")
    except RunbookError as error:
        problems.append(f"{name} could not be read. {error}")


def _own_log(file: FileInParts, *, complete: bool) -> LogSummary:
    """Read the job's own log, or its end.  Line numbers in an end are unknown, so they are 0."""
    file.part(0, 1)
    start = 0 if complete else max(0, file.size - _END)
    summary = _scan(_Log(_OWN_LOG, 0.0, partial(_stream, file, start)))
    if not start:
        return summary
    return replace(summary, findings=tuple(replace(found, line=0) for found in summary.findings))


def _stream(file: FileInParts, position: int) -> Iterator[bytes]:
    """Yield a file from a position in pieces; data written from now on is not read."""
    end = file.size
    while piece := file.part(position, min(_CHUNK, end - position)):
        yield piece
        position += len(piece)


def _archive_logs(archive: Archive) -> list[_Log]:
    logs = []
    for entry in archive.entries:
        if _is_log_name(entry.filename):
            stream = partial(archive.stream, entry, archives.FIRST)
            logs.append(_Log.named(entry.filename, _modified(entry), stream))
    return logs


def _modified(entry: ZipInfo) -> float:
    """Return when a member was last changed, in seconds since the epoch; 0 for an impossible date."""
    try:
        return time.mktime((*entry.date_time, 0, 0, 0))
    except (ValueError, OverflowError):
        return 0.0


def _file_log(path: Path, name: str) -> _Log:
    return _Log.named(name, path.stat().st_mtime, partial(_stream, _LocalFile(path), 0))


def _is_log(path: Path) -> bool:
    return not path.is_symlink() and path.is_file() and _is_log_name(path.as_posix())


def _is_log_name(name: str) -> bool:
    # NCCL's traces are large, and show no cause that the ranks do not show.
    return name.endswith(_LOG_NAMES) and not name.endswith("nccl_debug.log")


def _read(job: FailedJob, logs: Sequence[_Log], first_rank: int | None = None) -> list[LogSummary]:
    """Read in rounds until the cause is certain; ``first_rank`` is the first local rank to fail, from torchrun."""
    last, earlier = _last_attempt(logs)
    rounds: dict[tuple[bool, bool], list[_Log]] = defaultdict(list)
    for log in last:
        rounds[first_rank is not None and log.rank != first_rank, not log.is_error].append(log)
    summaries: list[LogSummary] = []
    for _, logs_of_round in sorted(rounds.items()):
        if not diagnose.is_settled(job, summaries):
            summaries += _scan_all(logs_of_round)
    if earlier and not diagnose.names_a_cause(summaries):
        summaries += _scan_all([log for log in earlier if log.is_error])
    summaries.sort(key=lambda summary: (summary.rank is None, summary.rank or 0))
    return summaries


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="logs")


def _scan_all(logs: Iterable[_Log]) -> list[LogSummary]:
    return list(_pool().map(_scan, sorted(logs, key=lambda log: log.order)))


def _scan(log: _Log) -> LogSummary:
    scanner = Scanner(log.name, log.rank)
    try:
        for piece in log.stream():
            if time.process_time() > SECONDS:
                raise CannotTell(f"reading all logs took more than {SECONDS:.0f} seconds of the processor.")
            scanner.feed(piece)
    except (RunbookError, OSError) as error:
        return scanner.summary(f"{log.name} could not be read to its end: {error}")
    return scanner.summary()


def _last_attempt(logs: Sequence[_Log]) -> tuple[list[_Log], list[_Log]]:
    """Return the logs of the last attempt of the last repeat (with logs without a rank), and all others.

    A repeat has a folder for each node and each attempt of the launcher: an attempt that ended minutes before the last
    one had failed.
    """
    ended: dict[_Folder, float] = {}
    newest: dict[_Folder, int] = {}
    for log in logs:
        if log.folder:
            ended[log.folder] = max(log.changed, ended.get(log.folder, log.changed))
            newest[log.folder] = max(log.attempt, newest.get(log.folder, log.attempt))
    threshold = max(ended.values(), default=0.0) - _ATTEMPTS_APART
    last_repeat = max((folder[:2] for folder, time in ended.items() if time > threshold), default=None)
    last, earlier, others = list[_Log](), list[_Log](), list[_Log]()
    for log in logs:
        folder = log.folder
        if not folder:
            others.append(log)
        elif ended[folder] > threshold and folder[:2] == last_repeat and log.attempt == newest[folder]:
            last.append(log)
        else:
            earlier.append(log)
    return [*last, *others], earlier
