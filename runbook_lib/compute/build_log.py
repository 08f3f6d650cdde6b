"""The output of a build engine: the current instruction, and the failed one.  Pure.

buildah and podman print ``[2/3] STEP 4/7: RUN …``, with the stage's number in the file and the instruction's in its
stage.  docker prints ``#9 [main 3/5] RUN …``, and on failure the line of the file.
"""

import re
from collections import deque
from dataclasses import dataclass, field

from runbook_lib.failures import known_problems
from runbook_lib.failures.known_problems import Pitfall
from runbook_lib.failures.log_lines import clean
from runbook_lib.text.dockerfile_syntax import Instruction, instructions

_QUOTED_LINES = 40  # of a failed build's log
_SEARCHED_LINES = 2000  # for the explanation
_LINE_LENGTH = 4096  # characters

_STEP = re.compile(r"(?:\[(\d{1,4})/\d{1,4}\] )?STEP (\d{1,4})/(\d{1,4}): (.+)")
_VERTEX = re.compile(r"#(\d{1,6}) \[(?:\S{1,40}/\S{1,40} )?(?:(\S{1,80}) )?(\d{1,4})/(\d{1,4})\] (.+)")
_FAILED_VERTEX = re.compile(r"#(\d{1,6}) (?:ERROR|CANCELED)\b")
_FAILED_LINE = re.compile(r"\S{1,400}:(\d{1,6})")
_STATUS = re.compile(r"(?:exit (?:status|code):?|exited with status) (\d{1,3})\b")
_FRAME = re.compile(r"-{6,}")


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
class BuildFailure:
    """The reason for a failed build.  ``place`` is ``Dockerfile:line`` of the failed instruction, empty if none did.

    ``lines`` are the last lines of its output, without secrets.
    """

    sentence: str
    instruction: str = ""
    place: str = ""
    pitfalls: tuple[Pitfall, ...] = ()
    lines: tuple[str, ...] = ()


@dataclass
class BuildLog:
    """A reader of a build's output, which remembers the lines that explain a failure."""

    current: BuildStep | None = None
    steps: int = 0
    _lines: deque[str] = field(default_factory=lambda: deque(maxlen=_SEARCHED_LINES))
    _vertices: dict[str, BuildStep] = field(default_factory=dict)
    _failed: BuildStep | None = None
    _failed_line: int = 0  # in the Dockerfile, according to docker

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
        elif (match := _FAILED_LINE.fullmatch(line)) and self._lines and _FRAME.fullmatch(self._lines[-1]):
            self._failed_line = int(match[1])
        self._lines.append(line)
        if started:
            self.current, self.steps = started, self.steps + 1
        return started

    def explain(self, path: str, text: str, images: tuple[str, ...], killed: str = "") -> BuildFailure:
        """Return the reason for the failure.

        ``path`` and ``text`` are the Dockerfile's, ``images`` the images that it pulls; ``killed`` is the signal that
        ended the engine itself, if any.
        """
        output = "\n".join(self._lines)
        step = self._failed
        if step is None and not self._vertices:
            step = self.current
        place, shown = "", step.text[:300] if step else ""
        if instruction := self._instruction(text, step):
            place, shown = f"{path}:{instruction.line(text)}", " ".join(instruction.text.split())[:300]
        lines = [line for line in self._lines if line.strip()][-_QUOTED_LINES:]
        if killed:
            where = f"at {place or shown}" if shown else "before the first instruction"
            sentence = f"The build was ended by {killed} {where}. No image was tagged; run again to build it."
        elif not shown:
            sentence = "The build failed before the first instruction."
            for image in images:
                if image in output:
                    sentence = f"The build failed before the first instruction, with {image}."
        elif shown.upper().startswith("FROM"):
            sentence = f"The base image of {place or shown} could not be used: {shown}."
        else:
            status = "".join(f" with exit status {number}" for number in _STATUS.findall(output)[-1:])
            sentence = f"{place or 'An instruction'} failed{status}: {shown}."
        return BuildFailure(sentence, shown, place, known_problems.find(output), tuple(lines))

    def _instruction(self, text: str, step: BuildStep | None) -> Instruction | None:
        """Return a step's instruction of the Dockerfile; None if that is uncertain."""
        if self._failed_line:
            started = [item for item in instructions(text) if item.line(text) <= self._failed_line]
            return next(reversed(started), None)
        for number, stage in enumerate(_stages(text)):
            if step is None or not _is_stage(step.stage, number, stage[0]):
                continue
            if self._vertices or step.number > len(stage):
                return next((instruction for instruction in stage if _is_same(instruction.text, step.text)), None)
            instruction = stage[step.number - 1]
            if instruction.keyword == step.text.split(maxsplit=1)[0].upper():
                return instruction
            return None
        return None


def _stages(text: str) -> list[list[Instruction]]:
    """Return the instructions of each stage, FROM first."""
    stages: list[list[Instruction]] = []
    for instruction in instructions(text):
        if instruction.keyword == "FROM":
            stages.append([])
        if stages:
            stages[-1].append(instruction)
    return stages


def _is_stage(name: str, number: int, first: Instruction) -> bool:
    """Return True if ``name`` is an engine's name for the stage with this number and FROM (empty for the first)."""
    if not name:
        return number == 0
    if name in (str(number), f"stage-{number}"):
        return True
    words = first.words
    return len(words) > 2 and words[-2].upper() == "AS" and words[-1].lower() == name.lower()


def _is_same(text: str, output: str) -> bool:
    """Return True if an instruction's output is its text, possibly truncated and without line continuations."""
    first = "".join(text.replace("\\", "").split())
    second = "".join(output.removesuffix("...").replace("\\", "").split())
    return bool(second) and (first.startswith(second) or second.startswith(first))
