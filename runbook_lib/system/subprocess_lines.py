"""Programs that are run for what they print: an answer within a time limit, or lines handed on as they come."""

import math
import os
import select
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from runbook_lib.errors import RunbookError
from runbook_lib.system.atomic_files import cannot_write, private
from runbook_lib.text.redact import Redactor

ASKED = 60.0  # seconds that an engine may take to say what it is, or what an image is
_GRACE = 20.0  # seconds that a build may take to put away what it has begun
_POLL = 0.2  # seconds
_LATER = 10  # times that long a command's children may take longer than itself
_LONGEST_LINE = 64 * 1024
_PIPE = 1 << 20  # bytes that a pipe may hold when the one who wrote them has ended
_LONGEST_LOG = 20_000_000  # bytes of a log that are kept from its beginning
_LAST = 1000  # lines that are kept from the end of a longer one
_SAID, _SAID_LAST, _SAID_OF_LINE = (
    2_000,
    30,
    400,
)  # lines that are said as they come, then at the end; characters of each


def asked(
    command: Sequence[str], env: Mapping[str, str], limit: float = ASKED
) -> "str | subprocess.CompletedProcess[str]":
    """What a command prints, or the failed command."""
    try:
        process = subprocess.Popen(
            command, env={**env, "LC_ALL": "C"}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return subprocess.CompletedProcess(command, 1, "", str(error.strerror or error))
    with process:
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 1, "", f"it took longer than {limit:.0f} seconds.")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return out if process.returncode == 0 else subprocess.CompletedProcess(command, process.returncode, out, err)


def followed(
    command: Sequence[str],
    root: Path,
    log: Path,
    line: Callable[[str], object],
    env: Mapping[str, str],
    hidden: Sequence[str] = (),
) -> int:
    """Run a command and hand on its lines, without secrets, as they come, with a log of its own.  The exit status."""
    # A secret is one whatever its variable is called, and line by line.
    held = {f"{name}_{i}_SECRET": text for name in hidden for i, text in enumerate(env[name].splitlines())}
    hide = Redactor({**env, **held}).text
    try:
        with open(log, "wb", opener=private) as file, kept(file) as keep:

            def each(raw: str) -> None:
                text = hide(raw)
                keep(text)
                line(text)

            return ran(command, root, each, env)
    except OSError as error:
        raise cannot_write(log, error) from error


def ran(
    command: Sequence[str],
    root: Path,
    line: Callable[[str], object],
    env: Mapping[str, str],
    *,
    together: bool = False,
) -> int:
    """Run a command and hand on its lines as they are.  The exit status.

    On Linux the command is ended with this process too, however that ends.  Interrupted, it alone is asked to end, or
    ``together`` with what it has started.  Raises RunbookError where it cannot be started.
    """
    path = env.get("PATH", "")
    if shutil.which(command[0], path=path) is None:
        raise RunbookError(f"{command[0]} could not be started: it is not installed. Nothing was built.")
    # By util-linux; a kernel that is killed cannot end what it has started.
    keeper = [found, "--pdeathsig", "TERM"] if (found := shutil.which("setpriv", path=path)) else []
    try:
        process = subprocess.Popen(
            [*keeper, *command], cwd=root, env={**env, "LC_ALL": "C.UTF-8", "BUILDKIT_COLORS": "", "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise RunbookError(f"{command[0]} could not be started: {error.strerror}. Nothing was built.") from error
    try:
        for text in _lines(process):
            line(text)
        return process.wait()
    finally:
        _end(process, together)


@contextmanager
def kept(file: BinaryIO) -> Iterator[Callable[[str], None]]:
    """What keeps lines in a log: all of them, or of one without end the beginning and the last lines."""
    log = _Kept(file)
    try:
        yield log.take
    finally:
        log.close()


class _Kept:
    """A log that is being kept: all of it, or of one without end the beginning and the last lines."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._size, self._more = file, 0, 0
        self._last: deque[bytes] = deque(maxlen=_LAST)

    def take(self, text: str) -> None:
        raw = f"{text}\n".encode("utf-8", "replace")
        if self._size + len(raw) > _LONGEST_LOG or self._more:
            self._more += 1
            self._last.append(raw)
            return
        self._size += len(raw)
        self._file.write(raw)
        self._file.flush()

    def close(self) -> None:
        if left := self._more - len(self._last):
            self._file.write(f"[… {left} lines left out]\n".encode())
        self._file.writelines(self._last)
        self._last.clear()


@contextmanager
def in_part(say: Callable[[str], object]) -> Iterator[Callable[[str], None]]:
    """What says the lines of a command as they come: of one that prints without end, the first and the last ones."""
    count, last = 0, deque[str](maxlen=_SAID_LAST)

    def line(text: str) -> None:
        nonlocal count
        count += 1
        if count <= _SAID:
            say(text[:_SAID_OF_LINE])
        else:
            last.append(text[:_SAID_OF_LINE])

    try:
        yield line
    finally:
        if last:
            say(f"[… {count - _SAID - len(last)} lines more, in the log]")
        for text in last:
            say(text)


def _lines(process: "subprocess.Popen[bytes]", seconds: float = math.inf) -> Iterator[str]:
    """The lines of a process until it has ended; one that is too long comes in pieces.

    Not until the pipe is closed: what it leaves behind may hold that open, or write on without end.
    """
    assert process.stdout is not None
    file, rest, until, left = process.stdout.fileno(), b"", time.monotonic() + seconds, _PIPE
    while time.monotonic() < until and left > 0:
        ended = process.poll() is not None
        ready, _, _ = select.select([file], [], [], _POLL)
        if not ready and not ended:
            continue
        data = os.read(file, _LONGEST_LINE) if ready else b""
        *whole, rest = (rest + data).split(b"\n")
        if not data or len(rest) > _LONGEST_LINE:
            whole, rest = [*whole, rest] if rest else whole, b""
        yield from (raw.decode("utf-8", "replace") for raw in whole)
        if not data:
            return
        left -= len(data) if ended else 0


def _end(process: "subprocess.Popen[bytes]", together: bool) -> None:
    """End a command that still runs, and what it has started.

    An engine alone is asked to: signalled with the rest, buildah takes a step that was cut short for a finished one.
    A shell would end at once, and what it runs, such as git, could not put its locks away.
    """
    if process.poll() is None:
        if together:
            os.killpg(process.pid, signal.SIGTERM)
        else:
            process.terminate()
        for _ in _lines(process, _GRACE):  # it must not wait for a reader
            pass
        for _ in range(_LATER if together else 0):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 0)
                time.sleep(_POLL)
    with suppress(ProcessLookupError):  # what it leaves behind has its process group
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout:
        process.stdout.close()
