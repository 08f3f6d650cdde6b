"""A bump is stopped anywhere, again and again; the same command then goes on, and nothing is half or twice."""

import json
import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import practised
import psutil
import pytest
from cells import MOMENTS
from forked import Forked
from practised import World
from small_runbooks import ROOT

#: Bumps, and how often each of them is stopped.
CHAINS, KILLS = 4, 10


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return practised.template(tmp_path_factory.mktemp("made") / "world")


@pytest.mark.timeout(1500)  # some runs in a row, on a machine that has more to do
@pytest.mark.parametrize("chain", range(CHAINS))
def test_killed_at_random_moments(chain: int, made: Path, tmp_path: Path) -> None:
    """The commit draws them, so that a failure can be repeated."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    draw = random.Random(f"{commit} {chain}")
    drawn = sorted(draw.choices(list(MOMENTS), [*MOMENTS.values()], k=KILLS))
    stopped = 0
    with practised.world(made, tmp_path / "w") as world:
        for cell in drawn:
            stop = {
                "cell": cell, "moment": 1 + draw.randrange(MOMENTS[cell]), "group": draw.random() < 0.5,
                "signal": draw.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)),
                "later": draw.choice((0, draw.uniform(0, 0.03))),
            }  # fmt: skip
            status, told = world.bump(STOP=json.dumps(stop))
            print(stop, status, told[-300:])
            stopped += status != 0
            practised.at_any_moment(world)
        _goes_on(world)
    assert stopped > KILLS / 2


@pytest.mark.timeout(600)
def test_papermill_and_kernels_are_killed(made: Path, tmp_path: Path) -> None:
    with practised.world(made, tmp_path / "w") as world:
        for whom, how in (("kernel", signal.SIGKILL), ("driver", signal.SIGKILL), ("driver", signal.SIGTERM)):
            run = world.start(kernel=True)
            while not (kernels := _kernels(run)) and run.poll() is None:
                time.sleep(0.02)
            time.sleep(random.uniform(0, 5))
            with suppress(ProcessLookupError):
                os.kill(kernels[0].pid if whom == "kernel" else run.pid, how)
            print(whom, *world.ended(run))
            practised.at_any_moment(world)
        _goes_on(world, kernel=True)


def _kernels(run: Forked) -> list[psutil.Process]:
    with suppress(psutil.Error):
        below = psutil.Process(run.pid).children(recursive=True)
        return [it for it in below if "ipykernel_launcher" in " ".join(it.cmdline())]
    return []


def _goes_on(world: World, *, kernel: bool = False) -> None:
    """The same command comes to the bump's end."""
    status, told = world.bump(kernel=kernel)
    assert (status, "Ready to merge" in told) == (0, True), told
    practised.at_the_end(world)
