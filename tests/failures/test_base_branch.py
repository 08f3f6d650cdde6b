"""Failures compared with the base branch: no verdict without proof, then new, failing there as well, and since when."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import cast

import pytest

from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.github.models import WorkflowJob, WorkflowRun
from runbook_lib.failures.base_branch import BaseResult, Comparison
from runbook_lib.failures.failure import Failure
from runbook_lib.failures.patterns import FailureKind

DAY = datetime(2026, 1, 20, tzinfo=UTC)
RUN = WorkflowRun(
    900, "https://x/900", "CI", "a" * 40, "pull-request/7", "completed", "failure", 1, DAY
)  # fmt: skip
QUEUE = "gh-readonly-queue/main/pr-6-" + "b" * 40
GB200, H100 = ("nvidia-ci-aws-use2-gpu-x4",), ("nvidia-ci-aws-gpu-x8",)


def job(conclusion: str = "failure", runners: tuple[str, ...] = (), name: str = "gpt/a - latest") -> WorkflowJob:
    return WorkflowJob(1, "https://x/job", name, "completed", conclusion, DAY, DAY, runners=runners)


@dataclass
class Base:
    """A base branch: the jobs of the runs in its queue, the newest first, and the cause that the logs of each tell."""

    listed: Sequence[Sequence[WorkflowJob]] = ()
    cause: FailureKind = "out of memory"
    run: dict[str, object] = field(default_factory=dict)

    def runs(self, branch: str = "", event: str = "") -> tuple[WorkflowRun, ...]:
        if not event:
            assert branch == "main"
            return ()
        runs = []
        for number in range(len(self.listed)):
            at = DAY.replace(day=19 - number)
            runs.append(replace(RUN, id=100 - number, head_branch=QUEUE, head_sha=f"{number}" * 40, created=at))
        if runs and self.run:
            runs[0] = replace(runs[0], **self.run)  # type: ignore[arg-type]
        return (*reversed(runs), RUN)

    def jobs(self, run: int) -> tuple[WorkflowJob, ...]:
        return tuple(self.listed[100 - run])

    def compare(self, failed: WorkflowJob, kind: FailureKind = "out of memory") -> BaseResult:
        def diagnose(_: int, __: object, jobs: Sequence[WorkflowJob]) -> list[Failure]:
            return [Failure(each.name, each.url, self.cause, "") for each in jobs]

        comparison = Comparison(cast(GitHub, self), RUN, "main", "this image", diagnose)
        (result,) = comparison.results([failed], [Failure(failed.name, "", kind, "")])
        return result


PASSED, FAILED = job("success"), job("failure")


@pytest.mark.parametrize(
    ("base", "reason"),
    [
        (Base(), "no run of CI has finished on main"),
        (Base([[PASSED]], run={"status": "in_progress", "conclusion": ""}), "no run of CI has finished"),
        (Base([[PASSED]], run={"conclusion": "cancelled"}), "no run of CI has finished"),
        (Base([[PASSED]], run={"name": "Lint"}), "no run of CI has finished"),
        (Base([[PASSED]], run={"fork": True}), "no run of CI has finished"),
        (Base([[PASSED]], run={"head_branch": "gh-readonly-queue/dev/pr-6-b"}), "no run of CI has finished"),
        (Base([[]]), "did not run there"),
        (Base([[], [PASSED]]), "did not run there"),  # the newest run counts
        (Base([[job("skipped")]]), "did not run there"),
        (Base([[job("action_required")]]), "ended there with action_required"),
        (Base([[job("success", name="gpt/b - latest")]]), "did not run there"),
        (Base([[FAILED]], "flaky infrastructure"), "different cause (flaky infrastructure there"),
        (Base([[FAILED]], "hang"), "different cause (hang there"),
        (Base([[job("cancelled")]], "unknown"), "different cause"),
    ],
)
def test_an_unproven_result_is_unknown(base: Base, reason: str) -> None:
    result = base.compare(FAILED)
    assert (result.state, result.sentence.startswith("unknown: "), reason in result.sentence) == ("unknown", True, True)
    assert "would decide" in result.sentence


def test_a_failure_of_the_infrastructure_is_not_blamed_on_the_image() -> None:
    assert Base([[PASSED]]).compare(FAILED, "flaky infrastructure").state == "unknown"


def test_a_test_that_passes_on_the_base_branch_is_new() -> None:
    result = Base([[PASSED], [FAILED]]).compare(FAILED)
    assert result.state == "new"
    assert result.sentence.startswith(
        "new with this image: the job passes on main (2026-01-19, CI run 100 of 0000000000"
    )


@pytest.mark.parametrize(
    ("listed", "since"),
    [
        ([[FAILED], [PASSED]], "since 2026-01-19, CI run 100"),
        ([[FAILED], [FAILED], [PASSED], [FAILED]], "since 2026-01-18, CI run 99"),
        ([[FAILED], [], [FAILED], [PASSED]], "since 2026-01-17, CI run 98"),
        ([[FAILED], [FAILED]], "since at least 2026-01-18, CI run 99"),
        ([[FAILED]] * 18, "since at least 2026-01-05"),
    ],
)
@pytest.mark.parametrize("cause", ["out of memory", "unknown"])
def test_a_test_that_fails_there_too_is_dated(listed: list[list[WorkflowJob]], since: str, cause: FailureKind) -> None:
    result = Base(listed, cause).compare(FAILED)
    assert (result.state, result.url) == ("failing", "https://x/job")
    assert result.sentence.startswith(f"already failing on main {since}")


@pytest.mark.parametrize(
    ("here", "on_h100", "on_gb200", "state"),
    [
        (H100, "success", "failure", "new"),
        (GB200, "success", "failure", "failing"),
        (GB200, "failure", "success", "new"),
        ((), "success", "failure", "unknown"),
        ((), "failure", "failure", "failing"),
    ],
)
def test_jobs_of_one_name_are_compared_by_platform(
    here: tuple[str, ...], on_h100: str, on_gb200: str, state: str
) -> None:
    assert Base([[job(on_h100, H100), job(on_gb200, GB200)]]).compare(job(runners=here)).state == state
