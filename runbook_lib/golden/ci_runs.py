"""CI runs and pipelines whose golden values and failures are read: which one, what its tests did, why it is no use."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from runbook_lib import display, notebooks
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.golden.collect import (
    CollectionProblem,
    FunctionalTestJob,
    GoldenSource,
    TestState,
    UploadMatch,
    match_uploads,
)  # fmt: skip
from runbook_lib.model import Next, Outcome
from runbook_lib.pins.bump import Bump, ImageType
from runbook_lib.pins.repositories import LIGHTWEIGHT, LTS
from runbook_lib.text.lists import capitalized
from runbook_lib.text.recipes.file_names import has_values
from runbook_lib.world.bump_branch import BumpBranch, PullRequestState, read_progress
from runbook_lib.world.github.ci_status import BAD_JOB, WORKFLOW, branch_of, labels_at, platform_of, pull_of
from runbook_lib.world.github.models import Artifact, WorkflowJob, WorkflowRun
from runbook_lib.world.gitlab.models import UNDER_WAY, Pipeline
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
_RAN = frozenset({"passed", "failed", "timed out", "cancelled"})
_MOST_PIPELINES = 5  # read of a commit
_PIPELINE = re.compile(r"https?://(?:(?!/pipelines/[0-9])\S)++/pipelines/([0-9]{1,18})(?:[/?#]\S*)?")


@dataclass(frozen=True)
class ChosenRun:
    """The run to use; ``missing`` says why there is none, what to do about it, and if CI alone will bring one.

    ``tested`` is the commit it tested, ``failed`` are the names of its failed jobs; ``older``: it tested a commit
    before the head, ``named``: a person named the run.
    """

    pull_request: PullRequestState
    source: GoldenSource | None = None
    missing: Outcome = field(default_factory=lambda: Outcome(""))
    url: str = ""
    number: int = 0
    tested: str = ""
    failed: tuple[str, ...] = ()
    older: bool = False
    named: bool = False
    attempt: int = 1

    @property
    def branch(self) -> BumpBranch:
        """The bump's branch."""
        return self.pull_request.branch

    @property
    def bump(self) -> Bump:
        """The parameters of the bump."""
        return self.pull_request.bump

    def show(self) -> display.View:
        """Show the run, its functional tests, and whether its values may be used."""
        if self.source is None:
            return display.note(f"{capitalized(self.missing.sentence)}.")
        states = sorted(Counter(job.state for job in self.source.jobs).items())
        tests = ", ".join(f"{count} {state}" for state, count in states) or "none"
        run = f"{self.source.name} {self.url}".strip()
        values = f"of attempt {self.attempt}; where a job repeated its test, of the last repetition"
        usable = self.source.unusable or "yes"
        return display.mapping({"run": run, "values": values, "functional tests": tests, "usable": usable})

    def without_run(self, nothing: str) -> tuple[Outcome, Outcome | None]:
        """Return how a step ends that has no run, and for what it waits, if there will be one."""
        done = Outcome(f"{nothing}: {self.missing.sentence.rstrip('.')}.", self.missing.next)
        return done, self.missing if self.bump.tag else None


def choose_run(state: PullRequestState, *, run_id: str = "", source: str = "github") -> ChosenRun:
    """Return the run that ``run_id`` names (a number or URL), else the newest run for the head commit.

    Without a bump it may also name a pull request (``#12``) or a branch; the values are for the checked-out branch.
    If the newest run is green and GitLab is configured, returns the failed pipeline for the same commit there.
    Raises RunbookError for an invalid number or an unknown source, Refused for an unrelated run.
    """
    bump, github, pull, run_id = state.bump, state.github, state.pull, run_id.strip()
    if source not in ("github", "gitlab"):
        raise RunbookError(f"source={source!r} is unknown: choose github or gitlab.")
    if pipeline := _PIPELINE.fullmatch(run_id):
        run_id, source = pipeline[1], "gitlab"
    if bump.tag is None and not run_id:
        action = Next.again("Name the tag of a bump; or without a bump any run, such as:", run_id="#12")
        return ChosenRun(state, missing=Outcome("no tag was given, so there is no run to search for", action))
    tests = bump.repository.tests
    if not (tests.golden or tests.recipes or tests.scripts):
        return ChosenRun(state, missing=Outcome(f"{bump.repository.name} has neither golden values nor recipes"))
    if bump.tag is None:
        return _without_bump(state, run_id, source)
    if source == "gitlab":
        return _choose_pipeline(state, run_id)
    if github is None or pull is None:
        reason = state.problem.rstrip(".") or f"no pull request is open for {bump.branch}"
        return _waiting(state, f"the pull request: {reason}", Next.run(notebooks.OPEN_PR, mode="publish"))
    if run_id:
        return _choose_github(state, github, run_id)
    status = read_progress(state, pull, github)
    if status.run is None or status.state not in ("passed", "failed"):
        return ChosenRun(state, missing=Outcome(status.text.rstrip("."), status.next, not status.is_over))
    on_gitlab = _failed_pipeline(state) if status.state == "passed" else None
    return on_gitlab or _choose_github(state, github, status.run)


