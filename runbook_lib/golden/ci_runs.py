"""Sources of golden values: runs on GitHub and pipelines on GitLab, with the reason if one may not be used."""

import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from runbook_lib.errors import Refused, RunbookError
from runbook_lib.golden.collect import (
    CollectionProblem,
    FunctionalTestJob,
    GoldenSource,
    TestState,
    UploadMatch,
    match_uploads,
)  # fmt: skip
from runbook_lib.pins.bump import ImageType
from runbook_lib.pins.repositories import LIGHTWEIGHT, LTS
from runbook_lib.world.github.ci_status import WORKFLOW, branch_of, platform_of
from runbook_lib.world.github.models import Artifact, WorkflowJob, WorkflowRun
from runbook_lib.world.gitlab.models import Bridge, Pipeline, PipelineJob
from runbook_lib.world.ports import Forge, SecondCi

_GITHUB: dict[str, TestState] = {
    "success": "passed", "failure": "failed", "cancelled": "cancelled", "timed_out": "timed out",
}  # fmt: skip
_GITLAB: dict[str, TestState] = {
    "success": "passed", "failed": "failed", "canceled": "cancelled", "canceling": "cancelled",
    "skipped": "skipped", "manual": "skipped",
}  # fmt: skip
#: A model or a test case, which becomes one component of a path.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
#: The name of a functional job on GitHub; unit tests are `<bucket> - latest`, and a bucket is a path below tests.
_TEST_JOB = re.compile(rf"(?!tests/)({_NAME.pattern})/({_NAME.pattern}) - \S.*")
#: The summary job of a run, which fails if any other job fails.
SUMMARY = "Nemo_CICD"
#: The address of a run, a job or a pull request, or of its page in the practice environment.
ADDRESS = re.compile(
    r"(?:https?://[^/\s]+|file://(?:/[^/\s]+)*)/(?P<repository>[^/\s]+/[^/\s]+)/"
    r"(?:actions/runs/(?P<run>[0-9]{1,18})(?:/(?:attempts/[0-9]+/)?job/(?P<job>[0-9]{1,18}))?|pull/(?P<pull>[0-9]{1,18}))"
    r"(?:\.html)?(?:[/?#]\S*)?"
)
#: Conclusions of jobs that failed.
BAD = frozenset({"failure", "timed_out", "cancelled", "startup_failure"})
_RAN = ("passed", "failed", "timed out", "cancelled")


def of_github(
    github: Forge, run: WorkflowRun, *, image_type: ImageType, branch: str, labels: AbstractSet[str],
    workflow: str = WORKFLOW,
) -> GoldenSource:  # fmt: skip
    """Return a workflow run of the pull request that is mirrored to ``branch``.  Raises Refused for any other run.

    ``labels`` are those at the start of the run.
    """
    name = f"CI run {run.id}"
    _require_own(run, name, branch, workflow)
    jobs = github.jobs(run.id)
    names = tuple(sorted(job.name for job in failed(jobs)))
    source = GoldenSource(name, (), (), lambda upload: github.artifact(upload.id), image_type, failed=names)
    if unusable := _unusable(run, image_type, labels):
        return replace(source, unusable=unusable)
    tests = functional_tests(jobs)
    if not any(test.state in _RAN for test in tests):
        return replace(source, jobs=tests, unusable=_no_test_ran(names))
    return replace(source, jobs=tests, matches=match_uploads(tests, github.artifacts(run.id), run.id))


def _require_own(run: WorkflowRun, name: str, branch: str, workflow: str) -> None:
    if run.fork:
        raise Refused(
            f"{name} ran on the branch {run.head_branch} of a fork, whose owner controls its values. "
            f"Name a run of the bump's pull request: {run.url}"
        )
    if run.head_branch != branch or run.name != workflow:
        raise Refused(
            f"{name} is not a run of {workflow} on {branch}: it is a run of {run.name or 'a nameless workflow'} on "
            f"{run.head_branch or 'no branch'}. Name a run of the bump's pull request: {run.url}"
        )


def of_gitlab(gitlab: SecondCi, pipeline: Pipeline, image_type: ImageType) -> GoldenSource:
    """Return the functional tests of a pipeline for one image type."""
    name = f"pipeline {pipeline.id}"
    bridges = [bridge for bridge in gitlab.bridges(pipeline.id) if bridge.environment == image_type]
    problems: list[CollectionProblem] = []
    tests: list[FunctionalTestJob] = []
    matches: list[UploadMatch] = []
    for bridge in bridges:
        if bridge.pipeline is None:
            sentence = f"It started no pipeline (its status is {bridge.status})."
            problems.append(CollectionProblem(bridge.name, sentence))
        for job in gitlab.jobs(bridge.pipeline) if bridge.pipeline else ():
            if _NAME.fullmatch(job.stage) and _NAME.fullmatch(job.name):
                test = _of_gitlab_job(job, bridge)
                tests.append(test)
                if job.size or job.expired:
                    upload = Artifact(job.id, f"artifacts of job {job.id}", job.size, job.expired)
                    matches.append(UploadMatch(upload, (test,)))
    unusable = "" if bridges else f"It has no bridge functional:run_{image_type}…, so no functional test ran."
    return GoldenSource(
        name, tuple(tests), tuple(matches), lambda upload: gitlab.artifact(upload.id), image_type,
        second_ci=gitlab, unusable=unusable, problems=tuple(problems),
    )  # fmt: skip


