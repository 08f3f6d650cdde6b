"""The CI that starts by itself for a bump: from the repository or from a fork, by the workflows' triggers."""

from pathlib import Path

import pytest
from clones import commit, git
from elsewhere import MEGATRON_YML, NEW_TORCH, ml_containers

from runbook_lib.bump import policy
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import ML_CONTAINERS
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.git.checkout import Checkout

UPSTREAM, FORK = "https://github.com/coreweave/ml-containers.git", "https://github.com/somebody/ml-containers.git"


def describe(folder: Path, on: str, *, fork: bool) -> str:
    """Describe what starts CI where the pin's own workflow has the triggers ``on``."""
    texts = ml_containers()
    commit(folder, texts | {MEGATRON_YML: texts[MEGATRON_YML].replace("on: [workflow_dispatch]", on)})
    for command in (f"remote add origin {UPSTREAM}", f"remote add fork {FORK}"):
        git(folder, *command.split())
    checkout = Checkout.open(folder)
    bump = Bump.parse(tag=NEW_TORCH, remote="fork" if fork else "origin", repository=ML_CONTAINERS)
    return policy.describe_triggers(BumpBranch(checkout, bump, "origin", git(folder, "rev-parse", "HEAD"), None))


@pytest.mark.parametrize(
    ("on", "own", "of_fork"),
    [
        ("on: workflow_dispatch", "No CI starts", "No CI starts"),
        ("on: {schedule: [{cron: 0 5 * * *}]}", "No CI starts", "No CI starts"),
        ("on: push", "a push: megatron.yml", "No CI starts"),
        ("'on': {push: {branches: [main]}}", "a push: megatron.yml", "No CI starts"),
        ("on: [pull_request_target]", "a pull request: megatron.yml", "approves it: megatron.yml"),
        ("on: {pull_request: , push: }", "megatron.yml; for a push: megatron.yml", "approves it: megatron.yml"),
        ("on: 7", "unknown", "unknown"),
        ("name: x", "unknown", "unknown"),
        ("on: [", "unknown", "unknown"),
    ],
)
def test_what_starts_from_the_repository_and_from_a_fork(tmp_path: Path, on: str, own: str, of_fork: str) -> None:
    for fork, expected in ((False, own), (True, of_fork)):
        assert expected in describe(tmp_path / str(fork), on, fork=fork)
