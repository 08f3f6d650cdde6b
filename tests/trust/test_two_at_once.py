"""Two runs that meet on a checkout, an archive or a pull request: one waits, or names the other."""

import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import bumping
import pytest
import stopping
import whole
from github_server.server import Forge
from registry_server import RegistryServer
from stopping import Moments, Point, World, git
from werkzeug.wrappers import Request, Response

from runbook_lib.bump.run_ci import RunCi
from runbook_lib.failures.broken_tests import issue
from runbook_lib.recipes.targets import Target
from runbook_lib.record.verify import verify
from runbook_lib.system.files import REPORT_AFTER
from runbook_lib.world.conditions.issues import IssueFiled

WAIT = 250.0
#: Until CI would have to be waited for: what follows is the same as in a run alone.
STEPS = ("start", "00-preflight", "01-github-pin", "02-gitlab-pin", "03-open-pr", "04-run-ci")
#: Where one of two that see each other's pull request stands when the other does the same.
MEETINGS = (" push ", "^answer to comment$")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "world"
    stopping.template(folder)
    return folder


@pytest.fixture
def world(made: Path, tmp_path: Path) -> Iterator[World]:
    with stopping.world(made, tmp_path / "w", slow=True) as found:
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


def test_two_bumps_on_one_checkout_go_one_after_the_other(world: World) -> None:
    first = Held(world, point(0, STEPS[1:]))
    second = world.start()
    lock, known = str(world.checkout / ".git" / "base-image-runbook.lock"), len(world.moments.log)
    while lock not in [what for *_, what in world.moments.log[known:]]:
        assert second.poll() is None, second.communicate()[0]
        time.sleep(0.02)
    time.sleep(REPORT_AFTER + 1)
    assert first.go_on()[0] == 0
    status, told = ended(second)
    assert status == 0, told
    assert "Waiting for another command" in world.output.read_text()
    checked(world)


@pytest.mark.parametrize("moment", MEETINGS)
def test_two_checkouts_on_one_pull_request(moment: str, world: World) -> None:
    other = world.folder / "other"
    git(world.folder, "clone", "-q", str(world.remote), str(other))
    first = Held(world, Point.at(moment, signal.SIGTERM, "driver"))
    # The same forge, as a server on the same file.
    with (
        Forge(world.home / "forge.sqlite", world.remote, clock=None, listen=True) as forge,
        closing(RegistryServer(listen=True)) as registry,
    ):
        address = {"GITHUB_API_URL": forge.url, "GITHUB_TOKEN": "practice-token", "RUNBOOK_REGISTRY": registry.url}
        address |= {"GITHUB_REPOSITORY": bumping.REPOSITORY}
        second = world.start("-r", "repo", str(other), "-r", "mode", "publish", watched=False, **address)
        status, told = ended(second)
    after, said = first.go_on()
    # Whose branch is not the one that was pushed says so; with the same commit both are done.
    assert 0 in (status, after), told + said
    for code, text in ((status, told), (after, said)):
        assert code == 0 or re.search(r"have diverged|did not accept the branch", text), text
    checked(world)


def test_two_worlds_on_one_archive(made: Path, world: World, tmp_path: Path) -> None:
    with stopping.world(made, tmp_path / "v", slow=True) as another:
        first = Held(world, point(0))
        status, told = ended(another.start(watched=False, RUNBOOK_AUDIT=str(world.audit)))
        assert status == 0, told
        assert first.go_on()[0] == 0
    checked(world)


# -- the same change at the same moment ------------------------------------------------------------------------------


def authorized(world: bumping.World) -> object:
    return world.run(RunCi())


def filed(world: bumping.World) -> object:
    test = Target("gpt3_mcore_te_tp4_pp1_long", "dgx_h100", "dev", "gpt", "it hangs")
    bump = bumping.bump_to()
    tracked = IssueFiled(str(test), issue.marker(test), "It hangs", f"{issue.marker(test)} It hangs.", issue.LABEL)
    return tracked.make_true(world.context(bump).world)


@pytest.mark.parametrize(("act", "path"), [(authorized, r"/comments$"), (filed, r"/issues$")])
def test_the_younger_of_two_simultaneous_ones_is_withdrawn(
    act: Callable[[bumping.World], object], path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both have looked and seen nothing, and neither hears of its own before the other's is there too.
    together, answer, met = threading.Barrier(2, timeout=60), Forge.answer, 0

    def meet(forge: Forge, request: Request) -> Response:
        nonlocal met
        if request.method != "POST" or not re.search(path, request.path):
            return answer(forge, request)
        met += 1
        together.wait()
        given = answer(forge, request)
        together.wait()
        return given

    with bumping.world(tmp_path) as at, ThreadPoolExecutor(2) as pool:
        at.open_pr()
        at.online()
        monkeypatch.setattr(at, "github", at.online)  # two clients of one server
        monkeypatch.setattr(Forge, "answer", meet)
        for each in [pool.submit(act, at) for _ in range(2)]:
            each.result()
        assert met == 2
        github = at.github()
        assert len([it for it in github.comments(10) if it.body.startswith("/ok to test")]) == (act is authorized)
        assert len([it for it in github.list_issues() if it.title == "It hangs"]) == (act is filed)
