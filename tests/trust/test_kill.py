"""A headless bump is stopped anywhere, again and again; the same command then goes on, and nothing is half or twice."""

import random
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest
import stopping
import whole
from figures import Figures
from stopping import STEPS, Point, World

#: Worlds, and how often the bump of each is stopped before it may go on to its end.
CHAINS, KILLS = 10, 16
#: Where most could be lost or done twice, in the order in which a bump comes there.
WORST = (
    r"/head$", " switch ", r"/docker/Dockerfile\.ci\.dev$", r"/\w+-01-github-pin-\w+/run\.json$", " commit ", " push ",
    r"^answer to POST .*/pulls$", r"^answer to POST .*/labels$", r"^answer to POST .*/comments$",
    r"golden_values_dev_dgx_h100\.json$", r"^answer to POST .*/issues$", r"/recipes/h100/moe\.yaml$", " push ",
    r"^answer to POST .*/rerun-failed-jobs$",
)  # fmt: skip


def points(chain: int) -> list[Point]:
    """Where the bump of a chain is stopped: most often further on than before."""
    order = list(STEPS)
    deck = (order * CHAINS * KILLS)[: CHAINS * KILLS]  # each step as often as another
    random.Random(8).shuffle(deck)
    draw = random.Random(chain)
    drawn = [Point.drawn(draw, step) for step in deck[chain * KILLS : (chain + 1) * KILLS]]
    return sorted(drawn, key=lambda it: (order.index(it.step), it.visit))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in the background of a shell: it would be inherited
        signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = tmp_path_factory.mktemp("made") / "world"
    stopping.template(folder)
    return folder


def test_the_points_are_of_all_steps_signals_and_processes() -> None:
    drawn = [point for chain in range(CHAINS) for point in points(chain)]
    assert len(drawn) + 3 * len(WORST) >= 200
    for name, least in (("step", 16), ("signal", 30), ("target", 45), ("changing", 50)):
        counts = [
            [getattr(point, name) for point in drawn].count(value) for value in {getattr(it, name) for it in drawn}
        ]
        assert min(counts) >= least, (name, counts)
    assert {point.step for point in drawn} == set(STEPS)


@pytest.mark.timeout(1500)  # some runs in a row, on a machine that has more to do
@pytest.mark.parametrize("chain", range(CHAINS))
def test_kill(chain: int, made: Path, tmp_path: Path, figures: Figures) -> None:
    with stopping.world(made, tmp_path / "w", own=chain % 4 == 0) as world:
        figures["kills"] += sum(_killed(world, points(chain), random.Random(-chain)))


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("number", "target"), [(signal.SIGKILL, "both"), (signal.SIGTERM, "driver"), (signal.SIGINT, "kernel")]
)
def test_kill_at_the_worst_moments(
    number: signal.Signals, target: str, made: Path, tmp_path: Path, figures: Figures
) -> None:
    with stopping.world(made, tmp_path / "w") as world:
        stopped = _killed(world, [Point.at(what, number, target) for what in WORST], random.Random(1))
    assert all(stopped), list(zip(WORST, stopped, strict=True))
    figures["kills"] += len(stopped)


def _killed(world: World, at: Iterable[Point], draw: random.Random) -> list[bool]:
    """Stop the bump at each of these, look at what it left, and let it go on to its end; whether each was met."""
    killed, met = [], []
    for point in at:
        before = _records(world)
        stopped, status, told = stopping.kill(world, point, draw)
        print(point, stopped, status, told[-300:])
        assert "Traceback" not in told
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
    return {it.parent for it in world.audit.rglob("*-bump-*/run.json") if not it.parent.name.startswith(".")}
