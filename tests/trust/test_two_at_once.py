"""Runs that meet on a checkout, an archive or a pull request: one waits, or names the other, and nothing is twice."""

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import bumping
import practised
import pytest
from clones import git
from github_server.server import Forge
from registry_server import RegistryServer
from werkzeug.wrappers import Request, Response

from runbook_lib.bump.run_ci import RunCi
from runbook_lib.failures import tracking_issue as issue
from runbook_lib.practice.world import open_world
from runbook_lib.record.store import verify
from runbook_lib.text.recipes.rows import Target
from runbook_lib.world.conditions.forge import IssueFiled


@pytest.mark.timeout(600)
def test_three_bumps_at_once(tmp_path: Path) -> None:
    """Two on one checkout and one on another, which reaches the same forge as a server; all have one archive."""
    made = practised.template(tmp_path / "made")
    with practised.world(made, tmp_path / "w") as world:
        with open_world(world.home).store.transaction() as state:
            state.ci_seconds = 36000.0  # until CI would have to be waited for: what follows is as in a run alone
        git(tmp_path, "clone", "-q", str(world.remote), str(tmp_path / "other"))
        with (
            Forge(world.home / "forge.sqlite", world.remote, clock=None, listen=True) as forge,
            closing(RegistryServer(listen=True)) as registry,
        ):
            there = {"GITHUB_API_URL": forge.url, "GITHUB_TOKEN": "practice-token", "RUNBOOK_REGISTRY": registry.url}
            there |= {"GITHUB_REPOSITORY": bumping.REPOSITORY}
            given = {"repo": str(tmp_path / "other"), "mode": "publish", "wait": False}
            runs = [world.start(parameters={"wait": False}) for _ in range(2)]
            runs.append(world.start(parameters=given, **there))
            with ThreadPoolExecutor(3) as pool:
                ended = list(pool.map(world.ended, runs))
        # Whose branch is not the one that was pushed says so; with the same commit all are done.
        for status, told in ended:
            assert status == 0 or re.search(r"have diverged|did not accept the branch", told), told
        assert 0 in [status for status, _ in ended], ended
        practised.at_any_moment(world)
        tickets, comments = practised.held(world)
        assert [it.head_ref for it in tickets].count(practised.BRANCH) == 1
        assert len([it for it in comments if it.startswith("/ok to test")]) == 1
        problems, counts = verify(world.audit)
        assert (problems, counts.running, counts.killed) == ([], 0, 0)


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
