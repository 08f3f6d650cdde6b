"""The exceptions in one log, read line by line from the interleaved output of several ranks.  Pure.

The root of a chain of exceptions is the first that a rule explains as a cause, else the first: Python prints the oldest
first.
"""

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from runbook_lib.failures.evidence import QUOTED, Finding, as_cause
from runbook_lib.failures.log_lines import inner_time, is_other_output, split
from runbook_lib.failures.patterns import CONSEQUENCE, NOISE, TRACEBACK, explain

MAX_ENTRIES = 40  # exceptions, matching lines, or failed tests in one log
_MAX_LINES = 4000
_MAX_MESSAGE = 4000  # characters
_AFTER = 6  # lines of an exception's message, or between two exceptions of a chain

#: The header, possibly after a remark by the program; PyTorch's checkpoints add the rank that raised.
_HEADER = re.compile(r"Traceback \(most recent call last\):(?: \(RANK (\d{1,6})\))?$")
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]{0,200}(?::|$)")
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")


class LogLine(NamedTuple):
    """A parsed line: ``bare`` has no prefixes, ``shown`` is the line as quoted."""

    number: int
    rank: int | None
    time: str
    bare: str
    shown: str


@dataclass
class _OpenTraceback:
    """A traceback being read: its frames, and then the ``message`` of its exception, with the lines' numbers."""

    header: LogLine
    before: list[str]  # the lines before it
    rank: int | None
    root: int | None  # the first exception of its chain, if it is a later one
    last: deque[str] = field(default_factory=lambda: deque(maxlen=QUOTED - 2))
    message: list[tuple[int, str]] = field(default_factory=list)
    count: int = 1
    after: int = 0  # lines after the exception's own line, while more may follow
    chained: bool = False  # the next exception of the chain follows
    wrapper: bool = False  # wraps an exception from another process

    def add(self, text: str) -> None:
        self.last.append(text)
        self.count += 1

    def finish(self, end: int) -> Finding:
        remark = self.before[-1] if self.before else ""
        message = "\n".join(text for _, text in self.message)
        pattern = explain(message, self.before)
        line, error = self.message[0] if self.message else (self.header.number, "")
        consequence = "Exception ignored" in remark or self.wrapper or not error or bool(CONSEQUENCE.search(error))
        consequence = consequence or bool(NOISE.search(message))
        if pattern and (not consequence or pattern.kind == "program error"):
            pattern = as_cause(pattern)
        if pattern:
            line = next((number for number, text in self.message if pattern.regex.search(text)), line)
        return Finding(
            "exception", message[:_MAX_MESSAGE], self._quoted(), line, self.rank, self._time(), pattern, end,
            mild="WARNING" in remark, consequence=consequence,
        )  # fmt: skip

    def _quoted(self) -> tuple[str, ...]:
        lines = [self.header.shown, *self.last]
        if self.count > len(lines):
            lines.insert(1, f"[… {self.count - len(lines)} lines left out]")
        while lines and not lines[-1].strip():
            lines.pop()
        return tuple(lines)

    def _time(self) -> str:
        """Return the time of the header, or of one of the lines before it."""
        time = self.header.time
        for text in reversed(self.before[-3:]):
            if not time:
                stamp, _, bare = split(text)
                time = stamp or inner_time(bare)
        return time


