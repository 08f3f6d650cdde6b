"""Reader of failed jobs' logs: concurrent, streaming, and limited to what a diagnosis needs.

The order minimizes reading.  The first round reads the end of the job's own log, which has any failed comparison and
the rank that failed first according to torchrun.  The next rounds read, for the last attempt of the last repeat, the
standard error and output of that rank, then of all ranks; then the earlier attempts, and the complete log of the job.
Reading ends after the round that makes the cause certain.
Sources: ``--log-dir`` and ``--redirects`` in ``tests/functional_tests/shell_test_utils/_run_training.sh``, uploads in
``.github/actions/action.yml``, and GitLab's folders in ``tests/test_utils/python_scripts/launch_jet_workload.py``.
"""

import itertools
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.failures import diagnose
from runbook_lib.failures.failure import FailedJob, Failure
from runbook_lib.failures.log_scanner import Scanner
from runbook_lib.failures.log_summary import LogSummary
from runbook_lib.text.redact import Redactor
from runbook_lib.transport import archives
from runbook_lib.transport.downloads import Download, MissingFile

if TYPE_CHECKING:
    from runbook_lib.transport.web import Web

#: Number of jobs, and of logs of all jobs, that are read concurrently.
JOBS, WORKERS = 40, 32
_OWN_LOG = "the job's log"
_END = 2**17  # bytes read from the end of a job's own log
_CHUNK = 2**20
_LARGEST_LOG = 4 * 2**30
LONGEST_FILE = 2**28  # bytes read from the beginning and from the end of a file
_MAX_LOGS = 8192  # per job
#: Seconds between a launcher's attempts, which are minutes apart; the nodes of one attempt end together.
_ATTEMPTS_APART = 120.0
_MEMBER = re.compile(
    r"(?P<before>.*?)(?:^|/)(?P<repeat>\d{1,6})/(?P<run>[^/]+)/attempt_(?P<attempt>\d{1,6})/(?P<rank>\d{1,6})/"
    r"std(?P<stream>err|out)\.log"
)
#: The rank in the name of a log.
_NAMED_RANK = re.compile(r"(?:^|[/_.-])(?:rank|worker|task)[_.-]?(\d{1,6})(?=[_./-]|$)")
_LOG_NAMES = (".log", ".txt", ".out", ".err", "stdout", "stderr")
T = TypeVar("T")
ProgressReport = Callable[[int, int, str], object]


@dataclass(frozen=True)
class JobLogs:
    """A failed job and its logs; ``size`` of the artifact in bytes, 0 if unknown."""

    job: FailedJob
    artifact: Download | None = None
    size: int = 0
    expired: bool = False
    log: Download | None = None


@dataclass(frozen=True)
class _Log:
    """A log with the facts in its name; ``stream`` reads it, given the number of bytes to read first."""

    name: str
    changed: float
    stream: Callable[[int], Iterator[bytes]] = field(repr=False)

    @cached_property
    def parts(self) -> re.Match[str] | None:
        return _MEMBER.fullmatch(self.name)

    @cached_property
    def rank(self) -> int | None:
        if self.parts:
            return int(self.parts["rank"])
        named = _NAMED_RANK.search(self.name)
        return int(named[1]) if named else None

    @property
    def is_error(self) -> bool:
        return self.parts is not None and self.parts["stream"] == "err"

    @property
    def order(self) -> tuple[bool, int, str]:
        """Return a sort key: by rank, with logs without a rank last."""
        return self.rank is None, self.rank or 0, self.name


def diagnose_all(
    jobs: Sequence[JobLogs], *, hide: Callable[[str], str] | None = None, progress: ProgressReport | None = None,
    web: "Web | None" = None, workers: int = WORKERS,
) -> tuple[Failure, ...]:  # fmt: skip
    """Return the cause of each job's failure, in the same order.

    A failure reports logs that could not be read.  ``hide`` removes secrets, by default those of this environment.
    """
    from runbook_lib.transport.web import Web  # its library takes longer to import than most bumps need

    hide = hide or Redactor(os.environ).text
    with ExitStack() as stack:
        open_web = stack.enter_context(web or Web(JOBS))
        log_pool = ThreadPoolExecutor(workers, thread_name_prefix="logs")
        reader = _JobReader(open_web, log_pool, hide)
        try:
            return open_web.each(reader.diagnose, jobs, lambda logs: logs.job.name, progress)
        finally:
            log_pool.shutdown(cancel_futures=True)


