"""The condition that a command succeeded, and the run of the command, whose failure is explained."""

import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from runbook_lib import display
from runbook_lib.compute.tasks import WorkStep
from runbook_lib.errors import Refused
from runbook_lib.failures.log_lines import clean
from runbook_lib.failures.patterns import find_problems
from runbook_lib.model import Check, Effect, Evidence
from runbook_lib.world.git.command import NON_INTERACTIVE
from runbook_lib.world.machine import subprocess_lines
from runbook_lib.world.machine.subprocess_lines import user_environment
from runbook_lib.world.ports import World

_SEARCHED_LINES, _LINE_LENGTH = 2_000, 4_096  # of a command's output, searched for known problems
_QUOTED_LINES = 30  # of a failed command's output
#: Characters from the beginning of what is shown, lines from its end, and characters of a line.
_SHOWN_HEAD, _SHOWN_TAIL, _SHOWN_WIDTH = 200_000, 30, 400
#: A build's instruction that starts: buildah and podman ``[2/3] STEP 4/7: RUN …``, docker ``#9 [main 3/5] RUN …``.
_STEP = re.compile(r"(?:\[\d{1,4}/\d{1,4}\] )?STEP \d{1,4}/\d{1,4}: .+")
_VERTEX = re.compile(r"#\d{1,6} \[(?:\S{1,80} ){0,2}\d{1,4}/\d{1,4}\] .+")
#: A build's instruction that failed, as buildah and docker repeat it at the end.
_FAILED = re.compile(r'building at STEP "(.{1,200})|^ > (\[.{1,200}?):?$', re.MULTILINE)


@dataclass(frozen=True)
class CommandRun:
    """A command succeeded in this run.

    Its effect cannot be read in general, so each run of the step runs it.
    """

    step: WorkStep
    log: str
    obstacle: str = ""
    leaves_machine = False
    _ended: list[Check] = field(default_factory=list, compare=False, repr=False)

    @property
    def sentence(self) -> str:
        """The command, after its title in the imperative."""
        title = self.step.title
        return f"{title[:1].lower()}{title[1:]}: {self.step.line}"

    def holds(self, world: World) -> Check:
        """Return how the command ended."""
        return self._ended[-1] if self._ended else Check(_name(self.step), "failed", "Not done in this run.")

    def make_true(self, world: World) -> Iterator[Effect]:
        """Run it in the checkout.  Raises Refused if it cannot be run from here."""
        if self.obstacle:
            raise Refused(f"Nothing was run. {self.obstacle} Or copy the commands shown above.")
        world.checkout.require_work_tree()
        log = world.folder / self.log if world.folder else Path(os.devnull)
        self._ended.append(run_step(self.step, world.checkout.path, log))
        if self._ended[-1].status == "passed":
            yield Effect("command", self.step.title, "", self.step.line)


def run_step(step: WorkStep, root: Path, log: Path, show: Callable[[str], object] = print) -> Check:
    """Run a command in ``root``, and return how it ended.

    Its output goes, without secrets, to ``log`` and line by line to ``show``: of long output only the first and the
    last lines, and of a build its instructions.  Raises RunbookError if the program is not installed or the log cannot
    be written.
    """
    is_build, env = step.command[1:2] == ("build",), user_environment(os.environ) | NON_INTERACTIVE
    show(f"▸ {step.title}: {step.line}")
    lines: deque[str] = deque(maxlen=_SEARCHED_LINES)
    with subprocess_lines.excerpt(show, _SHOWN_HEAD, _SHOWN_TAIL, "more lines, in the log") as show_part:

        def take_line(raw: str) -> None:
            line = clean(raw[:_LINE_LENGTH].encode("utf-8", "replace")).rstrip()
            lines.append(line)
            if not is_build or _STEP.fullmatch(line) or _VERTEX.fullmatch(line):
                show_part(line[:_SHOWN_WIDTH])

        # An engine is asked to end by itself: if its children were too, buildah would treat the step as finished.
        status = subprocess_lines.run_logged(
            step.command, root, log, take_line, env, end_group=not is_build
        )  # fmt: skip
    return explain(step, status, tuple(lines)) if status else Check(_name(step), "passed", "It succeeded.")


def explain(step: WorkStep, status: int, lines: tuple[str, ...]) -> Check:
    """Return why a command failed, from its exit status and the last lines of its output, without secrets."""
    starts = [number for number, line in enumerate(lines) if _STEP.fullmatch(line)]
    searched = "\n".join([step.line, *lines[starts[-1] if starts else 0 :]])  # buildah's earlier ones have succeeded
    failed = _FAILED.search(searched)
    instruction = (failed[1] or failed[2]).partition('": exit')[0] if failed else ""
    sentences = [f"The step “{step.title}” {subprocess_lines.ending(status)}{instruction and f' at {instruction}'}."]
    if pitfalls := find_problems(searched):
        sentences += [f"{it.sign} {it.cause} {it.fix}" for it in pitfalls]
    else:
        said = [line.strip() for line in lines if line.strip()] or ["nothing"]
        sentences.append(f"Its last line is: {said[-1].rstrip('.')}.")
    sentences.append("Fix the cause, then run again: it continues where it stopped.")
    shown = display.code("\n".join(lines[-_QUOTED_LINES:]), title="The last lines:")
    return Check(_name(step), "failed", " ".join(sentences), evidence=Evidence(shown=(shown,)))


def _name(step: WorkStep) -> str:
    return f"step “{step.title}”"
