"""Failures compared with other runs into the base branch: no verdict without proof, new, or failing there as well."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from runbook_lib.failures import failed_jobs
from runbook_lib.failures.evidence import Failure
from runbook_lib.failures.failed_jobs import BaseResult, Comparison
from runbook_lib.failures.patterns import FailureKind
from runbook_lib.world.github.client import GitHub
from runbook_lib.world.github.models import LabelEvent, WorkflowJob, WorkflowRun

DAY = datetime(2026, 1, 20, 12, tzinfo=UTC)
RUN = WorkflowRun(900, "https://x/900", "CI", "a" * 40, "pull-request/7", "completed", "failure", 1, DAY)
GB200, H100 = ("nvidia-ci-aws-use2-gpu-x4",), ("nvidia-ci-aws-gpu-x8",)


def queue(number: int, base: str = "main") -> str:
    return f"gh-readonly-queue/{base}/pr-{number}-{'b' * 40}"


def job(conclusion: str = "failure", runners: tuple[str, ...] = (), name: str = "gpt/a - latest") -> WorkflowJob:
    return WorkflowJob(1, "https://x/job", name, "completed", conclusion, DAY, DAY, runners=runners)


PASSED, FAILED = job("success"), job("failure")
LABELS = {97: ("Run tests",), 96: ("container::lts",)}
#: A branch with the jobs of its run, and what is special about that run.
Other = tuple[str, Sequence[WorkflowJob], Mapping[str, object]]


def other(branch: str, *jobs: WorkflowJob, **special: object) -> Other:
    return branch, jobs, special


@dataclass
class Others:
    """A forge with other runs, the newest first, an hour apart; the logs of all failures tell the same cause."""

    listed: Sequence[Other] = ()
    cause: FailureKind = "out of memory"

    def runs(self, branch: str = "", event: str = "", status: str = "", since: datetime = DAY) -> list[WorkflowRun]:
        found = [RUN]
        for number, (name, _, special) in enumerate(self.listed):
            run = replace(RUN, id=number, head_branch=name, created=DAY - timedelta(hours=1 + number))
            run = replace(run, **special)  # type: ignore[arg-type]
            kind = "merge_group" if name.startswith("gh-") else "push"
            if run.created >= since and (branch == name if branch else event == kind):
                found.append(run)
        return found

    def jobs(self, run: int) -> Sequence[WorkflowJob]:
        return self.listed[run][1]

    def pull(self, number: int) -> SimpleNamespace:
        return SimpleNamespace(base_ref="dev" if number == 99 else "main", labels=LABELS.get(number, ()))

    def labellings(self, number: int) -> Sequence[LabelEvent]:
        return [LabelEvent("Run tests", True, DAY - timedelta(days=9))] if number == 97 else ()

    def files(self, number: int) -> Mapping[str, str]:
        return {"docker/.ngc_version.dev" if number == 98 else "README.md": ""}

    def compare(self, failed: WorkflowJob, kind: FailureKind = "out of memory") -> BaseResult:
        def diagnose(_: object, __: int, ___: object, jobs: Sequence[WorkflowJob]) -> list[Failure]:
            return [Failure(each.name, each.url, self.cause, "") for each in jobs]

        comparison = Comparison(cast(GitHub, self), RUN, "main", "this image", ("docker/.ngc_version.dev",))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(failed_jobs, "_diagnose", diagnose)
            (result,) = comparison.results([failed], [Failure(failed.name, "", kind, "")])
        return result


@pytest.mark.parametrize(
    "others",
    [
        (),
        (other(queue(5), PASSED, status="in_progress", conclusion=""),),
        (other(queue(5), PASSED, conclusion="cancelled"),),
        (other(queue(5), PASSED, name="Lint"),),
        (other(queue(5), PASSED, fork=True),),
        (other(queue(5, "dev"), PASSED),),
        (other(queue(5), PASSED, created=DAY - timedelta(days=3, hours=1)),),  # too old
        (other("pull-request/99", PASSED),),  # into another branch
        (other("pull-request/98", PASSED),),  # of another image
        (other("pull-request/97", PASSED),),  # lightweight
        (other("pull-request/96", PASSED),),  # of the other image type
        (other("pull-request/7", PASSED),),  # the same change
        (other(queue(5)),),  # documents only: the job did not run
        (other(queue(5), job("skipped")),),
        (other(queue(5), job("success", name="gpt/b - latest")),),
    ],
)
def test_without_evidence_the_result_is_unknown(others: Sequence[Other]) -> None:
    result = Others(others).compare(FAILED)
    assert result.state == "unknown"
    assert result.sentence == (
        "unknown: no run into main of the 3 days before this one has tested the job; a run of it on main would decide"
    )


@pytest.mark.parametrize(
    ("others", "cause", "says"),
    [
        ((other(queue(5), FAILED),), "out of memory", "in CI run 0 of aaaaaaaaaa (the merge queue, #5; 2026-01"),
        ((other("pull-request/5", FAILED),), "out of memory", "in CI run 0 of aaaaaaaaaa (#5; 2026-01-20, 1 hour"),
        ((other(queue(5), FAILED), other("pull-request/5", FAILED)), "out of memory", "fails in CI run 0"),
        ((other(queue(5), FAILED), other(queue(6), PASSED)), "out of memory", "and passes in CI run 1"),
        ((other("main", FAILED),), "flaky infrastructure", "different cause (flaky infrastructure there"),
        ((other("main", job("cancelled")),), "unknown", "different cause"),
    ],
)  # fmt: skip
def test_one_red_change_or_another_cause_decides_nothing(
    others: Sequence[Other], cause: FailureKind, says: str
) -> None:
    result = Others(others, cause).compare(FAILED)
    assert (result.state, result.sentence.startswith("unknown: "), says in result.sentence) == ("unknown", True, True)
    assert "would decide" in result.sentence


@pytest.mark.parametrize("branch", ["main", queue(5), "pull-request/5"])
def test_a_job_that_passes_elsewhere_is_new(branch: str) -> None:
    result = Others([other(branch, PASSED), other("main", FAILED)]).compare(FAILED)
    assert result.state == "new"
    assert result.sentence.startswith("new with this image: the job passes in CI run 0 of aaaaaaaaaa (")
    assert "1 hour earlier" in result.sentence
    # A failure of the infrastructure is not blamed on the image.
    assert Others([other(branch, PASSED)]).compare(FAILED, "flaky infrastructure").state == "unknown"


@pytest.mark.parametrize(
    "others",
    [
        (other("main", FAILED),),
        (other(queue(5), FAILED), other("main", FAILED)),
        (other(queue(5), FAILED), other(queue(6), FAILED)),
        (other(queue(5), FAILED), other(queue(5)), other("pull-request/6", FAILED), other("main", PASSED)),
    ],
)
@pytest.mark.parametrize("cause", ["out of memory", "unknown"])
def test_two_red_changes_or_a_red_base_mean_that_it_fails_there(others: Sequence[Other], cause: FailureKind) -> None:
    result = Others(others, cause).compare(FAILED)
    assert (result.state, result.url) == ("failing", "https://x/job")
    assert result.sentence.startswith("already failing on main: the job fails in CI run 0 of aaaaaaaaaa (")


@pytest.mark.parametrize(
    ("here", "on_h100", "on_gb200", "state"),
    [
        (H100, "success", "failure", "new"),
        (GB200, "success", "failure", "failing"),
        ((), "success", "failure", "unknown"),
        ((), "failure", "failure", "failing"),
    ],
)
def test_jobs_of_one_name_are_compared_by_platform(
    here: tuple[str, ...], on_h100: str, on_gb200: str, state: str
) -> None:
    others = Others([other("main", job(on_h100, H100), job(on_gb200, GB200))])
    assert others.compare(job(runners=here)).state == state