def _failed_pipeline(state: PullRequestState) -> ChosenRun | None:
    """Return the failed pipeline of the bump's commit on GitLab, in which the scopes run that GitHub never runs.

    None also if GitLab cannot be read: the requirements for the merge say then that nobody has seen its pipeline.
    """
    try:
        run = _choose_pipeline(state, "") if state.branch.services.second_ci() else None
    except RunbookError:
        return None
    return run if run and run.failed else None


def _waiting(state: PullRequestState, what: str, action: Next, *, for_ci: bool = False) -> ChosenRun:
    """Return that there will be a run later."""
    return ChosenRun(state, missing=Outcome(f"waiting for {what}", action, for_ci))


def _without_bump(state: PullRequestState, run_id: str, source: str) -> ChosenRun:
    """Return any run, for the checked-out branch.

    Raises Refused for a run whose commit differs from the branch in more than golden files, unless ``older-run``
    permits it.
    """
    checkout = state.branch.checkout
    name, tip = checkout.current_branch(), checkout.resolve("HEAD")
    if name is None:
        raise Refused(f"No branch is checked out in {checkout.path}, so golden values cannot be committed.")
    bump = replace(state.bump, current_branch=name)
    branch = BumpBranch(checkout, bump, state.branch.base_remote, tip, tip)
    state = replace(state, branch=branch)
    if source == "gitlab":
        run = _choose_pipeline(state, run_id)
    elif state.github is None:
        return _waiting(state, "a GitHub token, without which no run can be read", Next())
    else:
        run = _choose_github(state, state.github, run_id)
    if run.source is None or run.tested == tip:
        return replace(run, older=False)
    if checkout.is_ancestor(run.tested, tip):
        changed = filter(None, checkout.git("diff", "--name-only", "-z", run.tested, tip).split("\0"))
        if all(map(has_values, changed)):  # committed by an earlier run
            state = replace(state, branch=replace(branch, base_commit=run.tested))
            return replace(run, pull_request=state, older=False)
    _require_tested(bump, run.source.name, run.number, run.tested, name, tip)
    return run


def _choose_github(state: PullRequestState, github: Forge, named: str | WorkflowRun) -> ChosenRun:
    """Return a run of the bump's pull request, or without a bump any run; ``named`` is a text if a person named it."""
    bump, pull, labellings = state.bump, state.pull, state.labellings
    run = find_run(github, named, bump.repository.ci.workflow).run if isinstance(named, str) else named
    branch, head = run.head_branch, state.branch.start
    if pull:
        branch, head = branch_of(pull.number), pull.head_sha
    elif number := pull_of(branch):
        pull, labellings = github.pull(number), github.labellings(number)
    labels = labels_at(pull.labels, labellings, run.created) if pull else frozenset()
    workflow = bump.repository.ci.workflow or WORKFLOW
    source = of_github(github, run, image_type=bump.image_type, branch=branch, labels=labels, workflow=workflow)
    if bump.tag:
        _require_tested(bump, source.name, run.id, run.head_sha, "the head of the bump", head)
    return ChosenRun(
        state, source, url=run.url, number=run.id, tested=run.head_sha, failed=source.failed,
        older=run.head_sha != head, named=isinstance(named, str), attempt=run.attempt,
    )  # fmt: skip


