"""Golden values of a practice bump's CI run, from the forge's own artifacts; runs that must not be used."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bumping import World, git
from bumping import world as start

from runbook_lib.bump.run_ci import RunCi
from runbook_lib.errors import Refused
from runbook_lib.golden import ci_runs, collect
from runbook_lib.golden.collect import GoldenSource

BRANCH = "bump/main/dev-26.04-py3"
CASES = "tests/functional_tests/test_cases"
LABELS = frozenset({"Run functional tests"})


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with start(tmp_path) as made:
        made.open_pr()
        yield made


def source(world: World, **options: Any) -> GoldenSource:
    github = world.github()
    run = github.runs(branch="pull-request/10")[0]
    options = {"image_type": "dev", "branch": "pull-request/10", "labels": LABELS} | options
    return ci_runs.of_github(github, run, **options)


def known(world: World) -> set[str]:
    return {path for path in git(world.remote, "ls-tree", "-r", "--name-only", BRANCH).splitlines() if CASES in path}


def test_a_run_of_the_practice_world(world: World) -> None:
    world.run(RunCi())
    assert "in progress" in source(world).unusable
    world.now[0] += 1000
    found = collect.collect(source(world), known(world))
    assert found.files
    assert {it.path for it in found.files} <= known(world)
    said = {(it.job.partition(" - ")[0], it.sentence.partition(":")[0]) for it in found.problems}
    assert said == {
        ("gpt/gpt3_mcore_te_tp4_pp1_long", "The job was cancelled"),
        ("mimo/mimo_vlm_tp1", "The artifact contains no golden file"),
        ("moe/gpt3_moe_mcore_tp2_ep4_memory", "The artifact contains no golden file"),
    }
    platforms = {(it.path.split("/")[3], it.path.rpartition("_")[2]) for it in found.files}
    assert {("moe", "h100.json"), ("moe", "gb200.json"), ("hybrid", "h100.json")} <= platforms


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"labels": {*LABELS, "container::lts"}}, "LTS image"),
        ({"labels": {*LABELS, "Run tests"}}, "lightweight"),
        ({"image_type": "lts"}, "GitLab"),
    ],
)
def test_runs_without_usable_values(world: World, options: Any, words: str) -> None:
    world.run(RunCi())
    world.now[0] += 1000
    made = source(world, **options)
    assert words in made.unusable
    found = collect.collect(made, frozenset())
    assert (found.files, len(found.problems)) == ((), 1)


def test_runs_of_other_branches_are_refused(world: World) -> None:
    world.run(RunCi())
    with pytest.raises(Refused, match="CICD Megatron-LM on pull-request/11"):
        source(world, branch="pull-request/11")
