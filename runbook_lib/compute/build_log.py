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

_STEP = re.compile(r"(?:\[(\d{1,4})/\d{1,4}\] )?STEP (\d{1,4})/(\d{1,4}): (.+)")
_VERTEX = re.compile(r"#(\d{1,6}) \[(?:\S{1,40}/\S{1,40} )?(?:(\S{1,80}) )?(\d{1,4})/(\d{1,4})\] (.+)")
_FAILED_VERTEX = re.compile(r"#(\d{1,6}) (?:ERROR|CANCELED)\b")
_STATUS = re.compile(r"(?:exit (?:status|code):?|exited with status) (\d{1,3})\b")


@dataclass(frozen=True)
class BuildStep:
    """An instruction that has started: its number in its stage, and the stage's number of instructions.

    ``stage`` is the stage's number in the file (buildah, podman) or its name (docker), empty for the only one.
    """

    stage: str
    number: int
    count: int
    text: str

    def __str__(self) -> str:
        stage = f"stage {self.stage}, " if self.stage else ""
        return f"{stage}step {self.number} of {self.count}: {self.text[:160]}"


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
    """A reader of a build's output, which remembers the lines that explain a failure."""

    current: BuildStep | None = None
    steps: int = 0
    _lines: deque[str] = field(default_factory=lambda: deque(maxlen=_SEARCHED_LINES))
    _vertices: dict[str, BuildStep] = field(default_factory=dict)
    _failed: BuildStep | None = None

    def take(self, raw: str) -> BuildStep | None:
        """Process a line of the output; return the instruction that starts with it, if any."""
        line = clean(raw[:_LINE_LENGTH].encode("utf-8", "replace")).rstrip()
        started = None
        if match := _STEP.fullmatch(line):
            stage = match[1] and str(int(match[1]) - 1)
            started = BuildStep(stage or "", int(match[2]), int(match[3]), match[4])
            self._lines.clear()  # buildah runs one after the other
        elif match := _VERTEX.fullmatch(line):
            step = BuildStep(match[2] or "", int(match[3]), int(match[4]), match[5])
            if match[1] not in self._vertices:
                started = step
            self._vertices[match[1]] = step
        elif (match := _FAILED_VERTEX.match(line)) and self._failed is None and "CANCELED" not in line:
            self._failed = self._vertices.get(match[1])
        self._lines.append(line)
        if started:
            self.current, self.steps = started, self.steps + 1
        return started

    def explain(self, images: tuple[str, ...], killed: str = "") -> CommandFailure:
        """Return the reason for the failure.

        ``images`` are those that the Dockerfile pulls; ``killed`` is the signal that ended the engine itself, if any.
        """
        output = "\n".join(self._lines)
        step = self._failed
        if step is None and not self._vertices:
            step = self.current
        lines = [line for line in self._lines if line.strip()][-_QUOTED_LINES:]
        if killed:
            where = f"at {step}" if step else "before the first instruction"
            sentence = f"The build was ended by {killed} {where}. No image was tagged; run again to build it."
        elif step is None:
            named = [f", with {image}" for image in images if image in output]
            sentence = f"The build failed before the first instruction{''.join(named[:1])}."
        elif step.text.upper().startswith("FROM"):
            sentence = f"The base image could not be used: {step}."
        else:
            status = "".join(f" with exit status {number}" for number in _STATUS.findall(output)[-1:])
            sentence = f"The build failed{status} at {step}."
        return CommandFailure(sentence, known_problems.find(output), tuple(lines))
