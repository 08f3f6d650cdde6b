"""The practice CI: the jobs of a run, and the status of each at a given moment.

This module is pure: everything follows from when the run was authorized, the labels and files of that moment, and the
clock.  The rules are those of Megatron-LM's `.github/workflows/cicd-main.yml` and of its test template in
`.github/actions`.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from runbook_lib.practice.ci import measure
from runbook_lib.recipes import file_names, rows
from runbook_lib.recipes.ci_selection import CiSelection, select_tests
from runbook_lib.recipes.rows import RecipeRow

WORKFLOW = "CICD Megatron-LM"
WORKFLOW_PATH = ".github/workflows/cicd-main.yml"
TEST_CASES = file_names.FOLDER

#: Tier of a run → the scope of its rows in the recipes; a tier does not include lower ones.
_SCOPES = {"L0": ("mr-github-slim",), "L1": ("mr-github",)}

Cause = Literal["", "drift", "hang", "memory", "nccl", "regression", "slower", "refused", "broken", "needs"]
Conclusion = Literal["success", "failure", "cancelled", "skipped"]

#: The effect of a new base image on a test.  Every other test passes without a change that CI checks.
FATES: Mapping[str, Cause] = {
    "gpt/gpt3_mcore_te_tp1_pp1": "drift",
    "gpt/gpt3_mcore_te_tp4_pp1_long": "hang",
    "moe/gpt3_moe_mcore_te_ep8": "drift",
    "moe/gpt3_moe_mcore_tp2_ep4_memory": "memory",
    "hybrid/hybrid_mr_tp2_cp2": "regression",
    "mimo/mimo_vlm_tp1": "nccl",
}
#: The image in which a loss diverges; in the others the same test only became slower.
DIVERGING = "26.04-py3"
#: Tests that fail for reasons other than the image, so they also fail on the base branch.
FAIL_ON_MAIN_TOO = frozenset({"moe/gpt3_moe_mcore_tp2_ep4_memory"})


@dataclass(frozen=True)
class Situation:
    """Everything that a run depends on, at the time when it was authorized.

    ``recipes`` and ``golden`` are path → text at the merge commit, ``base_golden`` at its base; ``image`` and
    ``base_image`` are the pins of both.  ``broken`` are parts of the names of jobs that fail; ``how`` is in their log.
    """

    labels: frozenset[str]
    maintainer: bool
    seconds: float
    image: str
    base_image: str
    recipes: Mapping[str, str]
    golden: Mapping[str, str]
    base_golden: Mapping[str, str]
    conflict: bool = False
    refused: bool = False
    broken: frozenset[str] = frozenset()
    how: str = ""
    event: str = "push"

    @property
    def selection(self) -> CiSelection:
        return select_tests(self.labels, self.event)

    @property
    def rows(self) -> list[RecipeRow]:
        """The rows of the recipes; an unparsable file has none."""
        return rows.read_all(self.recipes)[0]


@dataclass(frozen=True)
class Planned:
    """A job of one attempt.  Times are seconds since the attempt started; ``appears`` is when the job is listed."""

    name: str
    kind: str
    appears: float
    starts: float
    ends: float
    conclusion: Conclusion
    cause: Cause = ""
    platform: str = ""
    model: str = ""
    test_case: str = ""
    compares: bool = False  # True if it compares golden values when it finishes
    detail: str = ""  # text in the log in addition to the cause

    @property
    def measures(self) -> bool:
        """True if the job leaves golden values behind; a job that hangs has those of the previous repeat."""
        return self.compares and self.cause in ("", "drift", "regression", "slower", "hang")


#: Kind → name, and when the job is listed, starts and ends, as fractions of the duration of the run.
_FRAME: Mapping[str, tuple[str, float, float, float]] = {
    "membership": ("is-not-external-contributor", 0.0, 0.0, 0.02),
    "preflight": ("pre-flight / Pre-flight", 0.0, 0.02, 0.04),
    "configure": ("configure", 0.0, 0.04, 0.06),
    "lint": ("linting", 0.0, 0.04, 0.12),
    "queue": ("cicd-wait-in-queue", 0.04, 0.12, 0.25),
    "build": ("cicd-container-build / Build CI container", 0.25, 0.25, 0.42),
    "parse": ("cicd-parse-unit-tests", 0.42, 0.42, 0.44),
    "unit": ("{} - latest", 0.44, 0.44, 0.56),
    "gate": ("cicd-integration-gate", 0.56, 0.56, 0.58),
    "functional": ("{}/{} - latest", 0.60, 0.60, 0.90),
    "result": ("Nemo_CICD_Test", 0.96, 0.96, 1.0),
}
#: Time limit of a job that hangs, after the end of all others.  GitHub calls such a job *cancelled*.
_TIME_LIMIT = 0.96
#: The names that GitHub lists for a matrix that was skipped before its entries were known.
_UNNAMED = {
    "functional": "${{ matrix.model }}/${{ matrix.test_case }} - latest",
    "unit": "${{ matrix.bucket }} - latest",
}
#: The kinds of jobs that others need, and kind → how many of these, from the first on, it needs (on H100).
_CHAIN = ("configure", "lint", "queue", "build", "unit")
_NEEDS = {"queue": 2, "build": 3, "parse": 4, "unit": 4, "gate": 4, "functional": 5}


def plan(at: Situation) -> tuple[Planned, ...]:
    """Return the jobs of the first attempt of a run."""
    kinds = ("membership", "preflight", "configure", "lint", "queue", "build", "parse")
    jobs = {kind: _framed(at, kind) for kind in kinds}
    if at.conflict:  # there is no merge commit to check out
        jobs["configure"] = replace(jobs["configure"], conclusion="failure", cause="broken")
    if at.refused:
        jobs["queue"] = replace(jobs["queue"], conclusion="failure", cause="refused")
    platforms = ["dgx_h100"]
    if at.maintainer:
        platforms.append("dgx_gb200")
    recipe_rows = at.rows
    units: list[Planned] = []
    functional: list[Planned] = []
    for platform in platforms:
        units += _unit_jobs(at, recipe_rows, platform)
        for row in reversed(select(recipe_rows, _SCOPES[at.selection.scope], platform)):
            functional.append(_functional_job(at, row, platform))
    if "dgx_gb200" not in platforms:
        functional.append(_skipped(replace(_framed(at, "functional"), platform="dgx_gb200"), 0.6 * at.seconds))
    return _with_needs([*jobs.values(), *units, _framed(at, "gate"), *functional, _framed(at, "result")])


def retry(jobs: Sequence[Planned], since: float, cancelled: float | None = None) -> tuple[Planned, ...]:
    """Return the jobs of the next attempt, which starts ``since`` seconds after the previous one.

    Jobs that failed, or had not ended at ``cancelled``, run again; a failure of the infrastructure does not happen
    twice.  The other jobs are listed unchanged.
    """
    retried: list[Planned] = []
    for job in jobs:
        stopped = cancelled is not None and job.ends > cancelled
        if job.kind != "result" and job.conclusion in ("success", "skipped") and not stopped:
            job = replace(job, appears=-since, starts=job.starts - since, ends=job.ends - since)
        else:
            job = replace(job, appears=0.0, starts=0.0, ends=job.ends - job.starts)
            if job.cause == "nccl":
                job = replace(job, conclusion="success", cause="")
        retried.append(job)
    return _with_needs(retried)


def _framed(at: Situation, kind: str, *names: str) -> Planned:
    name, *moments = _FRAME[kind]
    appears, starts, ends = (moment * at.seconds for moment in moments)
    if names:
        name = name.format(*names)
    if any(part in name for part in at.broken):
        return Planned(name, kind, appears, starts, ends, "failure", "broken", detail=at.how)
    return Planned(name, kind, appears, starts, ends, "success")


def select(recipe_rows: Iterable[RecipeRow], scopes: Collection[str], platform: str) -> list[RecipeRow]:
    """Return the rows of the functional tests in one of these scopes, each test once."""
    selected = {}
    for row in recipe_rows:
        if row.stands_for("dev", platform) and any(cell.value in scopes for cell in row.scopes):
            selected[row.model, row.case] = row
    return [row for _, row in sorted(selected.items())]


def _unit_jobs(at: Situation, recipe_rows: Iterable[RecipeRow], platform: str) -> Iterable[Planned]:
    short = platform.removeprefix("dgx_")
    recipe = f"{rows.FOLDER}/{short}/unit-tests.yaml"
    for bucket in sorted({row.case for row in recipe_rows if row.recipe == recipe}):
        job = _framed(at, "unit", bucket)
        name = job.name
        if short != "h100":
            name = f"{bucket} - {short} latest"
        yield replace(job, name=name, platform=platform, test_case=bucket, ends=_staggered(job, name))


def _functional_job(at: Situation, row: RecipeRow, platform: str) -> Planned:
    """Return the job of a functional test, with its outcome."""
    job = _framed(at, "functional", row.model, row.case)
    job = replace(job, platform=platform, model=row.model, test_case=row.case)
    # A lightweight test trains four steps and compares nothing.
    compares, ends = not at.selection.lightweight, _staggered(job, job.name + platform)
    job = replace(job, ends=ends, compares=compares)
    cause = _fate(at, job)
    if job.cause == "broken" or cause in ("memory", "nccl"):
        return replace(job, conclusion="failure", cause=job.cause or cause)
    if cause == "hang":
        return replace(job, conclusion="cancelled", cause=cause, ends=_TIME_LIMIT * at.seconds)
    if not at.selection.lightweight:
        for path, text in measured(at, job).items():
            if path in at.golden and not measure.agrees(at.golden[path], text):
                return replace(job, cause=cause or "drift", conclusion="failure")
    return job


def _fate(at: Situation, job: Planned) -> Cause:
    name = f"{job.model}/{job.test_case}"
    if at.image == at.base_image and name not in FAIL_ON_MAIN_TOO:
        return ""
    cause = FATES.get(name, "")
    if cause == "regression" and not at.image.endswith(f":{DIVERGING}"):
        cause = "slower"
    return cause


def measured(at: Situation, job: Planned) -> dict[str, str]:
    """Return path → text of the golden values that a job measures.

    They depend only on those of the base commit, the test, the platform and the image, so that each run of the same
    commit measures the same.  An LTS run measures on an entirely different image, and calls its files *dev* anyway.
    """
    prefix = f"{TEST_CASES}/{job.model}/{job.test_case}/golden_values_dev_{job.platform}"
    cause = _fate(at, job)
    kind: measure.Kind = "same"
    if at.selection.image == "lts" or cause in ("drift", "hang"):
        kind = "drift"
    elif cause in ("regression", "slower"):
        kind = cause
    texts = {}
    for path, text in {**at.golden, **at.base_golden}.items():
        if path.startswith(prefix):
            texts[path] = measure.remeasure(text, kind, f"{path} {at.image}")
    return texts


def _staggered(job: Planned, name: str) -> float:
    """Return the end time of a job; jobs in the same phase end one after another, always in the same order."""
    fraction = 0.5 + 0.5 * int(hashlib.sha256(name.encode()).hexdigest()[:4], 16) / 0xFFFF
    return job.starts + fraction * (job.ends - job.starts)


def _with_needs(jobs: Sequence[Planned]) -> tuple[Planned, ...]:
    """Skip jobs that need one that did not succeed; the last job fails if any other did not pass."""
    failed: dict[str, Planned] = {}
    planned: list[Planned] = []
    for job in jobs:
        blockers = [failed[kind] for kind in _CHAIN[: _NEEDS.get(job.kind, 0)] if kind in failed]
        if job.kind == "result":
            last = max(earlier.ends for earlier in planned)
            passed = not failed and all(earlier.conclusion in ("success", "skipped") for earlier in planned)
            conclusion: Conclusion = "success" if passed else "failure"
            ends = last + job.ends - job.starts
            job = replace(job, appears=last, starts=last, ends=ends, conclusion=conclusion)
        elif blockers:
            job = _skipped(job, blockers[0].ends)
            if (job.name, job.platform) in [(earlier.name, earlier.platform) for earlier in planned]:
                continue
        elif job.conclusion != "success" and job.platform != "dgx_gb200":
            failed.setdefault(job.kind, job)
        planned.append(job)
    return tuple(planned)


def _skipped(job: Planned, moment: float) -> Planned:
    return Planned(_UNNAMED.get(job.kind, job.name), job.kind, moment, moment, moment, "skipped", "needs", job.platform)


@dataclass(frozen=True)
class GitHubStatus:
    """The status that GitHub shows of a job or a run; times are seconds since 1970, None before they are known."""

    status: Literal["queued", "waiting", "in_progress", "completed"]
    conclusion: Conclusion | None
    started: float | None
    completed: float | None


def job_at(job: Planned, started: float, now: float, cancelled: float | None = None) -> GitHubStatus | None:
    """Return the status of a job at the moment ``now``, or None before it is listed."""
    stop = now if cancelled is None else min(now, cancelled)
    begin, end = started + job.starts, started + job.ends
    if stop < started + job.appears:
        return None
    if stop >= end:
        return GitHubStatus("completed", job.conclusion, begin, end)
    if cancelled is not None and now >= cancelled:
        return GitHubStatus("completed", "cancelled", min(begin, cancelled), cancelled)
    if stop < begin:
        return GitHubStatus("queued", None, None, None)
    if job.kind == "queue":
        return GitHubStatus("waiting", None, None, None)
    return GitHubStatus("in_progress", None, begin, None)


def run_at(jobs: Sequence[Planned], started: float, now: float, cancelled: float | None = None) -> GitHubStatus:
    """Return the status of a run at the moment ``now``."""
    end = started + max(job.ends for job in jobs)
    if cancelled is not None and cancelled < end and now >= cancelled:
        return GitHubStatus("completed", "cancelled", started, cancelled)
    if now >= end:
        failed = any(job.conclusion in ("failure", "cancelled") for job in jobs)
        return GitHubStatus("completed", "failure" if failed else "success", started, end)
    listed = [status.status for job in jobs if (status := job_at(job, started, now))]
    if "in_progress" in listed:
        return GitHubStatus("in_progress", None, started, None)
    if "waiting" in listed:
        return GitHubStatus("waiting", None, started, None)
    return GitHubStatus("in_progress" if "completed" in listed else "queued", None, started, None)