def diagnose_folder(path: Path, job: FailedJob | None = None, *, hide: Callable[[str], str] | None = None) -> Failure:
    """Return the cause of a job's failure, from a downloaded artifact: a folder, a zip, or a single log.

    Raises CannotTell if there is no log at the path.
    """
    hide = hide or Redactor(os.environ).text
    job = job or FailedJob(path.name)
    try:
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(os.cpu_count() or 1))
            if path.is_dir():
                files = sorted(filter(_is_log, path.rglob("*")))
                logs = [_file_log(file, file.relative_to(path).as_posix()) for file in files]
            elif path.suffix == ".zip":
                logs = _archive_logs(archives.Archive(archives.LocalFile(path)))
            else:
                logs = [_file_log(path, path.name)]
            if not logs:
                raise CannotTell(f"{path} has no log: no file in it ends in .log, .txt, .out or .err.")
            return diagnose.conclude(job, _read(job, logs, pool), hide)
    except OSError as error:
        raise CannotTell(f"{path} cannot be read ({error.strerror or error}).") from error


@dataclass(frozen=True)
class _JobReader:
    web: "Web"
    log_pool: Executor
    hide: Callable[[str], str]

    def diagnose(self, logs: JobLogs) -> Failure:
        summaries: list[LogSummary] = []
        problems: list[str] = []
        own_log: LogSummary | None = None
        if logs.log:
            own_log = _attempt(problems, "The job's log", lambda: self._own_log(logs, complete=not logs.artifact))
            if own_log and diagnose.is_settled(logs.job, [own_log]):
                return diagnose.conclude(logs.job, [own_log], self.hide)
        if logs.expired:
            problems.append("The job's artifact has expired. Run the job again to get its logs.")
        elif logs.artifact:
            first_rank = own_log.first_rank[1] if own_log and own_log.first_rank else None
            read_artifact = partial(self._artifact, logs, first_rank)
            summaries = _attempt(problems, "The job's artifact", read_artifact) or []
            if own_log and not diagnose.names_a_cause(logs.job, [*summaries, own_log]):
                own_log = _attempt(problems, "The job's log", lambda: self._own_log(logs, complete=True)) or own_log
        elif not logs.log:
            problems.append("The job left neither an artifact nor a log.")
        problems += dict.fromkeys(summary.problem for summary in summaries if summary.problem)
        if own_log:
            summaries.append(own_log)
        return diagnose.conclude(logs.job, summaries, self.hide, " ".join(problems))

    def _artifact(self, logs: JobLogs, first_rank: int | None) -> list[LogSummary]:
        assert logs.artifact is not None
        archive = archives.Archive(logs.artifact.open(self.web), logs.size)
        return _read(logs.job, _archive_logs(archive), self.log_pool, first_rank)

    def _own_log(self, logs: JobLogs, *, complete: bool) -> LogSummary:
        """Read the job's own log, or its end.  Line numbers in an end are unknown, so they are 0."""
        assert logs.log is not None
        file = logs.log.open(self.web)
        file.part(0, 1)
        start = 0 if complete else max(0, file.size - _END)
        scanner = Scanner(_OWN_LOG)
        position, end = start, min(file.size, start + _LARGEST_LOG)
        while position < end and (piece := file.part(position, min(_CHUNK, end - position))):
            scanner.feed(piece)
            position += len(piece)
        summary = scanner.summary()
        if not start:
            return summary
        return replace(
            summary,
            tracebacks=tuple(replace(trace, line=0) for trace in summary.tracebacks),
            matches=tuple(replace(match, line=0) for match in summary.matches),
        )


def _attempt(problems: list[str], name: str, read: Callable[[], T]) -> T | None:
    try:
        return read()
    except MissingFile as error:
        problems.append(f"{name} is unavailable: {error}. Logs are kept for a limited time; run the job again.")
    except RunbookError as error:
        problems.append(f"{name} could not be read. {error}")
    except OSError as error:  # the temporary file of a server without ranges
        problems.append(f"{name} could not be stored for reading ({error.strerror or error}).")
    return None


