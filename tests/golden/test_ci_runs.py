"""Golden values of a practice bump's CI run, from the forge's own artifacts; runs that must not be used."""

from typing import Any

import pytest
from bumping import World, git

from runbook_lib.bump.run_ci import RunCi
from runbook_lib.errors import Refused
from runbook_lib.golden import ci_runs, collect
from runbook_lib.golden.collect import GoldenSource

BRANCH = "bump/main/dev-26.04-py3"
CASES = "tests/functional_tests/test_cases"
LABELS = frozenset({"Run functional tests"})


def source(opened: World, **options: Any) -> GoldenSource:
    github = opened.github()
    run = github.runs(branch="pull-request/10")[0]
    options = {"image_type": "dev", "branch": "pull-request/10", "labels": LABELS} | options
    return ci_runs.of_github(github, run, **options)


def known(opened: World) -> set[str]:
    return {path for path in git(opened.remote, "ls-tree", "-r", "--name-only", BRANCH).splitlines() if CASES in path}


def test_a_run_of_the_practice_world(opened: World) -> None:
    opened.run(RunCi())
    assert "in progress" in source(opened).unusable
    opened.now[0] += 1000
    found = collect.collect(source(opened), known(opened))
    assert found.files
    assert {it.path for it in found.files} <= known(opened)
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
def test_runs_without_usable_values(opened: World, options: Any, words: str) -> None:
    opened.run(RunCi())
    opened.now[0] += 1000
    made = source(opened, **options)
    assert words in made.unusable
    found = collect.collect(made, frozenset())
    assert (found.files, len(found.problems)) == ((), 1)


def test_runs_of_other_branches_are_refused(opened: World) -> None:
    opened.run(RunCi())
    with pytest.raises(Refused, match="CICD Megatron-LM on pull-request/11"):
        source(opened, branch="pull-request/11")
