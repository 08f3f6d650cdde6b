"""The tracebacks of one log, read line by line from the interleaved output of several ranks.  Pure.

The root of a chain of exceptions is the first that a rule explains as a cause, else the first: Python prints the oldest
first.
"""

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from runbook_lib.failures.log_lines import inner_time, is_other_output, split
from runbook_lib.failures.log_summary import QUOTED, Traceback
from runbook_lib.failures.patterns import CONSEQUENCE, NOISE, TRACEBACK, explain

SHOWN = 1000  # characters of a line that are quoted
MAX_ENTRIES = 40  # tracebacks, matching lines, or failed tests in one log
_MAX_LINES = 4000
_MAX_LATER = 200
_MAX_MESSAGE = 4000  # characters

#: The header, possibly after a remark by the program; PyTorch's checkpoints add the rank that raised.
_HEADER = re.compile(r"Traceback \(most recent call last\):(?: \(RANK (\d{1,6})\))?$")
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]{0,200}(?::|$)")
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")


#: A function that returns the last N lines before the current one.
LinesBefore = Callable[[int], list[str]]


class LogLine(NamedTuple):
    """A parsed line: ``bare`` has no prefixes, ``shown`` is the line as quoted."""

    number: int
    rank: int | None
    time: str
    bare: str
    shown: str


@dataclass
class _OpenTraceback:
    """A traceback being read.  ``lines_after`` counts from the exception's own line while more may follow."""

    head: str
    number: int
    time: str
    remark: str  # the line before it
    rank: int | None = None
    last: deque[str] = field(default_factory=lambda: deque(maxlen=QUOTED - 2))
    error: str = ""
    error_line: int = 0
    message: list[str] = field(default_factory=list)
    message_lines: list[int] = field(default_factory=list)
    in_exception: bool = False
    lines_after: int = 0
    skipping: bool = False  # a later exception of the chain
    wrapper: bool = False  # wraps an exception from another process
    count: int = 1  # number of lines of the root
    length: int = 1
    indent: str = ""
    before: list[str] = field(default_factory=list)
    later: list[str] = field(default_factory=list)  # the errors of later exceptions of the chain

    def add(self, text: str) -> None:
        if self.skipping:  # only the root is quoted
            return
        self.last.append(text)
        self.count += 1

    def finish(self, rank: int | None, end: int) -> Traceback:
        lines = [self.head, *self.last]
        if self.count > len(lines):
            lines.insert(1, f"[… {self.count - len(lines)} lines left out]")
        while lines and not lines[-1].strip():
            lines.pop()
        message = "\n".join([self.error, *self.message[:6]])
        if self.later and not _is_cause(message):
            decisive = next(filter(_is_cause, self.later), "")
            if decisive:
                lines, self.error, message = [*lines, decisive], decisive, decisive
        pattern = explain(message, self.before)
        for number, text in zip(self.message_lines, self.message[:6], strict=False):
            if pattern and not pattern.regex.search(self.error) and pattern.regex.search(text):
                self.error_line = number
                break
        consequence = "Exception ignored" in self.remark or self.wrapper or not self.error
        if CONSEQUENCE.search(self.error) or NOISE.search(message):
            consequence = True
        return Traceback(
            self.error[:SHOWN], message[:_MAX_MESSAGE], tuple(lines), self.number, rank, self.time, consequence,
            end=end, pattern=pattern, mild="WARNING" in self.remark,
            error_line=self.error_line,
        )  # fmt: skip


def _is_cause(message: str) -> bool:
    pattern = explain(message)
    return pattern is not None and pattern.tier > TRACEBACK


