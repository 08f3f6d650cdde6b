"""Bumps one after the other in this process, each in a practice environment of its own; tells after each what is held.

    python tests/trust/soaking.py BUMPS

Prints a line of JSON for each bump.  The places are those of the environment: HOME, TMPDIR, RUNBOOK_PRACTICE_HOME and
RUNBOOK_AUDIT.  Ten bumps share an archive, which is verified and removed after them.
"""

import gc
import json
import os
import re
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import clear_cache

import psutil

from runbook_lib import practice
from runbook_lib.records.verify import verify
from runbook_lib.runner import execute

ROOT = Path(__file__).resolve().parents[2]
#: So many bumps share an archive: its pages list them all, so one for hundreds would measure that.
_SHARED = 10


def main() -> None:
    """Run the bumps, and tell of each; memory is what is held after a collection."""
    audit, bumps = Path(os.environ["RUNBOOK_AUDIT"]), int(sys.argv[1])
    for number in range(1, bumps + 1):
        practice.reset()
        started, before = time.perf_counter(), _cpu()
        result = execute.execute(ROOT / "runbooks/bump.ipynb", {"tag": "26.04-py3"}, audit / "bump.ipynb")
        told = {"state": result.state, "sentence": result.summary, "problems": []}
        told |= {"seconds": time.perf_counter() - started, "cpu": _cpu() - before}
        if number % _SHARED == 0 or number == bumps:
            problems, counts = verify(audit)
            told["problems"] = [str(it) for it in problems] or ([] if counts.records else ["there is no record"])
            shutil.rmtree(audit)
        print(json.dumps(told | held()), flush=True)


def held() -> dict[str, Any]:
    """What this process holds: memory, files and sockets, threads, children, and files in the temporary folder."""
    me = psutil.Process()
    # A thread of a server that has said its last word ends in a moment.
    give_up = time.monotonic() + 60
    while threading.active_count() > 1 and time.monotonic() < give_up:
        time.sleep(0.01)
    # What Python keeps of patterns and addresses is bounded, and full after some hundred bumps only.
    re.purge()
    clear_cache()
    gc.collect()
    return {
        "resident": me.memory_info().rss,
        "blocks": sys.getallocatedblocks(),
        "objects": len(gc.get_objects()),
        "threads": sorted(it.name for it in threading.enumerate()),
        "open": sorted(_open_files()),
        # Zombies are among them.
        "children": [f"{it.pid} {it.status()}" for it in me.children(recursive=True)],
        "temporary": sorted(it.name for it in Path(os.environ["TMPDIR"]).iterdir()),
    }


def _open_files() -> list[str]:
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{descriptor}").partition(":[")[0])
        except FileNotFoundError:  # that of the listing itself
            continue
    return found


def _cpu() -> float:
    """Seconds of processor time of this process and the children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    main()
