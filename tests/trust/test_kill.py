"""A headless bump is stopped anywhere, again and again; the same command then goes on, and nothing is half or twice."""

import random
import re
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
import stopping
import whole
from small_runbooks import ROOT
from stopping import STEPS, Point, World

from runbook_lib.system.files import is_draft

#: How often a bump is stopped at random moments before it may go on to its end.
KILLS = 8
#: Where most could be lost or done twice, in the order in which a bump comes there.
WORST = (
    r"/run\.json$", "Megatron-LM commit-tree ", "Megatron-LM update-ref ", " push ", "^answer to open_pull$",
    r"/audit update-ref ", "^answer to comment$", "^answer to file_issue$",
    "^answer to rerun_failed$", r"/report\.html$",
)  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "world"
    stopping.template(folder)
    return folder


@pytest.mark.timeout(1500)  # some runs in a row, on a machine that has more to do
def test_killed_at_random_moments(made: Path, tmp_path: Path) -> None:
    """The commit draws them, so that a failure can be repeated."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    draw, order = random.Random(commit), list(STEPS)
    points = [Point.drawn(draw, step) for step in draw.sample(order, KILLS)]
    points.sort(key=lambda it: (order.index(it.step), it.visit))
    with stopping.world(made, tmp_path / "w") as world:
        _killed(world, points, draw)


@pytest.mark.timeout(1500)
def test_killed_at_the_worst_moments(made: Path, tmp_path: Path) -> None:
    with stopping.world(made, tmp_path / "w") as world:
        points = [Point.at(what, signal.SIGKILL, "both") for what in WORST]
        stopped = _killed(world, points, random.Random(1))
    assert all(stopped), list(zip(WORST, stopped, strict=True))


def _killed(world: World, at: Iterable[Point], draw: random.Random) -> list[bool]:
    """Stop the bump at each of these, look at what it left, and let it go on to its end; whether each was met."""
    killed, met = [], []
    for point in at:
        before = _records(world)
        stopped, status, told = stopping.kill(world, point, draw)
        print(point, stopped, status, told[-300:])
        # Of ipykernel, when its sockets are closed before it has answered, a traceback may be seen; of no other.
        assert not re.search(r'File "\S*/runbook_lib/(?!notebook/outputs\.py")', told)
        killed += [(record, status) for record in _records(world) - before]
        whole.at_any_moment(world)
        met.append(stopped)
    done = world.start(watched=False)
    told, _ = done.communicate(timeout=600)
    assert (done.returncode, "Ready to merge" in told) == (0, True), told
    stopping.gone(world)
    whole.at_the_end(world, killed)
    return met


def _records(world: World) -> set[Path]:
    """The records of bumps, but one that is being opened: that is none yet."""
    return {it.parent for it in world.audit.rglob("*-bump-*/run.json") if not is_draft(it.parent.parent.name)}