def _archive_logs(archive: archives.Archive) -> list[_Log]:
    logs = []
    for entry in archive.entries:
        if _is_log_name(entry.filename):
            logs.append(_Log(entry.filename, archives.modified(entry), partial(archive.stream, entry)))
    return logs


def _file_log(path: Path, name: str) -> _Log:
    def stream(first: int) -> Iterator[bytes]:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size  # data written from now on is not read
            if size > 2 * LONGEST_FILE:
                yield from _chunks(file, LONGEST_FILE, first)
                yield b"\n"
                file.seek(-LONGEST_FILE, os.SEEK_END)
                size = LONGEST_FILE
            yield from _chunks(file, size, first)

    return _Log(name, path.stat().st_mtime, stream)


def _chunks(file: IO[bytes], size: int, chunk: int) -> Iterator[bytes]:
    while size > 0 and (data := file.read(min(chunk, size))):
        size -= len(data)
        yield data


def _is_log(path: Path) -> bool:
    return not path.is_symlink() and path.is_file() and _is_log_name(path.as_posix())


def _is_log_name(name: str) -> bool:
    # NCCL's traces are large, and show no cause that the ranks do not show.
    return name.endswith(_LOG_NAMES) and not name.endswith("nccl_debug.log")


def _read(job: FailedJob, logs: Sequence[_Log], pool: Executor, first_rank: int | None = None) -> list[LogSummary]:
    """Read in rounds until the cause is certain; ``first_rank`` is the first local rank to fail, from torchrun."""
    last, earlier = _last_attempt(logs[:_MAX_LOGS])
    groups = [last]
    if first_rank is not None:
        groups = [[log for log in last if log.rank == first_rank], [log for log in last if log.rank != first_rank]]
    summaries: list[LogSummary] = []
    for group in groups:
        for is_error in (True, False):
            if not diagnose.is_settled(job, summaries):
                summaries += _scan_all(pool, [log for log in group if log.is_error is is_error])
    if earlier and not diagnose.names_a_cause(job, summaries):
        summaries += _scan_all(pool, [log for log in earlier if log.is_error])
    summaries.sort(key=lambda summary: (summary.rank is None, summary.rank or 0))
    return summaries


def _scan_all(pool: Executor, logs: Iterable[_Log]) -> list[LogSummary]:
    return list(pool.map(_scan, sorted(logs, key=lambda log: log.order)))


def _scan(log: _Log) -> LogSummary:
    scanner = Scanner(log.name, log.rank)
    try:
        for piece in log.stream(archives.FIRST):
            scanner.feed(piece)
    except (RunbookError, OSError) as error:
        return scanner.summary(f"{log.name} could not be read to its end: {error}")
    return scanner.summary()


def _last_attempt(logs: Iterable[_Log]) -> tuple[list[_Log], list[_Log]]:
    """Return the logs of the last attempt of the last repeat (with logs without a rank), and all others.

    A repeat has a folder for each node and each attempt of the launcher: an attempt that ended minutes before the last
    one had failed.
    """
    last: list[_Log] = []
    # By folder, then by attempt.  A folder is identified by the numbers before it, its repeat, and its path.
    folders: dict[tuple[tuple[int, ...], int, str, str], dict[int, list[_Log]]] = defaultdict(lambda: defaultdict(list))
    for log in logs:
        parts = log.parts
        if parts is None:
            last.append(log)
        else:
            numbers = tuple(map(int, re.findall(r"\d{1,9}", parts["before"])))
            folder = (numbers, int(parts["repeat"]), parts["before"], parts["run"])
            folders[folder][int(parts["attempt"])].append(log)
    if not folders:
        return last, []
    ended = {}
    for folder, attempts in folders.items():
        ended[folder] = max(log.changed for log in itertools.chain(*attempts.values()))
    threshold = max(ended.values()) - _ATTEMPTS_APART
    last_repeat = max(folder[:2] for folder in folders if ended[folder] > threshold)
    earlier: list[_Log] = []
    ranks: list[_Log] = []
    for folder, attempts in folders.items():
        newest = max(attempts) if ended[folder] > threshold and folder[:2] == last_repeat else None
        for attempt, logs_of_attempt in attempts.items():
            if attempt == newest:
                ranks += logs_of_attempt
            else:
                earlier += logs_of_attempt
    return [*ranks, *last], earlier
