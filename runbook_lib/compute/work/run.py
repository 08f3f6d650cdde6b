"""The run of a step's command, whose failure is explained."""

import os
import shlex
import shutil
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from runbook_lib.compute.work.tasks import WorkStep
from runbook_lib.errors import RunbookError
from runbook_lib.failures import known_problems
from runbook_lib.failures.known_problems import Pitfall
from runbook_lib.git.command import NON_INTERACTIVE
from runbook_lib.system import subprocess_lines
from runbook_lib.system.environment import user_environment
from runbook_lib.system.files import cannot_write
from runbook_lib.text.redact import Redactor

_SEARCHED_LINES = 2_000  # of a command's output, searched for known problems
_QUOTED_LINES = 30  # of a failed command's output


@dataclass(frozen=True)
class StepCommand:
    """A step, and the command that runs it on this machine."""

    step: WorkStep
    words: tuple[str, ...]

    @property
    def line(self) -> str:
        """The command, ready to paste into a shell."""
        return shlex.join(self.words)


@dataclass(frozen=True)
class StepFailure:
    """The command that failed, its last lines, and the known problems in its output.

    A command killed by a signal has a negative status.
    """

    command: StepCommand
    status: int
    lines: tuple[str, ...]
    pitfalls: tuple[Pitfall, ...]

    @property
    def message(self) -> str:
        """The failure and, if known, its reason and fix."""
        how = subprocess_lines.ending(self.status)
        details = " ".join(f"{pitfall.sign} {pitfall.cause} {pitfall.fix}" for pitfall in self.pitfalls)
        if not details:
            lines = [line.strip() for line in self.lines if line.strip()] or ["nothing"]
            details = f"Its last line is: {lines[-1].rstrip('.')}."
        return (
            f"The step “{self.command.step.title}” {how}. {details} Fix the cause, then run the task again: it "
            "continues where it stopped."
        )


def run(
    command: StepCommand, root: Path, log: Path, show: Callable[[str], object] = print,
    env: Mapping[str, str] | None = None,
) -> StepFailure | None:  # fmt: skip
    """Run a command in ``root``; its output goes, without secrets, to ``log`` and line by line to ``show``.

    Only the first and the last lines of long output are shown.  Raises RunbookError if the program is not installed or
    the log cannot be written.
    """
    env = user_environment(os.environ) if env is None else env
    show(f"▸ {command.step.title}: {command.line}")
    try:
        with open(log, "ab") as file, subprocess_lines.log_lines(file) as write:
            return _run(command, root, write, show, env)
    except OSError as error:
        raise cannot_write(log, error) from error


def _run(
    command: StepCommand, root: Path, write: Callable[[str], None], show: Callable[[str], object],
    env: Mapping[str, str],
) -> StepFailure | None:  # fmt: skip
    if shutil.which(command.words[0], path=env.get("PATH", "")) is None:
        raise RunbookError(
            f"{command.words[0]} is not installed here, but the step “{command.step.title}” needs it. Install it, or "
            "run the commands shown above on a machine that has it; then run the task again."
        )
    redact = Redactor(env).text
    heading = f"$ {redact(command.line)}"
    write(heading)
    lines: deque[str] = deque(maxlen=_SEARCHED_LINES)
    with subprocess_lines.show_excerpt(show) as show_part:

        def take_line(raw: str) -> None:
            line = redact(raw)
            write(line)
            lines.append(line)
            show_part(line)

        environment = {**env, **NON_INTERACTIVE, "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}
        status = subprocess_lines.run(command.words, root, take_line, environment, end_group=True)
    if status == 0:
        return None
    pitfalls = known_problems.find("\n".join([heading, *lines]))
    return StepFailure(command, status, tuple(lines)[-_QUOTED_LINES:], pitfalls)
