"""What upstream asks of contributors: a branch in a fork, and signed commits."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from bumping import BRANCH, REPOSITORY, World, bump_to, git

from runbook_lib.bump import open_pr, policy
from runbook_lib.model import Outcome, Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import MEGATRON_LM
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.conditions.commits import BranchTip, Pushed
from runbook_lib.world.ports import World as Outside

COPY = "practice/Megatron-LM is a copy, of which nobody asks that"
#: For these tests the practice repository is the upstream one.
ITSELF = replace(MEGATRON_LM, name=REPOSITORY)


def upstream(**parameters: str) -> Bump:
    return bump_to(repository=ITSELF, **parameters)


@pytest.mark.parametrize(
    ("remote", "bump", "asked"),
    [
        ("origin", bump_to(), False),
        ("origin", upstream(), True),
        ("origin", upstream(allow="push-upstream"), False),
        ("fork", upstream(remote="fork"), False),
    ],
    ids=[COPY, "upstream", "a person decides so", "a fork"],
)
def test_a_push_to_the_upstream_repository_needs_a_decision(world: World, remote: str, bump: Bump, asked: bool) -> None:
    git(world.checkout.path, "remote", "add", "fork", "https://github.com/ada/Megatron-LM")
    plan: Plan[Outside] = Plan(Outcome(""), conditions=(Pushed(BranchTip(BRANCH, ""), remote, None),))
    found = policy.with_fork(plan, world.checkout, bump)
    assert [type(each).__name__ for each in found.conditions] == [*["Awaited"] * asked, "Pushed"]
    assert [each.subject for each in found.questions] == ["push-upstream"] * asked
    assert [each.subject for each in found.evidence.decided] == ["push-upstream"] * bool(bump.decisions.entries)


def test_nothing_is_pushed_before_the_decision(world: World) -> None:
    world.run(open_pr, repository=ITSELF)
    assert "waiting for a fork: origin is practice/Megatron-LM itself" in world.outcome()
    assert world.checkout.remote_tip("origin", BRANCH) is None
    assert {"edit", "push", "pull request"}.isdisjoint(world.effects())


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


def test_unsigned_commits_are_named_before_and_at_the_end(world: World, key: Path) -> None:
    def checks() -> list[tuple[str, str]]:
        return [(each.name, each.status) for each in policy.checks(BumpBranch.find(world.checkout, upstream()))]

    def signed(allow: str = "") -> tuple[bool, str]:
        branch = BumpBranch.find(world.checkout, upstream(allow=allow))
        ok, evidence, _, decisions = policy.signatures(branch, branch.start, 2)
        assert (decisions == ("unsigned-commits",)) == bool(allow)
        return ok, evidence

    assert checks() == [("the branch is pushed to a fork", "skipped"), ("commits are signed", "skipped")]
    path = world.checkout.path
    world.open_pr(mode="local")
    git(path, "switch", "-q", BRANCH)
    for name, value in {"gpg.format": "ssh", "user.signingKey": str(key), "commit.gpgSign": "true"}.items():
        git(path, "config", name, value)
    git(path, "commit", "-q", "--allow-empty", "-m", "-----BEGIN SSH SIGNATURE-----\n\ngpgsig x")
    first = git(path, "rev-parse", "HEAD~1")[:10]
    assert signed() == (False, f"1 of 2 commits unsigned: {first}.")
    assert signed("unsigned-commits")[0]
    git(path, "rebase", "-q", "--gpg-sign", "--force-rebase", "main")
    assert signed() == (True, "2 commits, each signed.")
    assert checks()[1] == ("commits are signed", "passed")


def test_a_copy_of_the_repository_asks_for_nothing(world: World) -> None:
    assert policy.checks(BumpBranch.find(world.checkout, bump_to())) == []
