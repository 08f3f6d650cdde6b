"""The practice CI on GitLab: the tests that a pipeline runs, and the status of each at a given moment.

This module is pure.  The rules are those of Megatron-LM's `.gitlab/stages/04.functional-tests.yml` and
`tests/test_utils/python_scripts/generate_jet_trigger_job.py`: one bridge per environment and platform starts a
pipeline whose jobs are the tests, in stages named after the models.
"""

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from runbook_lib.errors import CannotTell
from runbook_lib.practice.ci import plan as ci
from runbook_lib.practice.ci import suites
from runbook_lib.text import yaml_spans

BUILD = ".gitlab/stages/01.build.yml"
#: The scopes of the recipes that a pipeline runs, as tiers: ``mr`` passes through, ``nightly`` is L2.
SCOPES = frozenset({"mr", "L2"})
ENVIRONMENTS = ("lts", "dev")
PLATFORMS = ("dgx_a100", "dgx_h100", "dgx_gb200")
#: Name and stage of the only job of a bridge without tests.
PLACEHOLDER = ("empty-pipeline-placeholder-job", "empty-pipeline-placeholder")
#: Start of the bridges' pipelines, as a fraction of the duration of CI.
_BRIDGED = 0.42
#: The jobs that build images, with start and end as fractions of the duration; the second needs the first.
_BUILDS = (("test:pre_build_image", 0.04, 0.28), ("test:build_image", 0.30, 0.36))
_STATUSES: Mapping[str, str] = {
    "success": "success", "failure": "failed", "cancelled": "failed", "skipped": "skipped",
}  # fmt: skip


@dataclass(frozen=True)
class PlannedBridge:
    """The job ``functional:run_<environment>_<platform>``, with the jobs of the pipeline that it starts."""

    environment: str
    platform: str
    jobs: tuple[ci.Planned, ...]

    @property
    def name(self) -> str:
        return f"functional:run_{self.environment}_{self.platform}"

    @property
    def allow_failure(self) -> bool:
        """True for the tests of lts, whose failure does not fail the pipeline, as upstream."""
        return self.environment == "lts"


@dataclass(frozen=True)
class GitLabStatus:
    """The status that GitLab shows of a job, a bridge or a pipeline; times are seconds since 1970."""

    status: str
    started: float | None = None
    completed: float | None = None
    reason: str = ""


def images(build: str) -> dict[str, str]:
    """Return environment → base image, from the text of the build matrix; empty if that cannot be read."""
    names = {"dev": "CI_MCORE_DEV_IMAGE", "lts": "CI_MCORE_LTS_IMAGE"}
    try:
        rows = {row["IMAGE"]: str(row["BASE_IMAGE"]) for row in _matrix(build, _BUILDS[0][0])}
    except (KeyError, TypeError):
        return {}
    return {environment: rows[image] for environment, image in names.items() if image in rows}


def builds(build: str, seconds: float, broken: Iterable[str] = (), how: str = "") -> tuple[ci.Planned, ...]:
    """Return the jobs that build images, one per row of a matrix, with GitLab's names.

    Jobs whose name contains one of ``broken`` fail, and their log says ``how``; jobs that need them are skipped.
    """
    jobs: list[ci.Planned] = []
    for name, start, end in _BUILDS:
        needs_failed = any(job.conclusion == "failure" for job in jobs)
        for number, row in enumerate(_matrix(build, name)):
            end_of_row = end - 0.02 * (number % 4)  # rows end one after another
            job = ci.Planned(
                f"{name}: [{', '.join(map(str, row.values()))}]", "build", 0.0, start * seconds, end_of_row * seconds,
                "success", model="build",
            )  # fmt: skip
            if needs_failed:
                job = replace(job, conclusion="skipped")
            elif any(part in job.name for part in broken):
                job = replace(job, conclusion="failure", cause="broken", detail=how)
            jobs.append(job)
    return tuple(jobs)


def _matrix(build: str, job: str) -> list[Mapping[str, object]]:
    try:
        return list(yaml_spans.load(build)[job]["parallel"]["matrix"])
    except (CannotTell, KeyError, TypeError):
        return []


