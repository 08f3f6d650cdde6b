"""A process of its own for what others wrote: artifacts and logs are parsed there, in bounded memory and time.

Connections and tokens stay in this process, which reads the parts of files that the parser asks for.  Whatever a file
holds can at most end the parser: its item then has an error in place of an answer.
"""

import os
import pickle
import queue
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from typing import Any, Generic, TypeVar

from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.world.transport.archives import FileInParts

#: Bytes of the parser's memory and of all its answers, seconds of its processor, and seconds for all items together.
MEMORY, ANSWERS, PROCESSOR, DEADLINE = 256 * 2**20, 64 * 2**20, 120, 600
#: Items that are parsed, and parts of files that are read, at the same time.
THREADS = 24
_STACK = 2**19  # bytes of each of the parser's threads
_ENDS = 3  # parsers that may end early
_OUT_OF_MEMORY = 77  # the parser's exit status

Item = TypeVar("Item")
Answer = TypeVar("Answer")
#: Called with the number of finished items, the number of all, and the name of the last one.
ProgressReport = Callable[[int, int, str], object]
#: In the parser: the connections that no thread is using.
_idle: "queue.SimpleQueue[Connection[Any, Any]]" = queue.SimpleQueue()


@dataclass
class SharedFile:
    """A file of the first process, as the parser reads it; ``size`` in bytes is known after the first part."""

    number: int
    size: int = 0

    def part(self, start: int, size: int) -> bytes:
        """Return ``size`` bytes from ``start``, or fewer at the end.  Raises what the other process met."""
        connection = _idle.get()
        connection.send((self.number, start, size))
        answer: tuple[int, bytes] | RunbookError = connection.recv()
        _idle.put(connection)
        if isinstance(answer, RunbookError):
            raise answer
        self.size, data = answer
        return data


class Parser(Generic[Item, Answer]):
    """The process that applies a function to items and answers with plain data.  It is used once.

    ``function`` is one of a module, and items are plain data.
    """

    def __init__(self, function: Callable[[Item], Answer]) -> None:
        self.function = function
        self._files: list[FileInParts] = []
        self._answers: dict[int, Answer | RunbookError] = {}
        self._room = ANSWERS
        self._end = time.monotonic() + DEADLINE

    def share(self, file: FileInParts) -> SharedFile:
        """Return the file as the parser reads it."""
        self._files.append(file)
        return SharedFile(len(self._files) - 1)

    def each(
        self, items: Sequence[Item], names: Sequence[str], progress: ProgressReport | None = None
    ) -> list[Answer | RunbookError]:
        """Return the function's answer to each item, or the error that it raised or that ended the parser.

        After an early end each unfinished item gets a process for itself: the content of one does not cost the others.
        When several of these have ended early too, the rest is not tried.
        """

        def note(number: int, answer: Answer | RunbookError) -> None:
            self._answers[number] = answer
            if progress:
                progress(len(self._answers), len(items), names[number])

        if not items:
            return []
        reason, ends = self._ask(dict(enumerate(items)), note), 1
        for number in range(len(items)):
            if number not in self._answers:
                if len(items) > 1 and ends <= _ENDS:
                    reason = self._ask({number: items[number]}, note)
                if number not in self._answers:
                    ends += 1
                    note(number, CannotTell(f"It was not read, because {reason}."))
        return [self._answers[number] for number in range(len(items))]

    def _ask(self, items: Mapping[int, Item], note: Callable[[int, Answer | RunbookError], object]) -> str:
        """Let a process answer to these items.  Return why it ended early; empty if it did not."""
        pairs = [Pipe() for _ in range(1 + (THREADS if self._files else 0))]
        with ExitStack() as stack:
            control = stack.enter_context(pairs[0][0])
            for _, theirs in pairs:
                stack.enter_context(theirs)
            process = stack.enter_context(_start([theirs.fileno() for _, theirs in pairs]))
            stack.callback(process.kill)
            for ours, theirs in pairs:
                theirs.close()
                if ours is not control:
                    threading.Thread(target=self._serve, args=(ours,), daemon=True).start()
            with suppress(EOFError, OSError):
                control.send((self.function, items, MEMORY, PROCESSOR))
                for _ in items:
                    if not control.poll(max(0, self._end - time.monotonic())):
                        return f"reading everything took more than {DEADLINE} seconds"
                    answer = control.recv_bytes(self._room)
                    self._room -= len(answer)
                    note(*pickle.loads(answer))
                return ""
            return _reason(process)

    def _serve(self, connection: "Connection[Any, Any]") -> None:
        """Read the parts of files that the parser asks for, until it ends."""
        with suppress(EOFError, OSError), connection:
            while True:
                connection.send(self.part(*connection.recv()))

    def part(self, number: int, start: int, size: int) -> tuple[int, bytes] | RunbookError:
        """Return the size of a shared file and a part of it, or why there is none."""
        try:
            data = self._files[number].part(start, size)
            return self._files[number].size, data
        except RunbookError as error:
            return error
        except OSError as error:  # of the temporary file for a server without ranges
            place = tempfile.gettempdir()
            return CannotTell(f"It could not be stored in {place} ({error.strerror}): free space there.")


def _start(descriptors: Sequence[int]) -> "subprocess.Popen[bytes]":
    environment = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PYTHONPATH") if name in os.environ}
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", f"from {__name__} import main; main()", *map(str, descriptors)],
            # Memory that malloc reserves for each thread would count.
            env=environment | {"MALLOC_ARENA_MAX": "1"}, pass_fds=descriptors, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
    except OSError as error:
        raise CannotTell(f"The process that reads artifacts and logs could not start ({error.strerror}).") from error


def _reason(process: "subprocess.Popen[bytes]") -> str:
    """Return why a process answered no more: only too large an answer leaves it running."""
    status = 0
    with suppress(subprocess.TimeoutExpired):
        status = process.wait(2)
    if not status:
        return f"everything that was chosen is more than {ANSWERS // 2**20} MB together"
    assert process.stderr
    told = process.stderr.read(10_000).decode("utf-8", "replace").strip().rpartition("\n")[2]
    reasons = {
        _OUT_OF_MEMORY: f"it took more than {MEMORY // 2**20} MB of memory",
        -signal.SIGXCPU: f"it took more than {PROCESSOR} seconds of the processor",
    }
    return reasons.get(status, f"the process that parses it failed ({told[:200] or status})")


def main() -> None:
    """Answer to the items that the first process sends, in bounded memory and time."""
    control, *files = (Connection(int(descriptor)) for descriptor in sys.argv[1:])
    for connection in files:
        _idle.put(connection)
    function, items, memory, processor = control.recv()
    threading.stack_size(_STACK)
    resource.setrlimit(resource.RLIMIT_CPU, (processor, processor + 5))
    with suppress(ValueError):  # a system without this limit
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            for future in as_completed([pool.submit(answer, function, *item) for item in items.items()]):
                control.send(future.result())
    except MemoryError:
        os._exit(_OUT_OF_MEMORY)


def answer(function: Callable[[Item], Answer], number: int, item: Item) -> tuple[int, Answer | RunbookError]:
    """Apply the function to an item, in the parser."""
    try:
        return number, function(item)
    except RunbookError as error:
        return number, error
    except MemoryError:
        os._exit(_OUT_OF_MEMORY)
