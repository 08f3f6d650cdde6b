"""Two runs that meet on a checkout, an archive, a pull request or in practice: one waits, or names the other."""

import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import stopping
import whole
from fault_calls import CALLS, At, outcome, practice
from fault_proxy import Exchange
from figures import Figures
from small_runbooks import ROOT
from stopping import Moments, Point, World, git

from runbook_lib.records.verify import verify

WAIT = 250.0
#: Until CI would have to be waited for: what follows is the same as in a run alone.
STEPS = ("start", "00-preflight", "01-github-pin", "02-gitlab-pin", "03-open-pr", "04-run-ci")


#: Where one of two that see each other's pull request stands when the other does the same.
MEETINGS = (
    " push ", r"^answer to POST .*/pulls$", r"^answer to POST .*/labels$", r"^answer to POST .*/comments$",
    " switch ", " commit ", r"/docker/Dockerfile\.ci\.dev$",
)  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "world"
    stopping.template(folder)
    return folder


@pytest.fixture
def world(made: Path, tmp_path: Path) -> Iterator[World]:
    with stopping.world(made, tmp_path / "w", seconds=600) as found:
        yield found


def point(seed: object, steps: tuple[str, ...] = STEPS) -> Point:
    """Where the first of two runs is held until the second has gone as far as it can."""
    draw = random.Random(str(seed))
    # While the archive is written it is held, for milliseconds: who stands there would keep all others waiting.
    return replace(Point.drawn(draw, draw.choice(steps), visit=1), avoid="/audit/")


