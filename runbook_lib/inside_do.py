"""Runs a sequence of commands, one after the other, and stops at the first that fails, with what is known of it."""

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from runbook_lib import inside, pitfalls
from runbook_lib.errors import RunbookError
from runbook_lib.inside import Step
from runbook_lib.pitfalls import Pitfall
from runbook_lib.redact import Redactor

_GRACE = 20.0  # seconds that a command may take to end when it is interrupted
_LONGEST_LOG = 50_000_000  # bytes that are kept
_REMEMBERED = 2_000  # lines in which pitfalls are looked for
_LONGEST_LINE = 64 * 1024
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
        return inside.line(self.words)


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

    Raises RunbookError where a program is not there or the log cannot be written.
    """
    given = own(os.environ) if env is None else dict(env)
    made: list[Command] = []
    kept: list[tuple[str, str]] = []
    for command in commands:
        for path in command.step.keeps:
            if (root / path).is_file():
                words = ["git", "-C", str(root), "hash-object", "-w", "--", path]
                kept.append((path, subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()))
        say(f"▸ {command.step.title}: {command.line}")
        status, lines = _run(command, root, log, say, given)
        if status != 0:
            text = "\n".join([f"$ {command.line}", *lines])
            return Done(tuple(made), tuple(kept), Failure(command, status, tuple(lines[-_LAST:]), pitfalls.find(text)))
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
    command: Command, root: Path, log: Path, say: Callable[[str], object], env: Mapping[str, str]
) -> tuple[int, list[str]]:
    hide = Redactor(env).text
    try:
        process = subprocess.Popen(
            command.words, cwd=root, env={**env, **_QUIET}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise RunbookError(
            f"{command.words[0]} is not installed here, which the step “{command.step.title}” needs. "
            "Install it, or run the commands that are shown on a machine that has it; then run again."
        ) from error
    lines: deque[str] = deque(maxlen=_REMEMBERED)
    try:
        with log.open("a", encoding="utf-8", errors="replace") as kept:
            kept.write(f"$ {hide(command.line)}\n")
            assert process.stdout is not None
            for raw in iter(partial(process.stdout.readline, _LONGEST_LINE), ""):
                text = hide(raw.rstrip("\n"))
                if kept.tell() < _LONGEST_LOG:
                    kept.write(f"{text}\n")
                    kept.flush()
                lines.append(text)
                say(text)
        return process.wait(), list(lines)
    finally:
        _end(process)


def _end(process: "subprocess.Popen[str]") -> None:
    """End what still runs, gently first: git would leave its locks behind, and an engine its container."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.stdout:
        process.stdout.close()


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
