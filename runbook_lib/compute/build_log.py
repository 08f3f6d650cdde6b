"""The output of a build engine: the current instruction, and the failed one.  Pure.

buildah and podman print ``[2/3] STEP 4/7: RUN …``, with the stage's number in the file and the instruction's in its
stage.  docker prints ``#9 [main 3/5] RUN …``, and at the end the lines of the file, which are quoted.
"""

import re
from collections import deque
from dataclasses import dataclass, field

from runbook_lib import display
from runbook_lib.checks import Evidence
from runbook_lib.failures import known_problems
from runbook_lib.failures.known_problems import Pitfall
from runbook_lib.failures.log_lines import clean

_QUOTED_LINES = 40  # of a failed build's log
_SEARCHED_LINES = 2000  # for the explanation
_LINE_LENGTH = 4096  # characters

_STEP = re.compile(r"(?:\[\d{1,4}/\d{1,4}\] )?STEP \d{1,4}/\d{1,4}: (.+)")
_VERTEX = re.compile(r"#(\d{1,6}) (\[(?:\S{1,80} ){0,2}\d{1,4}/\d{1,4}\] (.+))")
_FAILED_VERTEX = re.compile(r"#(\d{1,6}) ERROR\b")
_STATUS = re.compile(r"(?:exit (?:status|code):?|exited with status) (\d{1,3})\b")


@dataclass(frozen=True)
class CommandFailure:
    """The reason why a program failed.  ``lines`` are the last lines of its output, without secrets."""

    sentence: str
    pitfalls: tuple[Pitfall, ...] = ()
    lines: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The reason, with the known problems in the output and how to fix them."""
        return " ".join([self.sentence, *(f"{it.sign} {it.cause} {it.fix}" for it in self.pitfalls[:2])])

    @property
    def evidence(self) -> Evidence:
        """The failure with its last lines and the known problems, to be shown."""
        pitfalls = display.rows(self.pitfalls, sign="sign", cause="cause", fix="fix")
        shown = display.note(self.sentence) + display.table(pitfalls, empty="The log shows no known problem.")
        return Evidence(shown=(shown + display.code("\n".join(self.lines), title="The last lines:"),))


@dataclass
class BuildLog:
    """A reader of a build's output, which remembers the lines that explain a failure.

    ``current`` is the last instruction that has started, as the engine writes it, such as ``STEP 2/7: RUN …``.
    """

    current: str = ""
    steps: int = 0
    _lines: deque[str] = field(default_factory=lambda: deque(maxlen=_SEARCHED_LINES))
    _vertices: dict[str, str] = field(default_factory=dict)
    _failed: str = ""

    def take(self, raw: str) -> str:
        """Process a line of the output; return the instruction that starts with it, if any."""
        line, started = clean(raw[:_LINE_LENGTH].encode("utf-8", "replace")).rstrip(), ""
        if _STEP.fullmatch(line):
            started = line
            self._lines.clear()  # buildah runs one after the other
        elif match := _VERTEX.fullmatch(line):
            started = match[2] if match[1] not in self._vertices else ""
            self._vertices[match[1]] = match[2]
        elif match := _FAILED_VERTEX.match(line):
            self._failed = self._failed or self._vertices.get(match[1], "")
        self._lines.append(line)
        if started:
            self.current, self.steps = started, self.steps + 1
        return started

    def explain(self, killed: str = "") -> CommandFailure:
        """Return the reason for the failure; ``killed`` is the signal that ended the engine itself, if any."""
        output = "\n".join(self._lines)
        step = self._failed or ("" if self._vertices else self.current)
        place = f"at {step[:200]}" if step else "before the first instruction"
        lines = [line for line in self._lines if line.strip()][-_QUOTED_LINES:]
        if killed:
            sentence = f"The build was ended by {killed} {place}. No image was tagged; run again to build it."
        elif re.search(r"[:\]] FROM ", step[:120]):
            sentence = f"The base image could not be used: {step[:200]}."
        else:
            status = "".join(f" with exit status {number}" for number in _STATUS.findall(output)[-1:])
            sentence = f"The build failed{status if step else ''} {place}."
        return CommandFailure(sentence, known_problems.find(output), tuple(lines))