class Held:
    """A run that stands at a moment."""

    def __init__(self, world: World, at: Point, *arguments: str) -> None:
        world.moments = self.moments = Moments(at)
        self.process = world.start(*arguments)
        while not self.moments.reached.wait(0.02):
            assert self.process.poll() is None, self.process.communicate()[0]

    def go_on(self) -> tuple[int, str]:
        self.moments.released.set()
        return ended(self.process)


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Exit status and what it said: done, or a sentence, and never a traceback."""
    told, _ = process.communicate(timeout=WAIT)
    assert "Traceback" not in told
    assert process.returncode in (0, 1), told
    assert process.returncode == 0 or "✗ failed" in told or "papermill: " in told, told
    return process.returncode, told


def checked(world: World, comments: int = 1) -> None:
    """One of each, and an archive that is whole."""
    stopping.gone(world)
    whole.at_any_moment(world)
    assert whole.pulls(world) == 1
    assert whole.authorizations(world) == comments
    problems, counts = verify(world.audit)
    assert (problems, counts.running, counts.killed) == ([], 0, 0)


@pytest.mark.parametrize("seed", range(5))
def test_two_bumps_on_one_checkout_go_one_after_the_other(seed: int, world: World, figures: Figures) -> None:
    first = Held(world, point(seed, STEPS[1:]))
    second = world.start(watched=False)
    told = ""
    assert second.stdout is not None
    while "Waiting for process" not in told:
        line = second.stdout.readline()
        assert line, told
        told += line
    assert f"Waiting for process {first.process.pid} (" in told
    assert re.search(r", bump 26\.04-py3, since 2\d\d\d-\S+ \d\d:\d\d UTC\), up to 60 seconds", told), told
    assert first.go_on()[0] == 0
    status, more = ended(second)
    assert status == 0, told + more
    checked(world)
    figures["side by side"] += 2


@pytest.mark.parametrize("seed", range(len(MEETINGS)))
def test_two_checkouts_on_one_pull_request(seed: int, world: World, figures: Figures) -> None:
    other = world.folder / "other"
    git(world.folder, "clone", "-q", str(world.remote), str(other))
    first = Held(world, Point.at(MEETINGS[seed], signal.SIGTERM, "driver"))
    second = world.start("-r", "repo", str(other), "-p", "publish", "True", watched=False, **world.address)
    status, told = ended(second)
    after, said = first.go_on()
    # Whose branch is not the one that was pushed says so; with the same commit both are done.
    assert 0 in (status, after), told + said
    for code, text in ((status, told), (after, said)):
        assert code == 0 or re.search(r"have diverged|did not accept the branch", text), text
    checked(world)
    figures["side by side"] += 2


@pytest.mark.parametrize("seed", range(3))
def test_two_worlds_on_one_archive(seed: int, made: Path, world: World, tmp_path: Path, figures: Figures) -> None:
    with stopping.world(made, tmp_path / "v", seconds=600) as another:
        first = Held(world, point(seed))
        status, told = ended(another.start(watched=False, RUNBOOK_AUDIT=str(world.audit)))
        assert status == 0, told
        assert first.go_on()[0] == 0
    checked(world)
    figures["side by side"] += 2


@pytest.mark.parametrize("seed", range(4))
def test_a_preview_beside_a_bump_does_not_wait_and_changes_nothing(seed: int, world: World, figures: Figures) -> None:
    first = Held(world, point(seed))
    before = _state(world)
    status, told = ended(world.start("-p", "apply", "False", watched=False))
    assert "Waiting for process" not in told
    assert status == 0 or "Out of sync" in told, told  # so it is, in the middle of a bump
    assert _state(world) == before
    assert first.go_on()[0] == 0
    checked(world)
    figures["side by side"] += 2


@pytest.mark.parametrize("seed", range(2))
def test_a_bump_beside_a_preview(seed: int, world: World, figures: Figures) -> None:
    preview = Held(world, point(f"preview {seed}"), "-p", "apply", "False")
    status, told = ended(world.start(watched=False))
    assert status == 0, told
    preview.go_on()
    checked(world)
    figures["side by side"] += 2


def _state(world: World) -> tuple[str, ...]:
    refs = [git(place, "for-each-ref") for place in (world.checkout, world.remote)]
    return (*refs, git(world.checkout, "status", "--porcelain"), git(world.checkout, "diff"), repr(whole.held(world)))


@pytest.mark.parametrize("seed", range(3))
def test_practice_twice(seed: int, made: Path, tmp_path: Path, figures: Figures) -> None:
    draw = random.Random(seed)
    (tmp_path / "w" / "tmp").mkdir(parents=True)
    world = World(tmp_path / "w")
    world.copy(made)
    command = [sys.executable, "-P", "-m", "runbook_lib", "practice"]
    first = _practice(command, world)
    time.sleep(draw.uniform(0, 0.2))
    second = _practice(command, world)
    assert first.stdout is not None
    assert second.stdout is not None
    told = [_until(it, "practice reset") for it in (first, second)]
    serving = sorted(told, key=lambda text: "It ends with" in text)
    assert "Ctrl-C ends it" in serving[0]
    assert re.search(r"It ends with .*[0-9]+", serving[1])
    assert set(re.findall(r"http://127\S+", told[0])) == set(re.findall(r"http://127\S+", told[1]))
    for process in (first, second):
        process.kill()
        process.communicate()
    third = _practice(command, world)  # the lock of the dead holds nothing
    assert "Ctrl-C ends it" in _until(third, "practice reset")
    third.kill()
    third.communicate()
    figures["side by side"] += 2


def _practice(command: list[str], world: World) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command, env=world.env(), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def _until(process: "subprocess.Popen[str]", sign: str) -> str:
    assert process.stdout is not None
    told = ""
    while sign not in told:
        line = process.stdout.readline()
        assert line, told
        told += line
    return told


# -- the same change at the same moment ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[At]:
    with practice(tmp_path_factory.mktemp("forge")) as at:
        yield at


@pytest.mark.parametrize("name", ["comment", "file an issue"])
def test_the_younger_of_two_simultaneous_ones_is_withdrawn(name: str, forge: At, figures: Figures) -> None:
    call = CALLS[name]

    def wanted() -> tuple[object, list[object]]:
        held = forge.made()
        return held["comments"], [ticket for ticket in held["tickets"] if ticket[2] == "open"]

    def act() -> str:
        with forge.clients() as clients:
            return outcome(forge, clients, call)[0]

    forge.back_to(call.stage)
    assert act() == "done"
    alone = wanted()
    forge.back_to(call.stage)
    # Both have looked and seen nothing, and neither hears of its own before the other's is there too.
    together = threading.Barrier(2, timeout=60)

    def meet(exchange: Exchange) -> None:
        together.wait()
        answer = bytes(exchange.real())
        together.wait()
        exchange.send(answer)

    with forge.forge.broken(meet, call.method, call.route, times=2) as fault, ThreadPoolExecutor(2) as pool:
        ended = [pool.submit(act) for _ in range(2)]
        assert [each.result() for each in ended] == ["done", "done"]
    assert fault.struck == 2
    assert wanted() == alone
    figures["side by side"] += 2
