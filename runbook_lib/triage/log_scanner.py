"""The scanner of one log: from its bytes to a summary of tracebacks, telling lines, progress.  Pure, in bounded memory.

Logs have colours, progress bars drawn with carriage returns, bytes of any kind, lines of any length, the prefixes of
GitHub, GitLab, nemo-run, torchrun and Slurm, and the output of several ranks between each other.
"""

import math
import re
from collections import deque
from dataclasses import replace

from runbook_lib.triage import evidence
from runbook_lib.triage.log_lines import clean, inner_time, parts, split
from runbook_lib.triage.log_summary import QUOTED, LineMatch, LogSummary, MetricComparison
from runbook_lib.triage.patterns import LINES, NOISE, PLAIN, RANK_STEMS, STEMS
from runbook_lib.triage.traceback_reader import MAX_ENTRIES, SHOWN, LogLine, TracebackReader

LONGEST = 64 * 1024  # bytes of a line that are read
_SEARCHED = 4096  # characters of a line in which patterns are searched for
_BLOCK = 16 * 1024  # bytes that are skipped or scanned together
_TAIL = 4096  # bytes

_RESTART = "attempt restart"
_TEST = re.compile(r"(?:FAILED|ERROR) (tests/\S{1,300})")
_PYTEST_ERROR = re.compile(r"E   +(\S.{0,2000})")
_PROGRESS = re.compile(rb" iteration +(\d{1,12})/ *\d{1,12}[^\n]{0,4000}")
_LOSS = re.compile(rb"lm loss: +([-+\w.]{1,30})")
_NOT_FINITE = re.compile(rb"lm loss: +[-+]?[nNiI]")
_ARGUMENT = re.compile(
    r"\b(tensor|pipeline|context|expert)[-_](?:model[-_])?parallel(?:[-_]size|[- ]size)[ :.=]{1,80}(\d{1,5})\b"
)
#: Training goes on with wrong numbers.
_NUMBERS = ("regression", "golden drift")
_SHORT = {"tensor": "TP", "pipeline": "PP", "context": "CP", "expert": "EP"}
_SUMMARY = "first observed failure"
_FIRST = re.compile(r"^ *rank +: (\d{1,6}) \(local_rank: (\d{1,6})\)")
_EXIT = re.compile(r"^ *exitcode +: (-?\d{1,6})")
_ENQUEUED = re.compile(r"Rank (\d{1,6})\].{0,400}last enqueued (?:NCCL )?work: (-?\d{1,12})")
#: Lines about the comparison of a resumed run with its first run (``run_ci_test.sh``), and about any other comparison.
_RESUME = re.compile(r"1st vs 2nd run|test_pretraining_resume_checkpoint_pipeline")
_COMPARISON = re.compile(r"against golden values|test_\w{1,80}_pipeline\.py(?:::| )")
_VALUES = re.compile(r"(Actual|Golden) values: (.{1,60000})")


