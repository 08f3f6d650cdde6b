"""Main program of a headless kernel: ipykernel, killed by the operating system when its parent ends.

It is started by its path, without an installed package or kernel specification.
"""

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Mapping

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run a kernel for the process whose ID is in JPY_PARENT_PID."""
    # ipykernel handles interrupts of cells.  An earlier one would end the main thread, and not the process: libzmq
    # waits for its sockets on exit.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if root not in sys.path:  # python -P omits this file's folder, which would shadow modules
        sys.path.insert(0, root)
    _die_with(int(os.environ["JPY_PARENT_PID"]))
    from runbook_lib.system import startup

    startup.restore()

    gc.set_threshold(50_000, 20, 20)  # imports create long-lived objects
    sys.modules.setdefault("debugpy", None)  # type: ignore[arg-type]  # a headless run is not debugged
    startup.skip_httpx_command()
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance()
    os._exit(1)  # an interrupt between two cells ended ipykernel's loop: do not wait for its other threads


def _die_with(parent: int) -> None:
    """End with the parent.  ipykernel does so on any system, but checks only once a second."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent ended before prctl was called
        sys.exit("The process that started this kernel has ended.")


def begin_notebook(env: Mapping[str, str], cwd: str) -> None:
    """Reset this kernel for the next notebook.  Modules stay imported, which is why notebooks share a kernel."""
    from IPython.core.getipython import get_ipython

    os.chdir(cwd)  # reset() reads the current folder, and the previous notebook's may have been deleted
    shell = get_ipython()
    if shell is not None:
        shell.reset(new_session=True)
        shell.execution_count = 0  # this call is counted
        # Otherwise each reset and each later collection would traverse the objects of all modules.
        gc.freeze()
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
    os.environ.update(env)


if __name__ == "__main__":
    main()
