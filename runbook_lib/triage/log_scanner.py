"""One log, from its bytes to what it tells: tracebacks, telling lines, progress.  Pure, and in bounded memory.

Logs come as they are: colours, progress bars drawn with carriage returns, bytes of any kind, lines of any length,
the prefixes of GitHub, GitLab, nemo-run, torchrun and Slurm, and the output of several ranks between each other.
Where a chain of exceptions was printed, the first of it is the root: Python prints the oldest first.
"""

import math
import re
from collections import deque
from dataclasses import dataclass, field, replace

from runbook_lib.triage.log_lines import clean, foreign, inner_time, parts, split
from runbook_lib.triage.log_summary import QUOTED, Comparison, Hit, Reading, Traceback
from runbook_lib.triage.patterns import CONSEQUENCE, LINES, NOISE, PLAIN, RANK_STEMS, STEMS

LONGEST = 64 * 1024  # bytes of a line that are looked at
_SEARCHED = 4096  # characters of a line in which patterns are looked for
_SHOWN = 1000  # characters of a line that are quoted
_BLOCK = 16 * 1024  # bytes that are passed over or looked at together
_LONGEST_TRACEBACK = 4000  # lines
_MOST = 40  # tracebacks, telling lines, or failed tests of one log

_HEADER = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]{0,200}(?::|$)")
_FRAME = re.compile(r'File "([^"]{1,400})", line \d{1,7}, in (\S{1,100})')
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_AGAIN = "attempt restart"
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
_VALUES = re.compile(r"(Actual|Golden) values: (.{1,60000})")


@dataclass
class _Open:
    """A traceback that is being read."""

    head: list[str]
    last: deque[str]
    line: int
    time: str
    noted: bool  # a remark before it says that it is of no importance
    error: str = ""
    message: list[str] = field(default_factory=list)
    chained: int = -1  # lines since the exception's own, while a further exception of the chain may follow
    skipping: bool = False  # a later exception of the chain
    count: int = 1  # lines of the root
    length: int = 1
    frames: list[tuple[str, str]] = field(default_factory=list)

    def add(self, text: str) -> None:
        if self.skipping:  # the root is what is quoted
            return
        self.last.append(text)
        self.count += 1
        if 'File "' in text and len(self.frames) < 200 and (found := _FRAME.search(text)):
            self.frames.append((found[1], found[2]))


