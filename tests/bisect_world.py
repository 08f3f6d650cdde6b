"""A checkout, a test and the folder of results of a search, for the tests of bisect-image."""

import contextlib
import os
import shlex
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import slurm_repository

from runbook_lib.bisect.places import BisectRequest, parse
from runbook_lib.bisect.step import BisectImage, SearchFacts, read_search
from runbook_lib.bump.run import carry_out
from runbook_lib.compute.slurm.site import Session, Site
from runbook_lib.pins.bump import Bump
from runbook_lib.practice.registry import PracticeRegistry
from runbook_lib.record.recorder import Recorder
from runbook_lib.text.notebook_file import read_parameters
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.ports import World as Outside

SERVICES: Any = SimpleNamespace(registry=PracticeRegistry)
#: A test that counts its starts, and is as good as its image: NCCL of 26.05 breaks it.
TEST = """\
echo "$1 $2" >>'{folder}/starts'
{reports}
case "$1/$2" in 26.05*/*nccl=*) echo 4.1 ;; 26.05*|26.06*) echo 2.5 ;; *) echo 4.0 ;; esac
"""
REPORTS = 'IFS=,; for part in $2; do echo "runbook-overlay: ${part%%=*} ${part#*=}"; done'

#: The image's Python: pip installs a library, and each reports the old version.
PYTHON = """\
#!/bin/bash
case "$*" in
*"-m pip"*) while [ "$1" != --target ]; do shift; done; mkdir -p "$2/x/lib" && touch "$2/x/lib/libx.so" ;;
*ncclGetVersion*) echo 2.29.7 ;;
*cublasGetProperty*) echo 13.3.0 ;;
*cudnnGetVersion*) echo 9.21.0 ;;
*transformer_engine*) echo 2.14.0 ;;
esac
"""


class World:
    """A checkout, a test and the folder of results."""

    def __init__(self, folder: Path, test: str = TEST) -> None:
        self.folder = folder
        self.checkout = Checkout.open(slurm_repository.create(folder / "checkout"))
        (folder / "test.sh").write_text(test.replace("{folder}", str(folder)).replace("{reports}", REPORTS))

    def plan(self, *, apply: bool = True, site: Site | None = None, **changes: str) -> SearchFacts:
        bump = Bump.parse(tag="26.06-py3", mode="local" if apply else "preview")
        given = {
            "good": "26.03-py3", "test": f"bash {self.folder}/test.sh {{tag}} {{restored}}", "metric": "value higher",
        }  # fmt: skip
        request = parse(bump, site or self.site, **{**given, **changes})
        return read_search(BumpBranch.find(self.checkout, bump, SERVICES), request)

    @property
    def site(self) -> Site:
        """A machine without GPUs, where a run may take a minute."""
        return Site(str(self.folder / "results"), session=Session(1, 0, time="0:01:00"))

    def go(self, facts: SearchFacts) -> tuple[SearchFacts, dict[str, Any]]:
        folder, bump = Path(tempfile.mkdtemp(prefix="record-", dir=self.folder)), facts.branch.bump
        record = Recorder("bisect-image", bump, folder)
        plan = BisectImage("", "", "", "").plan(facts, bump)
        carry_out(record, plan, Outside(self.checkout, None, record), lambda view: view)
        return facts.reread(), record.run

    @property
    def starts(self) -> list[str]:
        path = self.folder / "starts"
        return path.read_text().splitlines() if path.exists() else []


def kill_search(search: Callable[[], object], seconds: float = 30, until: Callable[[], bool] = lambda: False) -> bool:
    """Search in a child, and kill it after some seconds or on an event; return False if it ended before."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            search()
        os._exit(0)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not until():
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def read_offer(text: str) -> BisectRequest:
    """Return the search that an offered command describes; its parameters must be those of the notebook."""
    words = shlex.split(text[text.index("environment/run papermill") :])
    declared = read_parameters(Path(__file__).parents[1] / words[2])
    given = dict(zip(words[4::3], words[5::3], strict=True))
    assert set(words[3::3]) == {"-r"}
    assert given.keys() <= {parameter.name for parameter in declared or ()}
    assert given.pop("site") == "SITE.yaml"
    return parse(Bump.parse(tag=given.pop("tag"), mode=given.pop("mode")), Site("/r"), **given)