class TracebackReader:
    """Reader of the tracebacks of all ranks in one log; ``tracebacks`` are the completed ones."""

    def __init__(self) -> None:
        self.tracebacks: list[Traceback] = []
        self._open: dict[int | None, _OpenTraceback] = {}

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    def mark_survived(self, rank: int | None) -> None:
        """Note that a rank kept training after the tracebacks that it printed."""
        self.tracebacks = [replace(trace, survived=True) if trace.rank == rank else trace for trace in self.tracebacks]

    def close_all(self, end: int) -> None:
        """Close all tracebacks at the end of the log."""
        for rank in list(self._open):
            self._close(rank, end)

    def take(self, line: LogLine, lines_before: LinesBefore) -> bool:
        """Add a line to the traceback of its rank; return False if it belongs to none."""
        trace = self._open.get(line.rank)
        if trace is None and line.rank is None and line.bare.startswith("  File "):
            trace = self._adopt(line.number)
        if trace and trace.indent:
            line = line._replace(bare=line.bare.removeprefix(trace.indent))
        header = "Traceback (" in line.bare and _HEADER.search(line.bare.rstrip())
        if header:
            if trace and trace.in_exception and trace.skipping:
                trace.add(line.shown)
                trace.in_exception = False
            else:
                if trace and header[1]:  # the wrapped exception follows
                    trace.wrapper = True
                self._close(line.rank, line.number)
                self._open[line.rank] = _begin(line, lines_before(30))
                if header[1]:
                    self._open[line.rank].rank = int(header[1])
            return True
        if trace is None:
            return False
        if trace.error and (trace.in_exception or not trace.skipping):
            return self._take_after_exception(trace, line)
        trace.add(line.shown)
        if line.bare[:1] in (" ", "\t", "") or not _EXCEPTION.match(line.bare):  # frames
            trace.length += 1
            if trace.length > _MAX_LINES:
                self._close(line.rank, line.number)
        else:
            if trace.error and len(trace.later) < _MAX_LATER:
                trace.later.append(line.bare)
            if not trace.error:
                trace.error, trace.error_line = line.bare, line.number
            trace.in_exception = True
            trace.lines_after = 0
        return True

    def _adopt(self, number: int) -> _OpenTraceback | None:
        """Return the traceback opened on the previous line, if only its header had a rank."""
        for rank, trace in self._open.items():
            if trace.number == number - 1 and trace.count == 1:
                trace.rank = rank
                self._open[None] = self._open.pop(rank)
                return trace
        return None

    def _take_after_exception(self, trace: _OpenTraceback, line: LogLine) -> bool:
        """Add a line of an exception's message, or the remark before the next in the chain, but no other output."""
        trace.lines_after += 1
        if any(remark in line.bare for remark in _CHAINED):
            trace.add(line.shown)
            trace.skipping = True
            trace.lines_after = 0
            return True
        if trace.lines_after > 6 or (line.bare.strip() and is_other_output(line.bare)):
            self._close(line.rank, line.number)
            return False
        if line.bare.strip() and not trace.skipping:
            trace.message.append(line.bare.strip())
            trace.message_lines.append(line.number)
        trace.add(line.shown)
        return True

    def take_pytest_error(self, line: LogLine, error: str, lines_before: LinesBefore) -> None:
        """Add an ``E`` line of pytest: the first of several begins an error, the others belong to it."""
        last = self.tracebacks[-1] if self.tracebacks else None
        if last and last.by_pytest and last.rank == line.rank and line.number - last.line <= len(last.lines):
            if len(last.lines) < QUOTED:
                message = f"{last.message}\n{error}"[:_MAX_MESSAGE]
                self.tracebacks[-1] = replace(
                    last, lines=(*last.lines, line.shown), message=message, pattern=explain(message)
                )
        elif len(self.tracebacks) < MAX_ENTRIES:
            consequence = CONSEQUENCE.search(error) is not None
            lines = (*lines_before(6), line.shown)
            trace = Traceback(error, error, lines, line.number, line.rank, line.time, consequence)
            self.tracebacks.append(replace(trace, by_pytest=True, pattern=explain(error)))

    def _close(self, rank: int | None, end: int) -> None:
        trace = self._open.pop(rank, None)
        if trace is not None and len(self.tracebacks) < MAX_ENTRIES:
            self.tracebacks.append(trace.finish(trace.rank if rank is None else rank, end))


def _begin(line: LogLine, before: list[str]) -> _OpenTraceback:
    time = line.time
    for text in reversed(before[-3:]):
        if not time:
            stamp, _, bare = split(text)
            time = stamp or inner_time(bare)
    remark = before[-1] if before else ""
    indent = line.bare[: len(line.bare) - len(line.bare.lstrip())]
    return _OpenTraceback(line.shown, line.number, time, remark, indent=indent, before=before)
