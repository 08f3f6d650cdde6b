"""The scanner of one log: from bytes to a summary of tracebacks, matching lines, progress.  Pure, in bounded memory.

Logs have colours, progress bars drawn with carriage returns, bytes of any kind, lines of any length, the prefixes of
GitHub, GitLab, nemo-run, torchrun and Slurm, and the interleaved output of several ranks.
"""

import math
import re

from runbook_lib.failures.evidence import DRIFT, QUOTED, SHOWN, Finding, LogSummary, MetricComparison
from runbook_lib.failures.log_lines import clean, failed_test, inner_time, parts, split, without_colours
from runbook_lib.failures.patterns import CONFIDENT, MILD, NOISE, LogPattern, literal_starts, rule_of
from runbook_lib.failures.traceback_reader import MAX_ENTRIES, LogLine, TracebackReader

LONGEST = 64 * 1024  # bytes of a line that are read
_SEARCHED = 4096  # characters of a line in which patterns are searched for
_BLOCK = 256 * 1024  # bytes that are searched for literals in one pass
_TAIL = 4096  # bytes
_MAX_TESTS = 1000  # failed tests that are named, each with its parameters
_CONTEXT = 8192  # bytes before a line from which the quoted lines are taken

_RESTART = "attempt restart"
_PYTEST_ERROR = re.compile(r"E   +(\S.{0,2000})")
_LAST_PROGRESS = re.compile(rb"(?s:.*)( iteration +(\d{1,12})/ *\d{1,12}[^\n]{0,4000})")
_LOSS = re.compile(rb"lm loss: +([-+\w.]{1,30})")
_LAST_LOSS = re.compile(rb"(?s:.*)" + _LOSS.pattern)
_NOT_FINITE = re.compile(r"lm loss: +[-+]?[nNiI]")
#: Training continues with wrong numbers.
_NUMBERS = ("regression", "golden drift")
_SUMMARY = "first observed failure"
_FIRST = re.compile(r"^ *rank +: (\d{1,6}) \(local_rank: (\d{1,6})\)")
_EXIT = re.compile(r"^ *exitcode +: (-?\d{1,6})")
_ENQUEUED = re.compile(r"Rank (\d{1,6})\].{0,400}last enqueued (?:NCCL )?work: (-?\d{1,12})")
_REPORTER = re.compile(r"\[Rank (\d{1,6})\].{0,120}\(SeqNum=(\d{1,12})")
#: The banner of NGC's images, and nvidia-smi.
_PLATFORM = re.compile(r"^NVIDIA Release \d\d\.\d\d|Driver Version: \d|nvcr\.io/nvidia/\w{1,40}:\d\d\.\d\d")
_STEP_ENDED = "##[error]Process completed"
_LONGEST_GROUP = 100  # lines of a script that GitHub prints before running it
#: Lines about the comparison of a resumed run with its first run (``run_ci_test.sh``), and about any other comparison.
_RESUME = re.compile(r"1st vs 2nd run|test_pretraining_resume_checkpoint_pipeline")
_COMPARISON = re.compile(r"against golden values|test_\w{1,80}_pipeline\.py(?:::| )")
_VALUES = re.compile(r"(Actual|Golden) values: (.{1,60000})")


