"""A kernel that runs notebooks one after another, and the event loop that talks to it.

The loop has its own thread, so that it works inside another kernel, whose loop is already running, and when Ctrl-C
interrupts the caller.
"""

import asyncio
import concurrent.futures
import contextlib
import os
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from runbook_lib.errors import RunbookError
from runbook_lib.text.redact import Redactor

if TYPE_CHECKING:
    from jupyter_client.asynchronous.client import AsyncKernelClient
    from jupyter_client.manager import AsyncKernelManager
    from nbformat import NotebookNode

T = TypeVar("T")

#: Seconds that a kernel may take to start.
START_LIMIT = 60
#: Seconds that a kernel may take to prepare for a notebook.
_READY = 60
#: Seconds between the first two requests to a starting kernel, and the growth of that period.  libzmq queues at most
#: 1,000 requests; the next one would block forever.
_NUDGE, _NUDGE_GROWTH = 0.05, 1.02
#: Maximum bytes of a folder's path that leave room for a socket name: unix(7) allows 108 bytes, macOS 104.
_LONGEST_FOLDER = 70
#: The variable with the folder of the kernel that this process is.
_FOLDER = "RUNBOOK_KERNEL_FOLDER"


class CellFailed(Exception):
    """An exception in a cell, with its class name and message.  The message of a RunbookError is for people."""

    def __init__(self, count: int, name: str, message: str, *, is_runbook_error: bool) -> None:
        super().__init__(message)
        self.count, self.name, self.message, self.is_runbook_error = count, name, message, is_runbook_error


class CellTooSlow(Exception):
    """A cell that did not finish within its time limit; the kernel can no longer be used."""

    def __init__(self, count: int) -> None:
        super().__init__(f"cell {count}")
        self.count = count


class KernelDied(Exception):
    """The unexpected death of the kernel's process; ``last_words`` are the last lines of its standard error."""

    def __init__(self, last_words: str) -> None:
        super().__init__(last_words)
        self.last_words = last_words


def _socket_folder() -> str:
    """Return the folder for temporary files, or another one if its path is too long for sockets.

    In a kernel it is the kernel's own folder, so that nothing remains of a kernel that ends with this one.
    """
    for folder in (os.environ.get(_FOLDER, ""), tempfile.gettempdir(), os.environ.get("XDG_RUNTIME_DIR", "")):
        if folder and len(os.fsencode(folder)) <= _LONGEST_FOLDER:
            return folder
    return "/tmp"