def of_pipelines(sources: Sequence[GoldenSource]) -> GoldenSource:
    """Return the tests of a commit's pipelines, such as a nightly and a weekly one: of each test the first result."""
    first, *others = [source for source in sources if not source.unusable] or sources[:1]
    for other in others:
        known = {(test.model, test.test_case, test.platform) for test in first.jobs}
        new = {test for test in other.jobs if (test.model, test.test_case, test.platform) not in known}
        first = replace(
            first, name=f"{first.name}, {other.name}", problems=first.problems + other.problems,
            jobs=(*first.jobs, *(test for test in other.jobs if test in new)),
            matches=first.matches + tuple(match for match in other.matches if new.issuperset(match.jobs)),
        )  # fmt: skip
    return first


def _unusable(run: WorkflowRun, image_type: ImageType, labels: AbstractSet[str]) -> str:
    """Return the reason why none of a run's values may be used, or "" if they may be used."""
    if run.status != "completed":
        return f"The run has not finished: it is {run.status.replace('_', ' ')}. Wait for it: {run.url}"
    if LTS in labels:
        return f"It ran on the LTS image (label {LTS!r}), but its files are named for dev, so none of them is used."
    if image_type == "lts":
        return "It ran on the dev image: golden values for lts come only from GitLab."
    if LIGHTWEIGHT in labels:
        return f"It was lightweight (label {LIGHTWEIGHT!r}): four steps and no golden values."
    return ""


def functional_tests(jobs: Iterable[WorkflowJob]) -> tuple[FunctionalTestJob, ...]:
    """Return the jobs that run a functional test."""
    tests = []
    for job in jobs:
        if name := _TEST_JOB.fullmatch(job.name):
            state: TestState = "unfinished"
            if job.status == "completed":
                state = _GITHUB.get(job.conclusion, "skipped")
            runner = ", ".join(job.runners)
            times = job.started, job.completed
            tests.append(FunctionalTestJob(job.id, job.name, name[1], name[2], state, *times, platform_of(job), runner))
    return tuple(tests)


def _no_test_ran(failed: Iterable[str]) -> str:
    names = sorted(set(failed))
    # Unit tests are `<bucket> - latest`, and a bucket is a path.
    if unit_tests := [name for name in names if name.startswith("tests/")]:
        return f"No functional test ran, because unit tests failed ({', '.join(unit_tests[:5])}). Fix them first."
    return f"No functional test ran; these jobs failed: {', '.join(names[:5]) or 'none'}."


def _of_gitlab_job(job: PipelineJob, bridge: Bridge) -> FunctionalTestJob:
    state = _GITLAB.get(job.status, "unfinished")
    if state == "failed" and "timeout" in job.reason:
        state = "timed out"
    return FunctionalTestJob(job.id, f"{job.stage}/{job.name}", job.stage, job.name, state, platform=bridge.platform)


@dataclass(frozen=True)
class RequestedRun:
    """The run named by the user, and the ID of one of its jobs, or None for all failed jobs."""

    run: WorkflowRun
    job: int | None = None


def find_run(github: Forge, text: str, workflow: str = WORKFLOW) -> RequestedRun:
    """Find a run from text: the URL of a run, job or pull request, ``#12``, a run's number, or a branch.

    For a pull request or a branch, return the newest run of ``workflow`` (by default the one started by copy-pr-bot),
    or of any workflow if it is empty.  Raises Refused for another repository's run, and RunbookError if there is none.
    """
    text = text.strip()
    address = ADDRESS.fullmatch(text)
    if address and address["repository"].lower() != github.repository.lower():
        raise Refused(f"{text} belongs to {address['repository']}, but the checkout to {github.repository}.")
    if address and address["run"]:
        return RequestedRun(github.run(int(address["run"])), int(address["job"]) if address["job"] else None)
    if re.fullmatch(r"[0-9]{5,18}", text):
        return RequestedRun(github.run(int(text)))
    number = address["pull"] if address else ""
    if re.fullmatch(r"#?[0-9]{1,7}", text):
        number = text.removeprefix("#")
    branch = text
    if number and not workflow:
        branch = f"#{number}"
        runs = github.runs(head_sha=github.pull(int(number)).head_sha)
    else:
        if number:
            branch = branch_of(int(number))
        runs = github.runs(branch)
    runs_of_workflow = [run for run in runs if workflow in ("", run.name)]
    newest = max(runs_of_workflow, key=lambda run: (run.created, run.id), default=None)
    if newest is None:
        raise RunbookError(
            f"{github.repository} has no run of {workflow or 'CI'} on {branch!r}.",
            "Give the URL of a run, a job or a pull request, the number of a pull request, or a branch with CI runs.",
        )
    return RequestedRun(newest)


def failed(jobs: Iterable[WorkflowJob]) -> tuple[WorkflowJob, ...]:
    """Return the jobs that failed or reached their time limit, without the summary job."""
    return tuple(job for job in jobs if job.conclusion in BAD and not job.name.startswith(SUMMARY))