def plan(situations: Mapping[str, ci.Situation]) -> tuple[PlannedBridge, ...]:
    """Return the bridges of a pipeline; ``situations`` is environment → what its tests depend on."""
    rows = suites.rows(situations["dev"].recipes)
    bridges = []
    for environment, platform in itertools.product(ENVIRONMENTS, PLATFORMS):
        jobs = _jobs(situations[environment], rows, environment, platform)
        bridges.append(PlannedBridge(environment, platform, tuple(jobs)))
    return tuple(bridges)


def _jobs(
    situation: ci.Situation, rows: Iterable[suites.SuiteRow], environment: str, platform: str
) -> Iterable[ci.Planned]:
    selected = {}
    for row in rows:
        if row.tier in SCOPES and (row.environment, row.platform) == (environment, platform):
            selected[row.model, row.test_case] = row
    for key in sorted(selected):
        job = ci.functional_job(situation, selected[key])
        if job.cause == "nccl":  # GitLab retries such a job automatically
            job = replace(job, conclusion="success", cause="")
        yield replace(job, name=job.test_case, appears=_BRIDGED * situation.seconds)
    if not selected:
        name, stage = PLACEHOLDER
        appears, start, end = (fraction * situation.seconds for fraction in (_BRIDGED, 0.5, 0.51))
        yield ci.Planned(name, "placeholder", appears, start, end, "success", platform=platform, model=stage)


def job_at(job: ci.Planned, created: float, now: float, stopped: float | None) -> GitLabStatus:
    """Return the status of a job that builds an image, or of one in a pipeline that a bridge started."""
    if job.conclusion == "skipped":
        return GitLabStatus("skipped")
    stop = now if stopped is None else min(now, stopped)
    begin, end = created + job.starts, created + job.ends
    if stop >= end:
        # GitLab calls a job failed that exceeded the time limit, which GitHub calls cancelled, and gives the reason.
        reason = ""
        if job.conclusion in ("failure", "cancelled"):
            reason = "job_execution_timeout" if job.cause == "hang" else "script_failure"
        return GitLabStatus(_STATUSES[job.conclusion], begin, end, reason)
    if stopped is not None and now >= stopped:
        return GitLabStatus("canceled", begin if begin < stopped else None, stopped)
    if stop < begin:
        return GitLabStatus("pending")
    return GitLabStatus("running", begin)


def bridge_at(bridge: PlannedBridge, created: float, now: float, stopped: float | None) -> GitLabStatus:
    """Return the status of a bridge, which is that of the pipeline that it started."""
    if not has_started(bridge, created, now, stopped):
        if stopped is not None and now >= stopped:
            return GitLabStatus("canceled", None, stopped)
        return GitLabStatus("created")
    begin = created + min(job.appears for job in bridge.jobs)
    statuses = [(job.allow_failure, job_at(job, created, now, stopped)) for job in bridge.jobs]
    return _combine(statuses, begin, "downstream_pipeline_failed")


def has_started(bridge: PlannedBridge, created: float, now: float, stopped: float | None) -> bool:
    """Return whether a bridge has started its pipeline."""
    stop = now if stopped is None else min(now, stopped)
    return stop >= created + min(job.appears for job in bridge.jobs)


def pipeline_at(
    jobs: Collection[ci.Planned], bridges: Iterable[PlannedBridge], created: float, now: float, stopped: float | None
) -> GitLabStatus:
    """Return the status of a pipeline with these jobs and bridges; if a job fails, no bridge starts."""
    statuses = [(False, job_at(job, created, now, stopped)) for job in jobs]
    if all_passed(jobs):
        for bridge in bridges:
            statuses.append((bridge.allow_failure, bridge_at(bridge, created, now, stopped)))
    return _combine(statuses, created)


def all_passed(jobs: Iterable[ci.Planned]) -> bool:
    """Return whether all jobs succeed."""
    return all(job.conclusion == "success" for job in jobs)


def _combine(statuses: list[tuple[bool, GitLabStatus]], begin: float, reason: str = "") -> GitLabStatus:
    """Return the status of several jobs together; each comes with whether it is allowed to fail."""
    names = {status.status for _, status in statuses}
    if names & {"created", "pending", "running"}:
        return GitLabStatus("running", begin)
    end = max((status.completed or begin for _, status in statuses), default=begin)
    if "canceled" in names:
        return GitLabStatus("canceled", begin, end)
    if any(status.status == "failed" and not allow_failure for allow_failure, status in statuses):
        return GitLabStatus("failed", begin, end, reason)
    return GitLabStatus("success", begin, end)