def _choose_pipeline(state: PullRequestState, run_id: str) -> ChosenRun:
    bump, branch = state.bump, state.branch
    if run_id and not re.fullmatch(r"[0-9]{1,18}", run_id):
        hint = "without run_id, the newest pipeline for the bump's commit is used."
        raise RunbookError(
            f"run_id={run_id!r} is not a pipeline number.", f"Use the number from its URL, …/pipelines/<number>; {hint}"
        )
    if state.pull is None and branch.tip is None:
        return _waiting(state, f"branch {bump.branch}: it does not exist yet", Next.run(notebooks.OPEN_PR))
    head = state.pull.head_sha if state.pull else branch.start
    gitlab = branch.services.second_ci()
    if gitlab is None:
        raise RunbookError("GITLAB_URL is not set, so no pipeline can be read.", "Set it to your GitLab's address.")
    pipelines = (gitlab.pipeline(int(run_id)),) if run_id else gitlab.pipelines(head)[:_MOST_PIPELINES]
    if not pipelines:
        start = Next.run("internal-ci", "Start one:", tests="nightly weekly")
        return _waiting(state, f"a pipeline for {head[:10]} on GitLab: it has none", start)
    for pipeline in pipelines:
        name = f"pipeline {pipeline.id}"
        if pipeline.status in UNDER_WAY:
            action = Next.again(f"When it has ended ({pipeline.url}):")
            return _waiting(state, f"{name} of {head[:10]} ({pipeline.status})", action, for_ci=True)
        if bump.tag:
            _require_tested(bump, name, pipeline.id, pipeline.sha, "the head of the bump", head)
    source = _of_pipelines([of_gitlab(gitlab, pipeline, bump.image_type) for pipeline in pipelines])
    failed_tests = tuple(sorted(job.name for job in source.jobs if job.state not in ("passed", "skipped")))
    newest = pipelines[0]
    return ChosenRun(
        state, source, url=newest.url, number=newest.id, tested=newest.sha, failed=failed_tests,
        older=newest.sha != head, named=bool(run_id),
    )  # fmt: skip


def _require_tested(bump: Bump, name: str, number: int, commit: str, place: str, head: str) -> None:
    """Raise Refused for a run of another commit than the head of a place, unless ``older-run`` permits it."""
    if commit != head and not bump.allowed("older-run", number):
        raise Refused(
            f"{name} tested {commit[:10]}, but {place} is at {head[:10]}, whose values may differ.",
            "Name a run of that commit, or check out the commit that was tested.",
            exception="older-run",
        )


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
    if _RAN.isdisjoint(test.state for test in tests):
        return replace(source, jobs=tests, unusable=_no_test_ran(names))
    return replace(source, jobs=tests, matches=match_uploads(tests, github.artifacts(run.id), run.id))


def _require_own(run: WorkflowRun, name: str, branch: str, workflow: str) -> None:
    if run.fork:
        raise Refused(
            f"{name} ran on the branch {run.head_branch} of a fork, whose owner controls its values.",
            f"Name a run of the bump's pull request: {run.url}",
        )
    if run.head_branch != branch or run.name != workflow:
        raise Refused(
            f"{name} is not a run of {workflow} on {branch}: it is a run of {run.name or 'a nameless workflow'} on "
            f"{run.head_branch or 'no branch'}.",
            f"Name a run of the bump's pull request: {run.url}",
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
            continue
        for job in gitlab.jobs(bridge.pipeline):
            if _NAME.fullmatch(job.stage) and _NAME.fullmatch(job.name):
                test_name = f"{job.stage}/{job.name}"
                state = _GITLAB.get(job.status, "unfinished")
                if state == "failed" and "timeout" in job.reason:
                    state = "timed out"
                test = FunctionalTestJob(job.id, test_name, job.stage, job.name, state, platform=bridge.platform)
                tests.append(test)
                if job.size or job.expired:
                    upload = Artifact(job.id, f"artifacts of job {job.id}", job.size, job.expired)
                    matches.append(UploadMatch(upload, (test,)))
    unusable = "" if bridges else f"It has no bridge functional:run_{image_type}…, so no functional test ran."
    return GoldenSource(
        name, tuple(tests), tuple(matches), lambda upload: gitlab.artifact(upload.id), image_type,
        second_ci=gitlab, unusable=unusable, problems=tuple(problems),
    )  # fmt: skip


def _of_pipelines(sources: Sequence[GoldenSource]) -> GoldenSource:
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
            of_job = job.started, job.completed, platform_of(job), ", ".join(job.runners)
            tests.append(FunctionalTestJob(job.id, job.name, name[1], name[2], state, *of_job))
    return tuple(tests)


def _no_test_ran(failed: Iterable[str]) -> str:
    names = sorted(set(failed))
    if unit_tests := [name for name in names if name.startswith("tests/")]:
        return f"No functional test ran, because unit tests failed ({', '.join(unit_tests[:5])}). Fix them first."
    return f"No functional test ran; these jobs failed: {', '.join(names[:5]) or 'none'}."


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
    branch = branch_of(int(number)) if number else text
    if number and not workflow:
        branch = f"#{number}"
        runs = github.runs(head_sha=github.pull(int(number)).head_sha)
    else:
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
    return tuple(job for job in jobs if job.conclusion in BAD_JOB and not job.name.startswith(SUMMARY))
