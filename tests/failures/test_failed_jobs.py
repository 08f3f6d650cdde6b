"""Failed jobs of the practice CI, found by whatever names them, with their causes and evidence."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from bumping import World, after_ci, world

from runbook_lib.errors import Refused, RunbookError
from runbook_lib.failures import failed_jobs
from runbook_lib.golden import ci_runs
from runbook_lib.pins.repositories import MEGATRON_BRIDGE
from runbook_lib.world.github.models import WorkflowRun

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
    """A bump whose first CI run has ended.  Nothing here changes it."""
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
