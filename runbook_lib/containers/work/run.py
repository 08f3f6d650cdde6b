"""Runs a sequence of commands, one after the other, and stops at the first that fails, with what is known of it."""

import os
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runbook_lib.containers.work import task
from runbook_lib.containers.work.task import Step
from runbook_lib.errors import RunbookError
from runbook_lib.system import subprocess_lines
from runbook_lib.system.atomic_files import cannot_write, private
from runbook_lib.text.redact import Redactor
from runbook_lib.triage import known_problems
from runbook_lib.triage.known_problems import Pitfall

_REMEMBERED = 2_000  # lines in which pitfalls are looked for
_LAST = 30  # lines that are quoted of a failed command
_QUIET = {
    "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true", "SSH_ASKPASS_REQUIRE": "never", "GIT_EDITOR": "true",
    "GIT_MERGE_AUTOEDIT": "no", "GPG_TTY": "", "NO_COLOR": "1", "LC_ALL": "C.UTF-8",
}  # fmt: skip
#: Set by a git hook that runs us, or for this program's own Python.
_NOT_OURS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY", "PYTHONNOUSERSITE")


@dataclass(frozen=True)
class Command:
    """A step, and the words that run it here."""

    step: Step
    words: tuple[str, ...]

    @property
    def line(self) -> str:
        """As it can be pasted into a shell."""
        return task.line(self.words)


@dataclass(frozen=True)
class Failure:
    """The command that failed, its last lines, and the pitfalls that its log shows.  A signal is a negative status."""

    command: Command
    status: int
    lines: tuple[str, ...]
    pitfalls: tuple[Pitfall, ...]

    @property
    def sentence(self) -> str:
        """What failed, and where known why and what to do."""
        how = f"ended with status {self.status}" if self.status >= 0 else f"was ended by {_signal(-self.status)}"
        known = " ".join(f"{it.sign} {it.cause} {it.mend}" for it in self.pitfalls)
        last = next((line.strip() for line in reversed(self.lines) if line.strip()), "nothing")
        said = known or f"It says last: {last.rstrip('.')}."
        return f"The step “{self.command.step.title}” {how}. {said} Mend it, then run again: it goes on from there."


@dataclass(frozen=True)
class Done:
    """What was run.  ``kept`` are files that were written over, and the ids of the blobs that hold what they were."""

    commands: tuple[Command, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    failure: Failure | None = None


def run(
    commands: Sequence[Command], root: Path, log: Path, say: Callable[[str], object] = print,
    env: Mapping[str, str] | None = None,
) -> Done:  # fmt: skip
    """Run the commands in ``root``; what they print goes, without secrets, to ``log`` and line by line to ``say``.

    Of a step that prints without end its first and its last lines are said.  Raises RunbookError where a program is
    not there or the log cannot be written.
    """
    given = own(os.environ) if env is None else dict(env)
    try:
        with open(log, "wb", opener=private) as file, subprocess_lines.kept(file) as keep:
            return _all(commands, root, keep, say, given)
    except OSError as error:
        raise cannot_write(log, error) from error


def _all(
    commands: Sequence[Command], root: Path, keep: Callable[[str], None], say: Callable[[str], object],
    env: Mapping[str, str],
) -> Done:  # fmt: skip
    made: list[Command] = []
    kept: list[tuple[str, str]] = []
    for command in commands:
        for path in command.step.keeps:
            if (root / path).is_file() and not (root / path).is_symlink():
                words = ["git", "-C", str(root), "hash-object", "-w", "--", path]
                kept.append((path, subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()))
        say(f"▸ {command.step.title}: {command.line}")
        status, lines = _run(command, root, keep, say, env)
        if status != 0:
            text = "\n".join([f"$ {command.line}", *lines])
            return Done(
                tuple(made), tuple(kept), Failure(command, status, tuple(lines[-_LAST:]), known_problems.find(text))
            )
        made.append(command)
    return Done(tuple(made), tuple(kept))


def own(env: Mapping[str, str]) -> dict[str, str]:
    """The environment that a person has without this program's own: its Python, its uv, and what git hooks set.

    Another release of uv than the image's writes uv.lock in another form.
    """
    kept = {name: value for name, value in env.items() if name not in _NOT_OURS}
    prefix = env.get("VIRTUAL_ENV", "")
    if prefix and Path(prefix) == Path(sys.prefix):
        del kept["VIRTUAL_ENV"]
        ours = (str(Path(prefix) / "bin"), str(Path(prefix).parent / "bin"))
        kept["PATH"] = ":".join(it for it in env.get("PATH", "").split(":") if it not in ours)
    return kept


def _run(
    command: Command, root: Path, keep: Callable[[str], None], say: Callable[[str], object], env: Mapping[str, str]
) -> tuple[int, list[str]]:
    if shutil.which(command.words[0], path=env.get("PATH", "")) is None:
        raise RunbookError(
            f"{command.words[0]} is not installed here, which the step “{command.step.title}” needs. "
            "Install it, or run the commands that are shown on a machine that has it; then run again."
        )
    hide = Redactor(env).text
    keep(f"$ {hide(command.line)}")
    lines: deque[str] = deque(maxlen=_REMEMBERED)
    with subprocess_lines.in_part(say) as each:

        def line(raw: str) -> None:
            text = hide(raw)
            keep(text)
            lines.append(text)
            each(text)

        status = subprocess_lines.ran(command.words, root, line, {**env, **_QUIET}, together=True)
    return status, list(lines)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