class Kernel:
    """A kernel process of this environment's Python, which starts in the background."""

    def __init__(self, env: Mapping[str, str], cwd: Path, start_limit: int = START_LIMIT) -> None:
        # Sockets in a folder avoid port conflicts.
        self._temporary = tempfile.TemporaryDirectory("", "runbook-", _socket_folder(), ignore_cleanup_errors=True)
        self._folder = Path(self._temporary.name)
        self._env, self._cwd, self._start_limit = {**env, _FOLDER: str(self._folder)}, cwd, start_limit
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the kernel)
        self._manager: AsyncKernelManager | None = None
        self._client: AsyncKernelClient | None = None
        self._running: asyncio.Task[None] | None = None
        self._stopping: concurrent.futures.Future[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kernel", daemon=True)
        self._thread.start()
        self._started = asyncio.run_coroutine_threadsafe(self._start(), self._loop)

    def __enter__(self) -> "Kernel":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, env: Mapping[str, str], cwd: Path) -> None:
        """Prepare for a notebook: clear the namespace, set these variables, and change to the folder.

        Raises KernelDied if the kernel did not start, CellFailed if it was interrupted, and RunbookError if it does not
        respond.
        """
        from nbformat.v4 import new_code_cell, new_notebook

        self._wait(self._started)
        code = f"import runbook_lib.runner.kernel_main as _m; _m.begin_notebook({dict(env)!r}, {str(cwd)!r})"
        preparation = new_notebook(cells=[new_code_cell(code)])
        try:
            self.run(preparation, limit=_READY, on_output=lambda _name, _text: None, cell_done=lambda _: None)
        except CellTooSlow:
            message = f"The kernel did not respond within {_READY} seconds. Run the same command again."
            raise RunbookError(message) from None
        except CellFailed as error:
            if error.name == "KeyboardInterrupt":
                raise
            raise RunbookError(f"The kernel could not be prepared: {error.name}: {error.message}.") from error

    def run(
        self,
        notebook: "NotebookNode",
        *,
        limit: float | None,
        on_output: Callable[[str, str], None],
        cell_done: Callable[["NotebookNode"], None],
    ) -> None:
        """Run the cells and add their outputs to the notebook.  ``limit`` is in seconds per cell.

        ``on_output`` gets the stream (stdout, stderr) and text that cells print, ``cell_done`` the notebook after each
        cell; both are called on another thread.  Raises CellFailed, CellTooSlow and KernelDied.  After Ctrl-C,
        ``cell_done`` may still be called until ``interrupt`` or ``close`` has returned.
        """
        self._call(self._run(notebook, limit, on_output, cell_done))

    def interrupt(self, grace: float) -> None:
        """Interrupt the running cell, and wait up to ``grace`` seconds for its processes to end."""
        manager = self._manager
        if self._started.done() and manager is not None and manager.has_kernel:
            self._call(self._interrupt(manager, grace))

    def close(self) -> None:
        """Kill the kernel.  May be called again if the call was interrupted."""
        if self._stopping is None:
            self._started.cancel()
            stopping = asyncio.run_coroutine_threadsafe(self._stop(), self._loop)
            stopping.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))
            self._stopping = stopping
        self._thread.join()
        if not self._loop.is_closed():
            self._loop.close()
            self._stopping.result()
        self._stderr.close()
        self._temporary.cleanup()

    # -- on the loop --------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
        from jupyter_client.manager import AsyncKernelManager

        arguments = ["-f", "{connection_file}", "--HistoryManager.enabled=False", "--IPKernelApp.log_level=ERROR"]
        # Files in the notebook's folder must not shadow modules.
        arguments.append("--InteractiveShellApp.ignore_cwd=True")
        program = str(Path(__file__).with_name("kernel_main.py"))
        spec = KernelSpec(argv=[sys.executable, "-P", program, *arguments], display_name="Python 3", language="python")

        class OurKernel(KernelSpecManager):
            def get_kernel_spec(self, _: str) -> KernelSpec:
                return spec

        self._manager = AsyncKernelManager(
            kernel_spec_manager=OurKernel(), transport="ipc", connection_file=str(self._folder / "kernel.json")
        )
        # Cells print through messages, which are redacted.  The process itself writes only when it crashes.
        await self._manager.start_kernel(env=self._env, cwd=str(self._cwd), stdout=self._stderr, stderr=self._stderr)
        self._client = self._manager.client()
        # No heartbeat: the manager knows whether its process is alive, and the thread could start too late.
        self._client.start_channels(hb=False)
        self._client.allow_stdin = False
        await self._wait_until_ready(self._manager, self._client)

    async def _wait_until_ready(self, manager: "AsyncKernelManager", client: "AsyncKernelClient") -> None:
        """Poll the kernel until it responds; jupyter_client's ``wait_for_ready`` takes 0.2 s longer."""
        deadline, pause = time.monotonic() + self._start_limit, _NUDGE
        while time.monotonic() < deadline and await manager.is_alive():
            client.kernel_info()
            with contextlib.suppress(queue.Empty):
                await client.get_iopub_msg(timeout=pause)
                return
            pause *= _NUDGE_GROWTH
        raise KernelDied(self._last_words() or f"The kernel did not start within {self._start_limit} seconds.")

    async def _run(
        self,
        notebook: "NotebookNode",
        limit: float | None,
        on_output: Callable[[str, str], None],
        cell_done: Callable[["NotebookNode"], None],
    ) -> None:
        from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

        from runbook_lib.runner.kernel_client import OutputClient

        self._running = asyncio.current_task()
        client = OutputClient(
            notebook, self._manager, on_output, timeout=limit and max(1, round(limit)), store_widget_state=False,
            coalesce_streams=True, record_timing=True,
        )  # fmt: skip
        client.kc = self._client
        for index, cell in enumerate(notebook.cells):
            count = client.code_cells_executed + 1
            try:
                await client.async_execute_cell(cell, index, execution_count=count)
            except CellExecutionError as error:
                is_ours = _is_runbook_error(cell)
                raise CellFailed(count, error.ename, error.evalue, is_runbook_error=is_ours) from error
            except CellTimeoutError as error:
                raise CellTooSlow(count) from error
            except DeadKernelError as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():  # nbclient mistakes cancellation for the kernel's death
                    raise asyncio.CancelledError from error
                if client.unanswered:
                    message = "The kernel did not respond."
                    raise CellFailed(count, "KeyboardInterrupt", message, is_runbook_error=False) from error
                raise KernelDied(self._last_words()) from error
            finally:
                if cell.cell_type == "code":
                    cell_done(notebook)  # on the loop, where nothing can interrupt it

    async def _interrupt(self, manager: "AsyncKernelManager", grace: float) -> None:
        await manager.interrupt_kernel()
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running}, timeout=grace)  # the task saves the notebook
        client = self._client
        if client is not None:  # the kernel replies once the cell has ended
            with contextlib.suppress(TimeoutError, RuntimeError):
                await asyncio.wait_for(client.kernel_info(reply=True, timeout=grace), grace)

    async def _stop(self) -> None:
        if self._client is not None:
            self._client.stop_channels()
        if self._manager is not None and self._manager.has_kernel:
            await self._manager.shutdown_kernel(now=True)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- on the caller's thread ---------------------------------------------------------------------------------

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._wait(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _wait(self, future: "concurrent.futures.Future[T]") -> T:
        try:
            return future.result()
        finally:
            future.cancel()  # no effect if done, which it is not after Ctrl-C

    def _last_words(self) -> str:
        self._stderr.seek(0)
        text = self._stderr.read().decode("utf-8", "replace")
        # A private key is recognized only as a whole.
        return "\n".join(Redactor(self._env).text(text).strip().splitlines()[-5:])


def _is_runbook_error(cell: "NotebookNode") -> bool:
    """Return True if the error has one plain line instead of a traceback, which only RunbookError does."""
    errors = [output for output in cell.outputs if output.output_type == "error"]
    return bool(errors) and errors[-1].traceback == [f"{errors[-1].ename}: {errors[-1].evalue}"]
