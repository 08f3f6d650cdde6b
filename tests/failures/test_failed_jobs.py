"""Failed jobs of the practice CI, found by whatever names them, with their causes; and the step that shows them."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from bumping import BRANCH, World, after_ci, bump_to, git, world

from runbook_lib.display import View
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.failures import failed_jobs
from runbook_lib.failures.investigate import InvestigateCi, Investigation
from runbook_lib.golden import ci_runs
from runbook_lib.pins.repositories import MEGATRON_BRIDGE
from runbook_lib.world.github.models import WorkflowRun
from runbook_lib.world.ports import World as Outside

KINDS = {
    "gpt/gpt3_mcore_te_tp1_pp1": "golden drift",
    "moe/gpt3_moe_mcore_te_ep8": "golden drift",
    "gpt/gpt3_mcore_te_tp4_pp1_long": "hang",
    "hybrid/hybrid_mr_tp2_cp2": "regression",
    "mimo/mimo_vlm_tp1": "flaky infrastructure",
    "moe/gpt3_moe_mcore_tp2_ep4_memory": "out of memory",
}


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A bump whose first CI run has ended.  Only the current branch changes here."""
    with world(tmp_path_factory.mktemp("world"), after_ci) as made:
        yield made


def test_every_class_is_recognized(at: World) -> None:
    github = at.github()
    seen = failed_jobs.diagnose_run(github, ci_runs.find_run(github, "#10"), "main", "this run", ())
    assert {it.test: it.failure.kind for it in seen} == KINDS
    assert all(0 < len(it.failure.evidence) <= 30 and it.failure.url for it in seen)
    (broken,) = [it for it in seen if it.on_base.state == "failing"]
    assert (broken.test, broken.platform) == ("moe/gpt3_moe_mcore_tp2_ep4_memory", "dgx_h100")
    assert broken.on_base.sentence.startswith("already failing on main:")
    flaky = next(it for it in seen if it.failure.kind == "flaky infrastructure")
    assert flaky.on_base.state == "unknown"
    assert {it.on_base.state for it in seen if it not in (broken, flaky)} == {"new"}
    assert "OutOfMemoryError" in failed_jobs.show(seen).text


def test_each_way_to_name_a_run_leads_to_it(at: World) -> None:
    github = at.github()
    (run,) = github.runs("pull-request/10")
    job = ci_runs.failed(github.jobs(run.id))[0]
    pull = github.pull(10)
    for place in ("#10", "10", pull.url, f"{pull.url}/files", run.url, f"{run.url}/attempts/1", str(run.id)):
        assert ci_runs.find_run(github, place) == ci_runs.RequestedRun(run), place
    assert ci_runs.find_run(github, "pull-request/10").run == run
    for url in (job.url, f"{job.url}#step:3:1"):
        asked = ci_runs.find_run(github, url)
        assert (asked.run, asked.job) == (run, job.id)
    (only,) = failed_jobs.diagnose_run(github, asked, "main", "this run", ())
    assert only.failure.job == job.name


@pytest.mark.parametrize(
    ("place", "error", "says"),
    [
        ("https://github.com/other/repo/actions/runs/5000000010", Refused, "belongs to other/repo"),
        ("https://github.com/other/repo/pull/10", Refused, "belongs to other/repo"),
        ("#9999", RunbookError, "has no run of CICD"),
        ("no-such-branch", RunbookError, "has no run of CICD"),
        ("99999999", RunbookError, "does not find it"),
    ],
)
def test_a_text_that_names_no_run_is_refused(at: World, place: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        ci_runs.find_run(at.github(), place)


@pytest.mark.parametrize(("workflow", "found"), [(MEGATRON_BRIDGE.ci.workflow, 5), ("", 6)])
def test_the_newest_run_of_the_repositorys_workflow_is_found(at: World, workflow: str, found: int) -> None:
    (run,) = at.github().runs("pull-request/10")
    others = [
        replace(run, id=number, name=name, created=run.created + timedelta(number))
        for number, name in ((5, "CICD NeMo"), (6, "Lint"), (4, "CICD NeMo"))
    ]

    def runs(branch: str = "", head_sha: str = "") -> list[WorkflowRun]:
        return others if bool(branch) == bool(workflow) and bool(head_sha) != bool(workflow) else []

    forge: Any = SimpleNamespace(repository="o/r", runs=runs, pull=at.github().pull)
    assert ci_runs.find_run(forge, "#10", workflow).run.id == found


# -- the investigation of a run ----------------------------------------------------------------------------------

BUMP = bump_to("", mode="preview")


def look(at: World, place: str = "", *, has_token: bool = True) -> Investigation:
    github = at.github() if has_token else None
    return InvestigateCi(place).look(Outside(at.checkout, github, at.steps[-1]), BUMP)


def test_a_branch_represents_its_pull_request(at: World) -> None:
    by_branch = look(at, BRANCH)
    assert by_branch.place == look(at, "#10").place
    assert by_branch.pull.number == 10


def test_without_a_place_it_is_the_current_branch(at: World) -> None:
    git(at.checkout.path, "switch", "-q", BRANCH)
    assert look(at).pull is not None
    git(at.checkout.path, "switch", "-q", "-c", "local-work")
    alone = look(at, " ")
    assert alone.place is None
    assert "local-work" in alone.problem
    assert "without a token" in look(at, has_token=False).problem
    at.run(InvestigateCi(), tag="")
    assert (at.said("checks"), "local-work" in at.outcome()) == ([], True)
    git(at.checkout.path, "switch", "-q", "--detach")
    assert look(at).place is None
    with pytest.raises(RunbookError, match="no-such-branch"):
        look(at, "no-such-branch")


def test_the_pull_request_and_the_labels_of_its_run_are_shown_and_recorded(at: World) -> None:
    before = at.state()
    at.run(InvestigateCi("#10"), tag="")
    assert at.state() == before
    assert at.checks() == {"every failed job has a cause": "passed"}
    assert "golden drift, hang" in at.outcome()
    files = at.kept("files.csv")
    assert all(name in files for name in ("docker/.ngc_version.dev", ".gitlab/stages/01.build.yml"))
    assert "OutOfMemoryError" in at.kept("failures.csv")
    found = look(at, "#10")
    given = at.said("inputs")
    assert (given["labels"], given["pull_request"]) == (["Run functional tests"], 10)
    (shown,) = InvestigateCi("#10").plan(found, BUMP).shown
    assert isinstance(shown, View)
    pull = at.github().pull(10)
    parts = (pull.title, pull.author, pull.base_ref, "Run functional tests", "pytorch:26.04-py3")
    assert [part for part in parts if part not in shown.text] == []