class Scanner:
    """Scanner that is fed the bytes of one log in pieces, and then returns a summary."""

    def __init__(self, name: str, rank: int | None = None) -> None:
        self._name, self._rank = name, rank
        self._rest = b""
        self._cut = False
        self._number = 0  # lines before the one being read
        self._block, self._at = b"", 0  # complete lines, and the offset of the current one
        self._tail = b""
        self._start_attempt()
        self._earlier: LogSummary | None = None
        self._platform: list[str] = []

    def _start_attempt(self) -> None:
        self._log = LogSummary(self._name, self._rank)  # except for the findings
        self._reader = TracebackReader(self._lines_before)
        self._matches: dict[tuple[str, int | None], Finding] = {}
        self._tests: dict[str, Finding] = {}
        self._values: dict[str, tuple[float, ...]] = {}
        self._in_summary = False
        self._step_ended = False
        self._group = 0  # the first line of a script that is only printed
        self._drift_decided = False  # what was compared is certain

    def feed(self, data: bytes) -> None:
        """Scan the next bytes.  Only the first 64 KB of a line are read."""
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
        if len(self._rest) > LONGEST:  # for a progress bar the last state matters, otherwise the beginning
            self._rest = self._rest[self._rest.rfind(b"\r") + 1 :]
            self._cut = len(self._rest) > LONGEST
            self._rest = self._rest[:LONGEST]

    def summary(self, problem: str = "") -> LogSummary:
        """Return the summary of everything fed; ``problem`` is the reason why the log is incomplete."""
        if self._rest:
            complete = self._rest.endswith(b"\n")
            self._scan_block(self._rest if complete else self._rest + b"\n")
            self._rest = b""
        summary = self._last_attempt()
        tail = (clean(line)[:SHOWN] for line in self._tail.splitlines()[-QUOTED:])
        summary.tail = tuple(line for line in tail if line.strip())
        summary.lines, summary.problem, summary.platform = self._number, problem, tuple(self._platform)
        return summary

    def _last_attempt(self) -> LogSummary:
        """Return the summary since the launcher's last restart, or of the previous attempt if that shows no fault."""
        self._reader.close_all(self._number)
        self._log.findings = (*self._reader.found.values(), *self._matches.values(), *self._tests.values())
        return self._log if self._earlier is None or self._has_evidence() else self._earlier

    def _scan_block(self, block: bytes) -> None:
        """Scan complete lines: those with a literal of a rule, and those of an open traceback."""
        block = without_colours(block)
        self._block = block
        position = 0
        starts = literal_starts(block)
        start = next(starts, None)
        while self._reader.is_open or start is not None:
            begin = position
            if start is not None and not self._reader.is_open:
                begin = block.rfind(b"\n", position, start) + 1 or position
                self._skip(block[position:begin])
            if begin >= len(block):
                position = begin
                break
            end = block.find(b"\n", begin) + 1
            self._at = begin
            self._number += 1
            is_candidate = start is not None and start < end
            for part in parts(block[begin : end - 1]):
                self._scan_line(part[:LONGEST], is_candidate=is_candidate)
            while start is not None and start < end:
                start = next(starts, None)
            position = end
        self._skip(block[position:])
        self._tail = (self._tail + block)[-_TAIL:]

    def _skip(self, lines: bytes) -> None:
        """Skip lines without literals, except for the training's progress."""
        self._number += lines.count(b"\n")
        self._note_progress(lines)

    def _note_progress(self, block: bytes) -> None:
        progress = _LAST_PROGRESS.match(block) if b" iteration " in block else None
        if progress is None:
            return
        at = progress.start(1)
        for match in (_LOSS.search(block), _LAST_LOSS.match(block)):
            loss = _to_float(match[1]) if match else math.nan
            if math.isfinite(loss):
                self._log.losses = (self._log.losses or (loss,))[0], loss
        start = block.rfind(b"\n", 0, at) + 1
        self._log.progress = clean(block[max(start, at - 200) : progress.end()]).strip()[:SHOWN]
        self._log.iteration = int(progress[2])
        _, rank, _ = split(clean(block[start : progress.end()][:LONGEST]))
        self._forget_survived(self._rank if rank is None else rank)

    def _forget_survived(self, rank: int | None) -> None:
        """Forget the errors of a rank that kept training after them."""

        def stays(found: Finding) -> bool:
            return found.rank != rank or found.kind in _NUMBERS

        self._reader.found = {line: found for line, found in self._reader.found.items() if stays(found)}
        self._matches = {rule: found for rule, found in self._matches.items() if stays(found)}

    def _scan_line(self, raw: bytes, *, is_candidate: bool) -> None:
        text = clean(raw)
        time, rank, bare = split(text)
        line = LogLine(self._number, self._rank if rank is None else rank, time, bare, text[:SHOWN])
        if is_candidate:
            self._note_facts(bare)
        if self._reader.take(line):
            return
        if is_candidate:
            self._note_fault(line._replace(time=time or inner_time(bare)))
            if _STEP_ENDED in bare:  # later lines are consequences of its failure, if that was explained
                self._step_ended |= self._has_evidence()
        self._note_progress(raw)

    def _has_evidence(self) -> bool:
        explained = any(match.pattern and match.pattern.confidence >= CONFIDENT for match in self._matches.values())
        return bool(explained or self._reader.found or self._tests)

    def _lines_before(self, count: int) -> list[str]:
        """Return the lines before the current one, as quoted."""
        before = self._block[max(0, self._at - _CONTEXT) : self._at]
        if len(before) < _CONTEXT:
            before = self._tail + before
        return [clean(raw.rpartition(b"\r")[2])[:SHOWN] for raw in before.splitlines()[-count:] if raw.strip()]

    def _line_after(self) -> str:
        """Return the next non-blank line, as far as it has been read."""
        end = self._block.find(b"\n", self._at) + 1
        after = [raw for raw in self._block[end : end + _CONTEXT].splitlines()[:4] if raw.strip()]
        return split(clean(after[0]))[2] if after else ""

    def _note_fault(self, line: LogLine) -> None:
        if _RESTART in line.bare:
            self._earlier = self._last_attempt()
            self._start_attempt()
            return
        if self._is_shown_only(line):
            return
        bare = line.bare[:_SEARCHED]
        self._note_test(bare, line)
        error = _PYTEST_ERROR.match(bare)
        if error:
            self._reader.take_pytest_error(line, error[1])
            return
        if NOISE.search(bare):
            return
        if rule := rule_of(bare, lambda: self._lines_before(QUOTED)):
            self._note_match(rule, line._replace(bare=bare))

    def _is_shown_only(self, line: LogLine) -> bool:
        """Return True if a line belongs to a script that GitHub prints before running it."""
        if line.bare.startswith("##[group]Run "):
            self._group = line.number
        elif line.bare.startswith("##[endgroup]"):
            self._group = 0
        return bool(self._group) and line.number - self._group <= _LONGEST_GROUP

    def _note_test(self, bare: str, line: LogLine) -> None:
        name, error = failed_test(bare)
        name = name[:SHOWN]
        known = self._log.tests.get(name)
        if name and ((known is None and len(self._log.tests) < _MAX_TESTS) or (known == "" and error)):
            self._log.tests[name] = error[:SHOWN]
            if len(self._tests) < MAX_ENTRIES or name in self._tests:
                self._tests[name] = Finding("test", line.shown, (line.shown,), line.number)

    def _note_match(self, pattern: LogPattern, line: LogLine) -> None:
        found = pattern.regex.search(line.bare)
        named = found.groupdict().get("rank") if found else None
        rank = int(named) if named else line.rank
        key = (pattern.id, rank)
        known = self._matches.get(key)
        if len(self._matches) >= MAX_ENTRIES and known is None:
            return
        mild = self._step_ended or MILD.search(line.bare) is not None
        if known is None or (known.mild and not mild):
            text = line.bare
            if found and found.start() > SHOWN // 4:
                text = "…" + text[found.start() - SHOWN // 8 :]
            if text.rstrip().endswith(":"):
                text = f"{text.rstrip()} {self._line_after().strip()}"
            lines = (*self._lines_before(12), line.shown)
            self._matches[key] = Finding("line", text[:SHOWN], lines, line.number, rank, line.time, pattern, mild=mild)

    def _note_facts(self, bare: str) -> None:
        self._log.not_finite |= _NOT_FINITE.search(bare) is not None
        if _SUMMARY in bare:  # other failures are listed earlier
            self._log.first_rank, self._log.exit_code, self._in_summary = (), None, True
        if self._in_summary:
            rank, status = _FIRST.search(bare), _EXIT.search(bare)
            if rank and not self._log.first_rank:
                self._log.first_rank = int(rank[1]), int(rank[2])
            if status and self._log.exit_code is None:
                self._log.exit_code = int(status[1])
        for expression, ranks in ((_ENQUEUED, self._log.enqueued), (_REPORTER, self._log.reporters)):
            work = expression.search(bare)
            if work:
                ranks.setdefault(int(work[1]), int(work[2]))
        self._note_compared(bare)
        if len(self._platform) < MAX_ENTRIES and _PLATFORM.search(bare):
            self._platform.append(bare[:SHOWN])
        self._note_comparison(bare)

    def _note_compared(self, bare: str) -> None:
        """Note whether a comparison is that of a resumed run: the line above its failure tells, or the result below."""
        resumed = _RESUME.search(bare) is not None
        if self._drift_decided or not (resumed or _COMPARISON.search(bare)):
            return
        found = (*self._reader.found.values(), *self._matches.values())
        self._drift_decided = any(each.pattern is DRIFT for each in found)
        if not self._drift_decided or failed_test(bare)[0]:
            self._log.resumed = resumed

    def _note_comparison(self, bare: str) -> None:
        values = _VALUES.search(bare)
        if values:
            self._values[values[1]] = tuple(map(_to_float, values[2].split(",")))
            return
        failure = re.search(r"comparison of (.{1,80}): FAILED", bare)
        if failure and len(self._values) == 2:
            if len(self._log.comparisons) < MAX_ENTRIES:
                comparison = MetricComparison(failure[1], self._values["Actual"], self._values["Golden"])
                self._log.comparisons += (comparison,)
            self._values = {}


def _to_float(text: str | bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
