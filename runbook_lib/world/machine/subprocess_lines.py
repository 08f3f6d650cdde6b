"""Programs: their environment, and their output, complete within a time limit or line by line as it arrives."""

import math
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from runbook_lib.errors import RunbookError
from runbook_lib.text.redact import Redactor
from runbook_lib.world.machine.files import cannot_write

QUERY_LIMIT = 60.0  # seconds for an engine to describe itself or an image
_GRACE = 20.0  # seconds for a build to clean up
_POLL = 0.2  # seconds
_CHILD_POLLS = 10  # polls for a command's children to end after it
_LONGEST_LINE = 64 * 1024
_PIPE = 1 << 20  # maximum bytes in a pipe after its writer has ended
#: Characters from the beginning of a log, and lines from its end.
_LOG_HEAD, _LOG_TAIL = 20_000_000, 1000
_SHORTEST = 100  # characters that a line counts for at least
#: Set by a git hook that runs this program; they would bind every call of git to another repository's index.
GIT_BINDING = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY")
#: Set by such a hook, or for this program's own Python.
_FOREIGN = (*GIT_BINDING, "PYTHONNOUSERSITE", "PYTHONSAFEPATH")


def user_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables that this program and git hooks add: Python, uv, git.

    A release of uv other than the image's would write uv.lock in a different format.
    """
    user = {name: value for name, value in env.items() if name not in _FOREIGN}
    prefix = Path(env.get("VIRTUAL_ENV") or "/")
    if prefix == Path(sys.prefix):
        user.pop("VIRTUAL_ENV", None)
        own_folders = (str(prefix / "bin"), str(prefix.parent / "bin"))
        user["PATH"] = ":".join(folder for folder in env.get("PATH", "").split(":") if folder not in own_folders)
    return user


def complete(
    command: Sequence[str], env: Mapping[str, str], limit: float, stdin: bytes | None = None, patience: float = 0.0
) -> "subprocess.CompletedProcess[bytes]":
    """Return a command that has ended by itself.  Raises OSError, ValueError and TimeoutExpired.

    Interrupted or out of time, it and its children have ``patience`` seconds to come to their own end.
    """
    process = subprocess.Popen(
        # Without a controlling terminal neither ssh nor gpg can stop to ask.
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    with process:
        try:
            out, err = process.communicate(stdin, limit)
        finally:
            if process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=patience)
                _end(process, group=True)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def capture(command: Sequence[str], limit: float = QUERY_LIMIT) -> "str | subprocess.CompletedProcess[str]":
    """Return the output of a command in the user's environment, or the failed command."""
    try:
        done = complete(command, {**user_environment(os.environ), "LC_ALL": "C"}, limit)
    except OSError as error:
        return subprocess.CompletedProcess(command, 1, "", str(error.strerror or error))
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"it took longer than {limit:.0f} seconds.")
    out, err = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(command, done.returncode, out, err) if done.returncode else out


def output_of(command: Sequence[str], limit: float = QUERY_LIMIT) -> str:
    """Return the output of a command in the user's environment; an empty string if it failed."""
    output = capture(command, limit)
    return output if isinstance(output, str) else ""


def run_logged(
    command: Sequence[str], root: Path, log: Path, take_line: Callable[[str], object], env: Mapping[str, str],
    *, end_group: bool,
) -> int:  # fmt: skip
    """Run a command, pass on its lines without secrets, and append it and them to a log.  Return the exit status.

    Of a very long log the beginning and the last lines are kept.  On Linux the command ends with this process, for any
    reason.  On an interruption only the command is asked to end; ``end_group`` asks its children too.  Raises
    RunbookError if it cannot be started, or the log cannot be written.
    """
    path = env.get("PATH", "")
    if shutil.which(command[0], path=path) is None:
        raise RunbookError(
            f"{command[0]} is not installed here.",
            "Install it, or run the command shown above on a machine that has it; then run again.",
        )
    # By util-linux; a kernel that is killed cannot end its children.
    setpriv = shutil.which("setpriv", path=path)
    wrapper = [setpriv, "--pdeathsig", "TERM"] if setpriv else []
    redact = Redactor(env).text  # secrets are recognized regardless of their variable's name

    def append(line: str) -> None:
        file.write(f"{line}\n".encode("utf-8", "replace"))
        file.flush()

    try:
        with open(log, "ab") as file, excerpt(append, _LOG_HEAD, _LOG_TAIL, "lines omitted") as write:
            write(redact(f"$ {shlex.join(command)}"))
            process = subprocess.Popen(
                [*wrapper, *command], cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, start_new_session=True,
                env={**env, "LC_ALL": "C.UTF-8", "BUILDKIT_COLORS": "", "NO_COLOR": "1"},
            )  # fmt: skip
            try:
                for raw in _lines(process):
                    line = redact(raw)
                    write(line)
                    take_line(line)
                return process.wait()
            finally:
                _end(process, end_group)
    except OSError as error:
        raise cannot_write(log, error) from error


def ending(status: int) -> str:
    """Return how a command failed, as the end of a sentence; a negative status means a signal."""
    if status < 0:
        try:
            return f"was ended by {signal.Signals(-status).name}"
        except ValueError:
            return f"was ended by signal {-status}"
    return f"failed with exit status {status}"


@contextmanager
def excerpt(
    write: Callable[[str], object], budget: int, tail_size: int, notice: str
) -> Iterator[Callable[[str], None]]:
    """Yield a function that writes lines as they come, ``budget`` characters in all, and at the end the last lines."""
    tail = deque[str](maxlen=tail_size)
    count = 0

    def take(line: str) -> None:
        nonlocal budget, count
        budget -= max(len(line), _SHORTEST)
        if budget >= 0:
            write(line)
            return
        budget, count = -1, count + 1
        tail.append(line)

    try:
        yield take
    finally:
        if count > len(tail):
            write(f"[… {count - len(tail)} {notice}]")
        for line in tail:
            write(line)


def _lines(process: "subprocess.Popen[bytes]", seconds: float = math.inf) -> Iterator[str]:
    """Yield the lines of a process until it has ended; an overlong line comes in pieces.

    Does not wait until the pipe is closed: surviving children may keep it open, or write without end.
    """
    assert process.stdout is not None
    file = process.stdout.fileno()
    rest, deadline, budget = b"", time.monotonic() + seconds, _PIPE
    while time.monotonic() < deadline and budget > 0:
        is_over = process.poll() is not None
        ready, _, _ = select.select([file], [], [], _POLL)
        if not ready and not is_over:
            continue
        data = os.read(file, _LONGEST_LINE) if ready else b""
        *lines, rest = (rest + data).split(b"\n")
        if rest and (not data or len(rest) > _LONGEST_LINE):
            lines, rest = [*lines, rest], b""
        for line in lines:
            yield line.decode("utf-8", "replace")
        if not data:
            return
        if is_over:
            budget -= len(data)


def _end(process: "subprocess.Popen[bytes]", group: bool) -> None:
    """End a command that is still running, and its children.

    Only the engine gets the signal: if its children got it too, buildah would treat an interrupted step as finished.
    A shell would end immediately, and its children, such as git, could not remove their locks.
    """
    if process.poll() is None:
        if group:
            os.killpg(process.pid, signal.SIGTERM)
        else:
            process.terminate()
        for _ in _lines(process, _GRACE):  # the process must not wait for a reader
            pass
        for _ in range(_CHILD_POLLS if group else 0):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 0)
                time.sleep(_POLL)
    with suppress(ProcessLookupError):  # surviving children have its process group
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout:
        process.stdout.close()