class TracebackReader:
    """Reader of the tracebacks of all ranks in one log; ``found`` are the complete ones, by the line of the header.

    ``lines_before`` returns the last N lines before the current one.
    """

    def __init__(self, lines_before: Callable[[int], list[str]]) -> None:
        self.found: dict[int, Finding] = {}
        self._lines_before = lines_before
        self._open: dict[int | None, _OpenTraceback] = {}

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    def close_all(self, end: int) -> None:
        """Close all tracebacks at the end of the log."""
        for rank in list(self._open):
            self._close(rank, end)

    def take(self, line: LogLine) -> bool:
        """Add a line to the traceback of its rank; return False if it belongs to none."""
        trace = self._open.get(line.rank)
        if trace is None and line.rank is None and line.bare.startswith("  File "):
            trace = self._adopt(line.number)
        if "Traceback (" in line.bare and (header := _HEADER.search(line.bare.rstrip())):
            self._begin(line, header[1])
            return True
        if trace is None:
            return False
        first = trace.header.bare
        line = line._replace(bare=line.bare.removeprefix(first[: len(first) - len(first.lstrip())]))
        if trace.message:
            return self._take_after_exception(trace, line)
        trace.add(line.shown)
        if line.bare[:1] not in (" ", "\t", "") and _EXCEPTION.match(line.bare):
            trace.message.append((line.number, line.bare))
        elif trace.count > _MAX_LINES:
            self._close(line.rank, line.number)
        return True

    def _begin(self, line: LogLine, raised_by: str | None) -> None:
        before = self._lines_before(QUOTED) if len(self.found) < MAX_ENTRIES else []
        previous = self._open.get(line.rank)
        if previous and raised_by:  # the wrapped exception follows
            previous.wrapper = True
        closed = self._close(line.rank, line.number)
        root = closed if previous and previous.chained else None
        rank = int(raised_by) if raised_by else line.rank
        self._open[line.rank] = _OpenTraceback(line, before, rank, root)

    def _adopt(self, number: int) -> _OpenTraceback | None:
        """Return the traceback opened on the previous line, if only its header had a rank."""
        for rank, trace in self._open.items():
            if trace.header.number == number - 1 and trace.count == 1:
                self._open[None] = self._open.pop(rank)
                return trace
        return None

    def _take_after_exception(self, trace: _OpenTraceback, line: LogLine) -> bool:
        """Add a line of an exception's message, or the remark before the next in the chain, but no other output."""
        trace.after += 1
        if any(remark in line.bare for remark in _CHAINED):
            trace.add(line.shown)
            trace.chained = True
            trace.after = 0
        elif trace.after > _AFTER or is_other_output(line.bare) or CONSEQUENCE.search(line.bare):
            self._close(line.rank, line.number)
            return False
        elif not trace.chained:
            trace.add(line.shown)
            if text := line.bare.strip():
                trace.message.append((line.number, text))
        return True

    def _close(self, rank: int | None, end: int) -> int | None:
        """Close the traceback of a rank; return the line of its chain's first header."""
        trace = self._open.pop(rank, None)
        if trace is None:
            return None
        if trace.root is None:
            if len(self.found) < MAX_ENTRIES:
                self.found[trace.header.number] = trace.finish(end)
            return trace.header.number
        if root := self.found.get(trace.root):
            found = trace.finish(end)
            if _is_cause(found) and not _is_cause(root):
                lines = (*root.lines[: QUOTED - 1], found.text)
                root = replace(root, message=found.message, lines=lines, line=found.line, pattern=found.pattern)
            self.found[trace.root] = replace(root, end=end)
        return trace.root

    def take_pytest_error(self, line: LogLine, error: str) -> None:
        """Add an ``E`` line of pytest: the first of several begins an error, the others belong to it."""
        key, last = next(reversed(self.found.items()), (0, None))
        if last and last.form == "pytest" and last.rank == line.rank and line.number - last.line <= len(last.lines):
            if len(last.lines) < QUOTED:
                message = f"{last.message}\n{error}"[:_MAX_MESSAGE]
                pattern = as_cause(explain(message))
                self.found[key] = replace(last, lines=(*last.lines, line.shown), message=message, pattern=pattern)
        elif len(self.found) < MAX_ENTRIES:
            consequence = CONSEQUENCE.search(error) is not None
            lines = (*self._lines_before(6), line.shown)
            self.found[line.number] = Finding(
                "pytest", error, lines, line.number, line.rank, line.time, as_cause(explain(error)),
                consequence=consequence,
            )  # fmt: skip


def _is_cause(found: Finding) -> bool:
    return found.pattern is not None and found.pattern.tier > TRACEBACK
