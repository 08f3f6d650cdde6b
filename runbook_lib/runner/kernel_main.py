"""What a headless kernel runs: ipykernel, ended by the operating system when its parent ends, however that ends.

Started by its path, so that it needs no installed package and no kernel that a person has set up.
"""

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Mapping

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run a kernel for the process whose id is in JPY_PARENT_PID."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if root not in sys.path:  # python -P added nothing: this file's own folder would hide modules of the same names
        sys.path.insert(0, root)
    _die_with(int(os.environ["JPY_PARENT_PID"]))
    from runbook_lib.system import startup

    startup.restore()

    gc.set_threshold(50_000, 20, 20)  # what a kernel makes first, by its imports, it keeps
    sys.modules.setdefault("debugpy", None)  # type: ignore[arg-type]  # nobody steps through a headless run
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # the httpx command, which imports rich
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance()


def _die_with(parent: int) -> None:
    """End with the parent.  ipykernel does so too, on any system, but only looks once a second."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before this was set
        sys.exit("The process that started this kernel has ended.")


def begin_notebook(env: Mapping[str, str], cwd: str) -> None:
    """Make this kernel as good as new for the next notebook.  Modules stay imported: that is what sharing it saves."""
    from IPython.core.getipython import get_ipython

    os.chdir(cwd)  # the reset asks where it is, and the folder of the notebook before may be gone
    shell = get_ipython()
    if shell is not None:
        shell.reset(new_session=True)
        # Modules stay: without this each reset, and each later collection, would look through all that they hold.
        gc.freeze()
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
    os.environ.update(env)


if __name__ == "__main__":
    main()
