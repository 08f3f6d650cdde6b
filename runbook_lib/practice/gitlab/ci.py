"""The practice CI on GitLab: which tests a pipeline runs, and where each stands at a given moment.

Pure, as ``ci``.  The rules are those of Megatron-LM's `.gitlab/stages/04.functional-tests.yml` and
`tests/test_utils/python_scripts/generate_jet_trigger_job.py`: one bridge for each environment and platform starts a
pipeline of its own, whose jobs are the tests, in stages named by model.
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from runbook_lib.errors import CannotTell
from runbook_lib.practice.ci import plan as ci
from runbook_lib.practice.ci import suites
from runbook_lib.text import yaml_spans

BUILD = ".gitlab/stages/01.build.yml"
#: The scopes of the recipes that a pipeline runs, as tiers: ``mr`` passes through, ``nightly`` is L2.
SCOPES = frozenset({"mr", "L2"})
ENVIRONMENTS = ("lts", "dev")
PLATFORMS = ("dgx_a100", "dgx_h100", "dgx_gb200")
#: The job that stands for a bridge without tests.
PLACEHOLDER = ("empty-pipeline-placeholder-job", "empty-pipeline-placeholder")
#: When the bridges start their pipelines, as a part of the whole.
_BRIDGED = 0.42
#: The jobs that build images, with when each starts and ends, as parts of the whole; the second needs the first.
_BUILDS = (("test:pre_build_image", 0.04, 0.28), ("test:build_image", 0.30, 0.36))
_STATUSES: Mapping[str, str] = {
    "success": "success", "failure": "failed", "cancelled": "failed", "skipped": "skipped",
}  # fmt: skip

Internal = Literal["run", "skipped"]


@dataclass(frozen=True)
class Bridge:
    """``functional:run_<environment>_<platform>``, with the jobs of the pipeline that it starts."""

    environment: str
    platform: str
    jobs: tuple[ci.Planned, ...]

    @property
    def name(self) -> str:
        return f"functional:run_{self.environment}_{self.platform}"

    @property
    def allow_failure(self) -> bool:
        """As upstream: nobody waits for the tests of lts."""
        return self.environment == "lts"


@dataclass(frozen=True)
class Seen:
    """What GitLab shows of a job, a bridge or a pipeline; times are seconds since the epoch."""

    status: str
    started: float | None = None
    completed: float | None = None
    reason: str = ""


def images(build: str) -> dict[str, str]:
    """Environment → base image, by the build matrix of a commit (its text); empty where that cannot be read."""
    named = {"dev": "CI_MCORE_DEV_IMAGE", "lts": "CI_MCORE_LTS_IMAGE"}
    try:
        rows = {row["IMAGE"]: str(row["BASE_IMAGE"]) for row in _matrix(build, _BUILDS[0][0])}
    except (KeyError, TypeError):
        return {}
    return {environment: rows[image] for environment, image in named.items() if image in rows}


def builds(build: str, seconds: float, broken: Iterable[str] = (), how: str = "") -> tuple[ci.Planned, ...]:
    """The jobs that build images, a row of a matrix each, named as GitLab names them.

    Those fail, and say ``how``, whose name holds one of ``broken``; then the jobs that need them are skipped.
    """
    found: list[ci.Planned] = []
    for job, start, end in _BUILDS:
        failed = any(it.conclusion == "failure" for it in found)
        for number, row in enumerate(_matrix(build, job)):
            name = f"{job}: [{', '.join(map(str, row.values()))}]"
            bad = any(part in name for part in broken)
            conclusion: ci.Conclusion = "skipped" if failed else "failure" if bad else "success"
            ends = end - 0.02 * (number % 4)  # one after another
            found.append(ci.Planned(
                name, "build", 0.0, start * seconds, ends * seconds, conclusion, "broken" if bad else "",
                model="build", detail=how if bad else "",
            ))  # fmt: skip
    return tuple(found)


def _matrix(build: str, job: str) -> list[Mapping[str, object]]:
    try:
        return list(yaml_spans.load(build)[job]["parallel"]["matrix"])
    except (CannotTell, KeyError, TypeError):
        return []


def plan(at: Mapping[str, ci.Situation]) -> tuple[Bridge, ...]:
    """The bridges of a pipeline; ``at`` gives for each environment what its tests depend on."""
    rows = suites.rows(at["dev"].recipes)
    return tuple(
        Bridge(environment, platform, tuple(_jobs(at[environment], rows, environment, platform)))
        for environment, platform in itertools.product(ENVIRONMENTS, PLATFORMS)
    )


def _jobs(at: ci.Situation, rows: Iterable[suites.Row], environment: str, platform: str) -> Iterable[ci.Planned]:
    chosen = {
        (row.model, row.test_case): row
        for row in rows
        if row.tier in SCOPES and (row.environment, row.platform) == (environment, platform)
    }
    for key in sorted(chosen):
        job = ci.functional_job(at, chosen[key])
        if job.cause == "nccl":  # GitLab runs such a job again by itself
            job = replace(job, conclusion="success", cause="")
        yield replace(job, name=job.test_case, appears=_BRIDGED * at.seconds)
    if not chosen:
        name, stage = PLACEHOLDER
        begin, start, end = (part * at.seconds for part in (_BRIDGED, 0.5, 0.51))
        yield ci.Planned(name, "placeholder", begin, start, end, "success", platform=platform, model=stage)


def job_at(job: ci.Planned, created: float, now: float, stopped: float | None) -> Seen:
    """A job that builds an image, or one of a pipeline that a bridge started."""
    if job.conclusion == "skipped":
        return Seen("skipped")
    stop = now if stopped is None else min(now, stopped)
    begin, end = created + job.starts, created + job.ends
    if stop >= end:
        # What GitHub calls cancelled by the time limit, GitLab calls failed, and tells why.
        reason = "job_execution_timeout" if job.cause == "hang" else "script_failure"
        status = _STATUSES[job.conclusion]
        return Seen(status, begin, end, reason if status == "failed" else "")
    if stopped is not None and now >= stopped:
        return Seen("canceled", begin if begin < stopped else None, stopped)
    return Seen("running", begin) if stop >= begin else Seen("pending")


def bridge_at(bridge: Bridge, created: float, now: float, stopped: float | None, internal: Internal) -> Seen:
    """A bridge: it stands as the pipeline does that it started."""
    if internal == "skipped":
        return Seen("skipped")
    if not has_started(bridge, created, now, stopped):
        return Seen("created") if stopped is None or now < stopped else Seen("canceled", None, stopped)
    begin = created + min(job.appears for job in bridge.jobs)
    seen = [(job.allow_failure, job_at(job, created, now, stopped)) for job in bridge.jobs]
    return _together(seen, begin, "downstream_pipeline_failed")


def has_started(bridge: Bridge, created: float, now: float, stopped: float | None) -> bool:
    """Whether a bridge has started its pipeline."""
    stop = now if stopped is None else min(now, stopped)
    return stop >= created + min(job.appears for job in bridge.jobs)


def pipeline_at(
    jobs: Iterable[ci.Planned], bridges: Iterable[Bridge], created: float, now: float, stopped: float | None,
    internal: Internal,
) -> Seen:  # fmt: skip
    """The pipeline that has these jobs and bridges; where a job fails, no bridge starts."""
    if internal == "skipped":
        return Seen("skipped")
    jobs = list(jobs)
    each = [(False, job_at(job, created, now, stopped)) for job in jobs]
    if all(job.conclusion == "success" for job in jobs):
        each += [(bridge.allow_failure, bridge_at(bridge, created, now, stopped, internal)) for bridge in bridges]
    return _together(each, created)


def _together(each: list[tuple[bool, Seen]], begin: float, reason: str = "") -> Seen:
    """What several jobs are together, each with whether it may fail."""
    statuses = {seen.status for _, seen in each}
    if statuses & {"created", "pending", "running"}:
        return Seen("running", begin)
    end = max((seen.completed for _, seen in each if seen.completed is not None), default=begin)
    if "canceled" in statuses:
        return Seen("canceled", begin, end)
    failed = any(seen.status == "failed" and not allowed for allowed, seen in each)
    return Seen("failed", begin, end, reason) if failed else Seen("success", begin, end)