class Scanner:
    """Takes the bytes of one log in pieces, and then gives its reading."""

    def __init__(self, name: str, rank: int | None = None) -> None:
        self._name, self._rank = name, rank
        self._stems = RANK_STEMS if rank else STEMS
        self._rest = b""
        self._cut = False
        self._number = 0  # lines before the one being read
        self._tail = b""
        self._clear()
        self._earlier: Reading | None = None
        self._parallelism: dict[str, str] = {}

    def _clear(self) -> None:
        self._tracebacks: list[Traceback] = []
        self._hits: list[Hit] = []
        self._tests: dict[str, None] = {}
        self._open: dict[int | None, _Open] = {}
        self._recent: deque[bytes] = deque(maxlen=12)
        self._comparisons: list[Comparison] = []
        self._values: dict[str, tuple[float, ...]] = {}
        self._progress = b""
        self._iteration: int | None = None
        self._losses: tuple[float, float] | None = None
        self._not_finite = False
        self._first_rank: tuple[int, int] | None = None
        self._exit: int | None = None
        self._summary = False
        self._enqueued: dict[int, int] = {}

    def feed(self, data: bytes) -> None:
        """Read on.  Of a line of any length, the first 64 KB are kept."""
        if self._cut:  # within a line that is too long
            end = data.find(b"\n")
            if end < 0:
                return
            data, self._cut = data[end:], False
        data = self._rest + data
        start = 0
        while end := data.rfind(b"\n", start, start + _BLOCK) + 1 or data.find(b"\n", start) + 1:
            self._block(data[start:end])
            start = end
        self._rest = data[start:]
        if len(self._rest) > LONGEST:  # of a progress bar the last state is of interest, else the beginning
            self._rest = self._rest[self._rest.rfind(b"\r") + 1 :]
            self._cut = len(self._rest) > LONGEST
            self._rest = self._rest[:LONGEST]

    def reading(self, problem: str = "") -> Reading:
        """What has been read; ``problem`` where that is not the whole log."""
        if self._rest:
            self._block(self._rest)
            self._number += not self._rest.endswith(b"\n")
            self._rest = b""
        now = self._section()
        kept = now if self._earlier is None or _tells(now) else self._earlier
        tail = [clean(line)[:_SHOWN] for line in self._tail[-4096:].splitlines()[-QUOTED:]]
        return replace(
            kept, tail=tuple(line for line in tail if line.strip()), lines=self._number, problem=problem,
            parallelism=self._parallelism,
        )  # fmt: skip

    def _section(self) -> Reading:
        for rank in list(self._open):
            self._close(rank)
        return Reading(
            self._name, self._rank, tuple(self._tracebacks), tuple(self._hits), tuple(self._tests), {},
            tuple(self._comparisons), clean(self._progress).strip()[:_SHOWN], self._iteration, self._losses,
            self._not_finite, self._first_rank, self._exit, self._enqueued,
        )  # fmt: skip

    def _block(self, block: bytes) -> None:
        """Whole lines.  Most blocks hold nothing of interest, and are not taken apart."""
        if not block:
            return
        if self._open or any(stem in block for stem in self._stems):
            if not self._recent and self._tail:
                self._recent.extend(self._tail.splitlines()[-6:])
            for raw in block.split(b"\n")[: -1 if block.endswith(b"\n") else None]:
                self._number += 1
                for part in parts(raw):
                    self._line(part)
        else:
            self._number += block.count(b"\n")
            self._recent.clear()
            self._advance(block)
        self._tail = (self._tail + block)[-4096:] if len(block) < 4096 else block[-4096:]

    def _advance(self, block: bytes) -> None:
        """Progress and losses within these bytes."""
        if b"lm loss" in block:
            self._not_finite |= _NOT_FINITE.search(block) is not None
            for found in (_LOSS.search(block), _LOSS.search(block, block.rfind(b"lm loss"))):
                if found and math.isfinite(loss := _number(found[1].decode("latin-1"))):
                    self._losses = (self._losses[0] if self._losses else loss, loss)
        at = block.rfind(b" iteration ")
        found_progress = _PROGRESS.search(block, at) if at >= 0 else None
        if found_progress:
            start = block.rfind(b"\n", 0, at) + 1
            self._progress = block[max(start, at - 200) : found_progress.end()]
            self._iteration = int(found_progress[1])
            self._trained_on(split(clean(block[start : found_progress.end()][:LONGEST]))[1])

    def _trained_on(self, rank: int | None) -> None:
        """A rank that trains on has survived what it printed before."""
        rank = self._rank if rank is None else rank
        self._tracebacks = [replace(it, survived=True) if it.rank == rank else it for it in self._tracebacks]
        self._hits = [
            replace(it, survived=True) if it.rank == rank and it.pattern.kind not in _NUMBERS else it
            for it in self._hits
        ]

    def _line(self, raw: bytes) -> None:
        telling = any(stem in raw for stem in STEMS)
        if (telling or self._open) and self._looked_at(raw[:LONGEST], telling):
            return
        if b" iteration " in raw:
            self._advance(raw)
        if raw.strip():
            self._recent.append(raw[:_SHOWN])

    def _looked_at(self, raw: bytes, telling: bool) -> bool:
        """Whether a line was taken into a traceback; else it has been noted if it is telling."""
        text = clean(raw)
        time, rank, bare = split(text)
        rank = self._rank if rank is None else rank
        shown = text[:_SHOWN]
        if telling:
            self._facts(bare)
        opened = rank in self._open or bare.lstrip().startswith(_HEADER)
        if opened and self._in_traceback(rank, bare, shown, time):
            return True
        if telling:
            self._telling(rank, bare, shown, time or inner_time(bare))
        return False

    def _near(self, count: int) -> list[str]:
        """The lines before the one being read, as they are shown."""
        return [clean(raw)[:_SHOWN] for raw in list(self._recent)[-count:]]

    # -- tracebacks ---------------------------------------------------------------------------------------------

    def _in_traceback(self, rank: int | None, bare: str, shown: str, time: str) -> bool:
        """Take a line into the traceback of its rank; False where it belongs to none."""
        now = self._open.get(rank)
        if bare.lstrip().startswith(_HEADER):
            if now and now.chained >= 0 and now.skipping:
                now.add(shown)
                now.chained = -1
            else:
                self._close(rank)
                self._begin(rank, shown, time)
            return True
        if now is None:
            return False
        if not now.error or (now.skipping and now.chained < 0):  # frames, until a line that is not indented
            if bare[:1] in (" ", "\t", "") or not _EXCEPTION.match(bare):
                now.add(shown)
                now.length += 1
                if now.length > _LONGEST_TRACEBACK:
                    self._close(rank)
                return True
            now.error = now.error or bare
            now.chained = 0
            now.add(shown)
            return True
        return self._after_exception(rank, now, bare, shown)

    def _after_exception(self, rank: int | None, now: _Open, bare: str, shown: str) -> bool:
        """A line below the exception's own: more of its message, a further exception of the chain, or other output."""
        now.chained += 1
        if any(mark in bare for mark in _CHAINED):
            now.add(shown)
            now.skipping = True
            now.chained = 0
            return True
        if now.chained > 6 or (bare.strip() and foreign(bare)):
            self._close(rank)
            return False
        if bare.strip() and not now.skipping:
            now.message.append(bare.strip())
        now.add(shown)
        return True

    def _begin(self, rank: int | None, shown: str, time: str) -> None:
        near = self._near(3)
        times = (found for it in reversed(near) if (found := split(it)[0] or inner_time(split(it)[2])))
        told = time or next(times, "")
        noted = any("Exception ignored" in it or "WARNING" in it for it in near[-1:])
        self._open[rank] = _Open([shown], deque(maxlen=QUOTED - 2), self._number, told, noted)

    def _close(self, rank: int | None) -> None:
        it = self._open.pop(rank, None)
        if it is None or len(self._tracebacks) >= _MOST:
            return
        lines = [*it.head, *it.last]
        if it.count > len(lines):
            lines.insert(1, f"[… {it.count - len(lines)} lines left out]")
        while lines and not lines[-1].strip():
            lines.pop()
        message = "\n".join([it.error, *it.message[:6]])
        consequence = it.noted or not it.error or bool(CONSEQUENCE.search(it.error) or NOISE.search(message))
        self._tracebacks.append(
            Traceback(
                it.error[:_SHOWN],
                message[:4000],
                tuple(lines),
                it.line,
                rank,
                it.time,
                consequence,
                frames=tuple(it.frames),
                end=self._number,
            )
        )

    # -- other lines --------------------------------------------------------------------------------------------

    def _telling(self, rank: int | None, bare: str, shown: str, time: str) -> None:
        if _AGAIN in bare:  # the launcher starts anew: what was before counts only if nothing follows
            before = self._section()
            self._earlier = before if self._earlier is None or _tells(before) else self._earlier
            self._clear()
            return
        if found := _TEST.search(bare):
            if len(self._tests) < _MOST:
                self._tests[found[1]] = None
            return
        if (error := _PYTEST_ERROR.match(bare)) and self._of_pytest(rank, error[1], shown, time):
            return
        bare = bare[:_SEARCHED]
        if NOISE.search(bare) or len(self._hits) >= _MOST:
            return
        seen = {it.pattern for it in self._hits}
        for pattern in LINES:
            if pattern.regex.search(bare):
                if pattern not in seen:
                    lines = (*self._near(12), shown)
                    self._hits.append(Hit(pattern, bare[:_SHOWN], lines, self._number, rank, time))
                return

    def _of_pytest(self, rank: int | None, error: str, shown: str, time: str) -> bool:
        """An ``E`` line: the first of several begins an error, the others belong to it."""
        last = self._tracebacks[-1] if self._tracebacks else None
        near = last is not None and self._number - last.line <= len(last.lines)
        if last and near and last.by_pytest and last.rank == rank:
            if len(last.lines) < QUOTED:
                more = f"{last.message}\n{error}"[:4000]
                self._tracebacks[-1] = replace(last, lines=(*last.lines, shown), message=more)
        elif len(self._tracebacks) < _MOST:
            lines = (*self._near(6), shown)
            consequence = bool(CONSEQUENCE.search(error))
            self._tracebacks.append(
                Traceback(error, error, lines, self._number, rank, time, consequence, by_pytest=True)
            )
        return True

    def _facts(self, bare: str) -> None:
        for name, size in arguments(bare).items():
            self._parallelism.setdefault(name, size)
        if _SUMMARY in bare:  # other failures are listed before
            self._first_rank = self._exit = None
            self._summary = True
        if (found_rank := _FIRST.search(bare)) and self._summary and self._first_rank is None:
            self._first_rank = int(found_rank[1]), int(found_rank[2])
        if (found_exit := _EXIT.search(bare)) and self._summary and self._exit is None:
            self._exit = int(found_exit[1])
        if found_work := _ENQUEUED.search(bare):
            self._enqueued.setdefault(int(found_work[1]), int(found_work[2]))
        if found_values := _VALUES.search(bare):
            self._values[found_values[1]] = tuple(_number(it) for it in found_values[2].split(","))
        elif (failed := re.search(r"comparison of (.{1,80}): FAILED", bare)) and len(self._values) == 2:
            if len(self._comparisons) < _MOST:
                self._comparisons.append(Comparison(failed[1], self._values["Actual"], self._values["Golden"]))
            self._values = {}


def arguments(text: str) -> dict[str, str]:
    """The sizes of the parallelism (TP, PP, CP, EP) in what rank 0 prints of its arguments."""
    return {_SHORT[found[1]]: found[2] for found in reversed(list(_ARGUMENT.finditer(text)))}


def _tells(it: Reading) -> bool:
    return bool(it.tracebacks or it.failed_tests or any(hit.pattern not in PLAIN for hit in it.hits))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
