"""The condition that a task's command succeeded, and the run of the command, whose failure is explained."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runbook_lib.checks import Check
from runbook_lib.compute.build_log import CommandFailure
from runbook_lib.compute.tasks import WorkStep
from runbook_lib.errors import Refused
from runbook_lib.failures import known_problems
from runbook_lib.git.command import NON_INTERACTIVE
from runbook_lib.model import Effect
from runbook_lib.system import subprocess_lines
from runbook_lib.system.environment import user_environment
from runbook_lib.world.outside import World

_SEARCHED_LINES = 2_000  # of a command's output, searched for known problems
_QUOTED_LINES = 30  # of a failed command's output


@dataclass(frozen=True)
class CommandRun:
    """A command succeeded in this run.

    Its effect cannot be read in general, so each run of the step runs it.
    """

    step: WorkStep
    log: str
    obstacle: str = ""
    leaves_machine = False
    _ended: list[CommandFailure | None] = field(default_factory=list, compare=False, repr=False)

    @property
    def sentence(self) -> str:
        """The command, after its title in the imperative."""
        title = self.step.title
        return f"{title[:1].lower()}{title[1:]}: {self.step.line}"

    def holds(self, world: World) -> Check:
        """Return how the command ended."""
        name = f"step “{self.step.title}”"
        if not self._ended:
            return Check(name, "failed", "Not done in this run.")
        if failure := self._ended[-1]:
            again = "Fix the cause, then run the task again: it continues where it stopped."
            return Check(name, "failed", f"{failure.message} {again}", evidence=failure.evidence)
        return Check(name, "passed", "It succeeded.")

    def make_true(self, world: World) -> Iterator[Effect]:
        """Run it in the checkout.  Raises Refused if it cannot be run from here."""
        if self.obstacle:
            raise Refused(f"Nothing was run. {self.obstacle} Or copy the commands shown above.")
        world.checkout.require_work_tree()
        log = world.folder / self.log if world.folder else Path(os.devnull)
        failure = run_step(self.step, world.checkout.path, log)
        self._ended.append(failure)
        if failure is None:
            yield Effect("command", self.step.title, "", self.step.line)


def run_step(
    step: WorkStep, root: Path, log: Path, show: Callable[[str], object] = print, env: Mapping[str, str] | None = None
) -> CommandFailure | None:
    """Run a command in ``root``; its output goes, without secrets, to ``log`` and line by line to ``show``.

    Only the first and the last lines of long output are shown.  Raises RunbookError if the program is not installed or
    the log cannot be written.
    """
    env = user_environment(os.environ) if env is None else env
    show(f"▸ {step.title}: {step.line}")
    lines: deque[str] = deque(maxlen=_SEARCHED_LINES)
    with subprocess_lines.show_excerpt(show) as show_part:

        def take_line(line: str) -> None:
            lines.append(line)
            show_part(line)

        status = subprocess_lines.run_logged(
            step.command, root, log, take_line, {**env, **NON_INTERACTIVE}, end_group=True
        )  # fmt: skip
    return _failure(step, status, tuple(lines)) if status else None


def _failure(step: WorkStep, status: int, lines: tuple[str, ...]) -> CommandFailure:
    pitfalls = known_problems.find("\n".join([step.line, *lines]))
    sentence = f"The step “{step.title}” {subprocess_lines.ending(status)}."
    if not pitfalls:
        said = [line.strip() for line in lines if line.strip()] or ["nothing"]
        sentence += f" Its last line is: {said[-1].rstrip('.')}."
    return CommandFailure(sentence, pitfalls, lines[-_QUOTED_LINES:])