class Scanner:
    """Scanner that takes the bytes of one log in pieces, and then gives their summary."""

    def __init__(self, name: str, rank: int | None = None) -> None:
        self._name, self._rank = name, rank
        self._stems = RANK_STEMS if rank else STEMS
        self._rest = b""
        self._cut = False
        self._number = 0  # lines before the one being read
        self._tail = b""
        self._clear()
        self._earlier: LogSummary | None = None
        self._parallelism: dict[str, str] = {}

    def _clear(self) -> None:
        self._reader = TracebackReader()
        self._matches: list[LineMatch] = []
        self._tests: dict[str, None] = {}
        self._recent: deque[bytes] = deque(maxlen=12)
        self._comparisons: list[MetricComparison] = []
        self._values: dict[str, tuple[float, ...]] = {}
        self._progress = b""
        self._iteration: int | None = None
        self._losses: tuple[float, float] | None = None
        self._not_finite = False
        self._first_rank: tuple[int, int] | None = None
        self._exit: int | None = None
        self._in_summary = False
        self._enqueued: dict[int, int] = {}
        #: Line, of a result, of a resumed run.
        self._comparison_lines: deque[tuple[int, bool, bool]] = deque(maxlen=1000)

    def feed(self, data: bytes) -> None:
        """Scan the next bytes.  Of a line of any length, the first 64 KB are read."""
        if self._cut:  # within a line that is too long
            end = data.find(b"\n")
            if end < 0:
                return
            data, self._cut = data[end:], False
        data = self._rest + data
        start = 0
        while end := data.rfind(b"\n", start, start + _BLOCK) + 1 or data.find(b"\n", start) + 1:
            self._scan_block(data[start:end])
            start = end
        self._rest = data[start:]
        if len(self._rest) > LONGEST:  # of a progress bar the last state matters, else the beginning
            self._rest = self._rest[self._rest.rfind(b"\r") + 1 :]
            self._cut = len(self._rest) > LONGEST
            self._rest = self._rest[:LONGEST]

    def summary(self, problem: str = "") -> LogSummary:
        """Return the summary of all that was fed; ``problem`` is why that is not the complete log."""
        if self._rest:
            self._scan_block(self._rest)
            self._number += not self._rest.endswith(b"\n")
            self._rest = b""
        summary = self._last_attempt()
        tail = [clean(line)[:SHOWN] for line in self._tail.splitlines()[-QUOTED:]]
        return replace(
            summary, tail=tuple(line for line in tail if line.strip()), lines=self._number, problem=problem,
            parallelism=self._parallelism,
        )  # fmt: skip

    def _last_attempt(self) -> LogSummary:
        """Return the summary since the launcher's last restart, or of the attempt before if that names no fault."""
        self._reader.close_all(self._number)
        summary = LogSummary(
            self._name, self._rank, tuple(self._reader.tracebacks), tuple(self._matches), tuple(self._tests), {},
            tuple(self._comparisons), clean(self._progress).strip()[:SHOWN], self._iteration, self._losses,
            self._not_finite, self._first_rank, self._exit, self._enqueued,
        )  # fmt: skip
        drift = evidence.golden_drift([summary])
        if drift is not None:
            summary = replace(summary, resumed=self._is_of_resumed_run(drift[1].line))
        return summary if self._earlier is None or _names_a_fault(summary) else self._earlier

    def _is_of_resumed_run(self, line: int) -> bool:
        """Report if a failed comparison is that of a resumed run: by the result below it, else by the lines above."""
        above = [resumed for number, _, resumed in self._comparison_lines if number <= line]
        below = [(result, resumed) for number, result, resumed in self._comparison_lines if number > line]
        if below and below[0][0]:
            return below[0][1]
        return bool(above) and above[-1]

    def _scan_block(self, block: bytes) -> None:
        """Scan complete lines.  Most blocks have nothing that matters, and are not taken apart."""
        if self._reader.is_open or any(stem in block for stem in self._stems):
            if not self._recent and self._tail:
                self._recent.extend(self._tail.splitlines()[-6:])
            lines = block.split(b"\n")
            if block.endswith(b"\n"):
                lines.pop()
            for raw in lines:
                self._number += 1
                for part in parts(raw):
                    self._scan_line(part)
        else:
            self._number += block.count(b"\n")
            self._recent.clear()
            self._note_progress(block)
        self._tail = (self._tail + block)[-_TAIL:]

    def _note_progress(self, block: bytes) -> None:
        if b"lm loss" in block:
            self._not_finite |= _NOT_FINITE.search(block) is not None
            for match in (_LOSS.search(block), _LOSS.search(block, block.rfind(b"lm loss"))):
                loss = _to_float(match[1].decode("latin-1")) if match else math.nan
                if math.isfinite(loss):
                    self._losses = (self._losses[0] if self._losses else loss, loss)
        at = block.rfind(b" iteration ")
        progress = _PROGRESS.search(block, at) if at >= 0 else None
        if progress:
            start = block.rfind(b"\n", 0, at) + 1
            self._progress = block[max(start, at - 200) : progress.end()]
            self._iteration = int(progress[1])
            _, rank, _ = split(clean(block[start : progress.end()][:LONGEST]))
            self._mark_survived(self._rank if rank is None else rank)

    def _mark_survived(self, rank: int | None) -> None:
        """Note that a rank trains on after what it printed."""
        self._reader.mark_survived(rank)
        for number, match in enumerate(self._matches):
            if match.rank == rank and match.pattern.kind not in _NUMBERS:
                self._matches[number] = replace(match, survived=True)

    def _scan_line(self, raw: bytes) -> None:
        telling = any(stem in raw for stem in STEMS)
        if (telling or self._reader.is_open) and self._read_line(raw[:LONGEST], telling=telling):
            return
        if b" iteration " in raw:
            self._note_progress(raw)
        if raw.strip():
            self._recent.append(raw[:SHOWN])

    def _read_line(self, raw: bytes, *, telling: bool) -> bool:
        """Take a line apart; return True where it belongs to a traceback."""
        text = clean(raw)
        time, rank, bare = split(text)
        line = LogLine(self._number, self._rank if rank is None else rank, time, bare, text[:SHOWN])
        if telling:
            self._note_facts(bare)
        if self._reader.take(line, self._lines_before):
            return True
        if telling:
            self._note_fault(line._replace(time=time or inner_time(bare)))
        return False

    def _lines_before(self, count: int) -> list[str]:
        """Return the lines before the one being read, as they are quoted."""
        return [clean(raw)[:SHOWN] for raw in list(self._recent)[-count:]]

    def _note_fault(self, line: LogLine) -> None:
        if _RESTART in line.bare:
            self._earlier = self._last_attempt()
            self._clear()
            return
        test = _TEST.search(line.bare)
        if test:
            if len(self._tests) < MAX_ENTRIES:
                self._tests[test[1]] = None
            return
        error = _PYTEST_ERROR.match(line.bare)
        if error:
            self._reader.take_pytest_error(line, error[1], self._lines_before)
            return
        bare = line.bare[:_SEARCHED]
        if NOISE.search(bare) or len(self._matches) >= MAX_ENTRIES:
            return
        pattern = next((pattern for pattern in LINES if pattern.regex.search(bare)), None)
        if pattern is not None and all(match.pattern != pattern for match in self._matches):
            lines = (*self._lines_before(12), line.shown)
            self._matches.append(LineMatch(pattern, bare[:SHOWN], lines, line.number, line.rank, line.time))

    def _note_facts(self, bare: str) -> None:
        for name, size in arguments(bare).items():
            self._parallelism.setdefault(name, size)
        if _SUMMARY in bare:  # other failures are listed before
            self._first_rank = self._exit = None
            self._in_summary = True
        if self._in_summary:
            rank, status = _FIRST.search(bare), _EXIT.search(bare)
            if rank and self._first_rank is None:
                self._first_rank = int(rank[1]), int(rank[2])
            if status and self._exit is None:
                self._exit = int(status[1])
        work = _ENQUEUED.search(bare)
        if work:
            self._enqueued.setdefault(int(work[1]), int(work[2]))
        resumed = _RESUME.search(bare) is not None
        if resumed or _COMPARISON.search(bare):
            self._comparison_lines.append((self._number, _TEST.search(bare) is not None, resumed))
        self._note_comparison(bare)

    def _note_comparison(self, bare: str) -> None:
        values = _VALUES.search(bare)
        if values:
            self._values[values[1]] = tuple(map(_to_float, values[2].split(",")))
            return
        failure = re.search(r"comparison of (.{1,80}): FAILED", bare)
        if failure and len(self._values) == 2:
            if len(self._comparisons) < MAX_ENTRIES:
                comparison = MetricComparison(failure[1], self._values["Actual"], self._values["Golden"])
                self._comparisons.append(comparison)
            self._values = {}


def arguments(text: str) -> dict[str, str]:
    """Return the sizes of the parallelism (TP, PP, CP, EP) in the arguments that rank 0 prints."""
    sizes: dict[str, str] = {}
    for match in _ARGUMENT.finditer(text):
        sizes.setdefault(_SHORT[match[1]], match[2])
    return sizes


def _names_a_fault(log: LogSummary) -> bool:
    return bool(log.tracebacks or log.failed_tests or any(match.pattern not in PLAIN for match in log.matches))


def _to_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
