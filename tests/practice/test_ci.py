"""The practice CI as pure functions: which jobs, how they end, and what they measure."""

import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from runbook_lib.practice import ci, seed
from runbook_lib.practice.git import BareRepository, read_texts
from runbook_lib.practice.store import scripted
from runbook_lib.text.recipes import rows
from runbook_lib.world.git.blobs import read_files

OLD = seed.main()
NEW = OLD | {"docker/.ngc_version.dev": "nvcr.io/nvidia/pytorch:26.04-py3\n"}
BUMP = ci.Inputs(NEW, OLD, ("Run functional tests",))
WORKFLOW_FILE = ".github/workflows/cicd-main.yml"
#: A branch of the decision in its step "Configure": the condition, and what it selects.
DECISION = re.compile(
    r"^ *(?:if|elif|else)\b(.*)\n(?: *(?:#.*)?\n)* *SCOPE=([\w-]+); N_REPEAT=[0-9]+; LIGHTWEIGHT=(true|false)", re.M
)


def decided(workflow: str, labels: Collection[str]) -> tuple[str, bool]:
    """The scope that the workflow selects for a pull request with these labels, and whether it compares values."""
    names = dict(re.findall(r"""^ *(HAS_\w+)=.*any\(\. == "([^"]+)"\)""", workflow, re.M))
    for condition, scope, lightweight in DECISION.findall(workflow):
        is_met = not {names.get(each) for each in re.findall(r'"\$(HAS_\w+)" == "true"', condition)}.isdisjoint(labels)
        if is_met or not condition.strip(" ;"):  # the last branch has no condition
            return scope, lightweight == "false"
    raise AssertionError("the workflow decides in another way")


# -- which tests ----------------------------------------------------------------------------------------------------


def test_the_real_recipes(megatron_lm: Path) -> None:
    """The numbers that were counted in the repository at that commit."""
    commit = "d98e8a64ddf34856e74b24714e3bedb2f5a39553"
    git = megatron_lm / ".git"
    repository = BareRepository(git if git.is_dir() else megatron_lm)
    found, problems = rows.read_all(read_texts(repository, commit, rows.FOLDER))
    assert not problems
    counts = {}
    for scope in ("mr-github-slim", "mr-github"):
        counts[scope] = [len(ci.select(found, scope, platform)) for platform in ("dgx_h100", "dgx_gb200")]
    assert (sum(counts["mr-github-slim"]), counts["mr-github"]) == (12, [77, 31])


def test_the_workflow_has_the_real_ones_name_and_decides_like_it(megatron_lm: Path) -> None:
    text = read_files(megatron_lm, [("d98e8a64ddf3", WORKFLOW_FILE)])["d98e8a64ddf3", WORKFLOW_FILE]
    assert text is not None
    assert f"name: {ci.WORKFLOW}\n" in text
    scopes = {"L0": "mr-github-slim", "L1": "mr-github"}
    for labels in ((), ("Run functional tests",), ("Run tests", "bug"), ("container::lts",)):
        (scope, compares), tier = decided(text, labels), replace(BUMP, labels=labels).tier
        assert (scopes[scope], compares) == (tier["scope"], tier.get("compares", True)), labels


# -- what becomes of them -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broken", "skipped"),
    [
        ("configure", "cicd-wait-in-queue"),
        ("cicd-wait-in-queue", "cicd-container-build / Build CI container"),
        ("linting", "cicd-wait-in-queue"),
        ("cicd-container-build / Build CI container", "${{ matrix.bucket }} - latest"),
        ("tests/unit_tests/models/", "${{ matrix.model }}/${{ matrix.test_case }} - latest"),
    ],
)
def test_parts_that_need_a_failed_job_are_skipped(broken: str, skipped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(scripted("scenario")["always"], broken, "broken")
    planned = ci.jobs(BUMP)
    failed = [job.test for job in planned if job.conclusion == "failure" and job.platform != "dgx_gb200"]
    assert failed == [broken, "Nemo_CICD_Test"]
    assert skipped in {job.name for job in planned if job.conclusion == "skipped"}
    assert not [job.name for job in planned if job.kind == "functional" and job.platform]
    assert len({(job.name, job.platform) for job in planned}) == len(planned)
    assert ci.retry(planned, 2.0)[-1].conclusion == "failure"


def test_refreshed_values_pass_and_what_was_flaky_passes_in_the_next_attempt() -> None:
    measured = {path: text for job in ci.jobs(BUMP) for path, text in BUMP.measured(job).items()}
    refreshed = ci.jobs(replace(BUMP, files=NEW | measured))
    causes = {job.cause for job in refreshed if job.platform == "dgx_h100" and job.cause}
    assert causes == {"hang", "memory", "nccl"}
    again = {job.test: job.cause for job in ci.retry(ci.jobs(BUMP), 2.0)}
    assert (again["mimo/mimo_vlm_tp1"], again["gpt/gpt3_mcore_te_tp1_pp1"]) == ("", "drift")
