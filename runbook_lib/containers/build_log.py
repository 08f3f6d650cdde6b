"""What an engine prints while it builds: the instruction that it is at, and the one that failed.  Pure.

buildah and podman print ``[2/3] STEP 4/7: RUN …``, where the stage is counted as in the file and the instruction
within its stage.  docker prints ``#9 [main 3/5] RUN …``, and names the line of the file where it fails.
"""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from runbook_lib.text.dockerfile_syntax import Instruction, instructions
from runbook_lib.triage import known_problems
from runbook_lib.triage.known_problems import Pitfall
from runbook_lib.triage.log_lines import clean

SHOWN = 40  # lines of a log that are quoted
_KEPT = 2000  # lines that are kept for the explanation
_LONGEST = 4096  # characters of a line

_STEP = re.compile(r"(?:\[(\d{1,4})/\d{1,4}\] )?STEP (\d{1,4})/(\d{1,4}): (.+)")
_VERTEX = re.compile(r"#(\d{1,6}) \[(?:\S{1,40}/\S{1,40} )?(?:(\S{1,80}) )?(\d{1,4})/(\d{1,4})\] (.+)")
_BROKEN = re.compile(r"#(\d{1,6}) (?:ERROR|CANCELED)\b")
_NAMED = re.compile(r"\S{1,400}:(\d{1,6})")
_STATUS = re.compile(r"(?:exit (?:status|code):?|exited with status) (\d{1,3})\b")
_FRAME = re.compile(r"-{6,}")


@dataclass(frozen=True)
class Step:
    """An instruction that has begun: its number within its stage, and of how many.

    ``stage`` is the stage's number in the file (buildah, podman) or its name (docker), empty where there is one alone.
    """

    stage: str
    number: int
    of: int
    text: str

    def __str__(self) -> str:
        stage = f"stage {self.stage}, " if self.stage else ""
        return f"{stage}step {self.number} of {self.of}: {self.text[:160]}"


@dataclass(frozen=True)
class BuildFailure:
    """Why a build failed.  ``place`` is ``Dockerfile:line`` of the first instruction that failed, empty if none did.

    ``lines`` are the last that it printed, without secrets.
    """

    sentence: str
    instruction: str = ""
    place: str = ""
    pitfalls: tuple[Pitfall, ...] = ()
    lines: tuple[str, ...] = ()


@dataclass
class BuildLog:
    """Takes the lines of a build, one by one, and keeps what explains its end."""

    at: Step | None = None
    steps: int = 0
    _lines: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT))
    _vertices: dict[str, Step] = field(default_factory=dict)
    _failed: Step | None = None
    _named: int = 0  # the line of the Dockerfile that docker names

    def take(self, raw: str) -> Step | None:
        """The instruction that begins with this line, if one does."""
        line = clean(raw[:_LONGEST].encode("utf-8", "replace")).rstrip()
        begun = None
        if found := _STEP.fullmatch(line):
            stage = str(int(found[1]) - 1) if found[1] else ""
            begun = Step(stage, int(found[2]), int(found[3]), found[4])
            self._lines.clear()  # buildah does one after the other
        elif found := _VERTEX.fullmatch(line):
            step = Step(found[2] or "", int(found[3]), int(found[4]), found[5])
            begun = step if found[1] not in self._vertices else None
            self._vertices[found[1]] = step
        elif (found := _BROKEN.match(line)) and self._failed is None and "CANCELED" not in line:
            self._failed = self._vertices.get(found[1])
        elif (found := _NAMED.fullmatch(line)) and self._lines and _FRAME.fullmatch(self._lines[-1]):
            self._named = int(found[1])
        self._lines.append(line)
        if begun:
            self.at, self.steps = begun, self.steps + 1
        return begun

    def explain(self, path: str, text: str, images: tuple[str, ...], killed: str = "") -> BuildFailure:
        """Why it failed.

        ``path`` and ``text`` are the Dockerfile's, ``images`` what it pulls, ``killed`` how the engine itself was
        ended, as a word, if it was.
        """
        told = "\n".join(self._lines)
        step = self._failed or (None if self._vertices else self.at)
        instruction = self._instruction(text, step)
        place = f"{path}:{instruction.line(text)}" if instruction else ""
        shown = " ".join(instruction.text.split())[:300] if instruction else step.text[:300] if step else ""
        found = known_problems.find(told)
        lines = tuple([line for line in self._lines if line.strip()][-SHOWN:])
        if killed:
            where = f" at {place or shown}" if shown else " before the first instruction"
            sentence = f"The build was ended by {killed}{where}. No image was tagged; the same command builds again."
        elif not shown:
            pulled = next((it for it in images if it in told), "")
            sentence = f"The build failed before the first instruction{f', with {pulled}' if pulled else ''}."
        elif shown.upper().startswith("FROM"):
            sentence = f"The base image of {place or shown} could not be used: {shown}."
        else:
            status = _STATUS.findall(told)
            sentence = (
                f"{place or 'An instruction'} failed{f' with exit status {status[-1]}' if status else ''}: {shown}."
            )
        return BuildFailure(sentence, shown, place, found, lines)

    def _instruction(self, text: str, step: Step | None) -> Instruction | None:
        """The instruction of the Dockerfile that a step is; None where that is not sure."""
        if self._named:
            return next((it for it in reversed(list(instructions(text))) if it.line(text) <= self._named), None)
        if step is None:
            return None
        stages = list(_stages(text))
        stage = next((it for number, it in enumerate(stages) if _is(step.stage, number, it[0])), [])
        if not self._vertices and step.number <= len(stage):
            found = stage[step.number - 1]
            return found if found.keyword == step.text.split(maxsplit=1)[0].upper() else None
        return next((it for it in stage if _same(it.text, step.text)), None)


def _stages(text: str) -> Iterator[list[Instruction]]:
    """The instructions of each stage, FROM first."""
    stage: list[Instruction] = []
    for it in instructions(text):
        if it.keyword == "FROM":
            if stage:
                yield stage
            stage = []
        if stage or it.keyword == "FROM":
            stage.append(it)
    if stage:
        yield stage


def _is(told: str, number: int, begins: Instruction) -> bool:
    if told in ("", str(number), f"stage-{number}"):
        return bool(told) or number == 0
    words = begins.words
    return len(words) > 2 and words[-2].upper() == "AS" and words[-1].lower() == told.lower()


def _same(one: str, other: str) -> bool:
    """Whether two texts are one instruction, one of them cut or without its continuations."""
    first, second = ("".join(it.replace("\\", "").split()) for it in (one, other.removesuffix("...")))
    return bool(second) and (first.startswith(second) or second.startswith(first))
