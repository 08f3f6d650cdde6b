"""The CI that starts by itself for a bump: from the repository or from a fork, by the workflows' triggers."""

import subprocess
from pathlib import Path

import pytest
from elsewhere import MEGATRON_YML, NEW_TORCH, ml_containers

from runbook_lib.bump import ci_triggers
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import ML_CONTAINERS
from runbook_lib.world import bump_branch

UPSTREAM, FORK = "https://github.com/coreweave/ml-containers.git", "https://github.com/somebody/ml-containers.git"


def describe(folder: Path, on: str, *, fork: bool) -> str:
    """Describe what starts CI where the pin's own workflow has the triggers ``on``."""
    texts = ml_containers()
    for path, text in (texts | {MEGATRON_YML: texts[MEGATRON_YML].replace("on: [workflow_dispatch]", on)}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    for command in ("init -q -b main", "config user.name Ada", "config user.email ada@example.org", "add -A",
                    "commit -q -m x", f"remote add origin {UPSTREAM}", f"remote add fork {FORK}",
                    "update-ref refs/remotes/origin/main HEAD"):  # fmt: skip
        subprocess.run(["git", *command.split()], cwd=folder, check=True)
    checkout = Checkout.open(folder)
    bump = Bump.parse(tag=NEW_TORCH, remote="fork" if fork else "origin", repository=ML_CONTAINERS)
    commit = checkout.git("rev-parse", "HEAD")
    branch = bump_branch.BumpBranch(checkout, bump, "origin", commit, commit, None)
    return ci_triggers.describe(branch)


NOTHING = [
    "on: [workflow_dispatch]",
    "on: workflow_dispatch",
    "on: {schedule: [{cron: 0 5 * * *}]}",
    "on: workflow_dispatch\nenv: {BUILD_DATE: 0000-00-00}",
    "on: {push: {paths: ['torch/**']}}",
    "on: {push: {branches: [main]}}",
    "on: {push: {branches: ['**', '!bump/**']}}",
    "on: {push: {tags: ['v*']}}",
    "on: {push: {paths-ignore: ['.github/**']}, pull_request: {branches: ['release/**']}}",
]
ON_PUSH = [
    "on: push",
    "on: [push, workflow_dispatch]",
    "'on': {push: }",
    "on: {push: {paths: ['megatron/**', .github/workflows/megatron.yml]}}",
    "on: {push: {branches: ['bump/**']}}",
    "on: {push: {branches: '**'}}",
    "on: {push: {paths: ['**/megatron.yml', '!docs/**']}}",
    "on: {push: {paths: ['**.yml'], tags: ['v*'], branches: ['[a-c]ump/**']}}",
    "on: {push: {paths-ignore: [docs/**]}}",
]
ON_PULL_REQUEST = ["on: pull_request", "on: {pull_request: {branches: [main]}}", "on: [pull_request_target]"]


@pytest.mark.parametrize("on", NOTHING)
@pytest.mark.parametrize("fork", [False, True])
def test_nothing_starts_for_other_triggers(tmp_path: Path, on: str, fork: bool) -> None:
    sentence = describe(tmp_path, on, fork=fork)
    assert sentence.startswith("No CI starts")
    assert "megatron.yml" not in sentence


@pytest.mark.parametrize("on", ON_PUSH)
def test_a_push_starts_ci_in_the_repository_and_not_from_a_fork(tmp_path: Path, on: str) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "fork").mkdir()
    assert describe(tmp_path / "own", on, fork=False) == "CI starts by itself: megatron.yml."
    sentence = describe(tmp_path / "fork", on, fork=True)
    assert sentence.startswith("No CI starts")
    assert "megatron.yml" in sentence


@pytest.mark.parametrize("on", ON_PULL_REQUEST)
@pytest.mark.parametrize("fork", [False, True])
def test_a_pull_request_starts_ci_from_a_fork_too(tmp_path: Path, on: str, fork: bool) -> None:
    sentence = describe(tmp_path, on, fork=fork)
    assert sentence.startswith("CI starts")
    assert "megatron.yml" in sentence


@pytest.mark.parametrize("on", ["on: 7", "name: x", "on: {push: 3}", "on: {push: {paths: {a: b}}}", "on: ["])
def test_a_workflow_of_an_unknown_form_decides_nothing(tmp_path: Path, on: str) -> None:
    assert "unknown" in describe(tmp_path, on, fork=False)
