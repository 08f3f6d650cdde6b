"""The CI run whose golden values and failures are read."""

import re
from collections import Counter
from dataclasses import dataclass, field, replace

from runbook_lib import display, notebooks
from runbook_lib.checks import Next
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.golden import ci_runs
from runbook_lib.golden.collect import GoldenSource
from runbook_lib.model import Outcome
from runbook_lib.pins.bump import Bump
from runbook_lib.text.lists import capitalized
from runbook_lib.text.recipes.file_names import has_values
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.bump_pull import PullRequestState, read_progress
from runbook_lib.world.github.ci_status import WORKFLOW, branch_of, labels_at, pull_of
from runbook_lib.world.github.models import WorkflowRun
from runbook_lib.world.gitlab.models import UNDER_WAY
from runbook_lib.world.ports import Forge

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
        return display.mapping(
            {"run": run, "values": values, "functional tests": tests, "usable": self.source.unusable or "yes"}
        )

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
        return _of_gitlab(state, run_id)
    if github is None or pull is None:
        reason = state.problem.rstrip(".") or f"no pull request is open for {bump.branch}"
        return _waiting(state, f"the pull request: {reason}", Next.run(notebooks.OPEN_PR, mode="publish"))
    if run_id:
        return _of_github(state, github, run_id)
    status = read_progress(state, pull, github)
    if status.run is None or status.state not in ("passed", "failed"):
        return ChosenRun(state, missing=Outcome(status.text.rstrip("."), status.next, not status.is_over))
    if status.state == "passed" and state.branch.services.second_ci():
        # GitHub's scopes are green: next are the scopes that it never runs.
        mirrored = _of_gitlab(state, "")
        if mirrored.source is not None and mirrored.failed:
            return mirrored
    return _of_github(state, github, status.run)


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
    branch = BumpBranch(checkout, bump, state.branch.base_remote, tip, tip, tip)
    state = replace(state, branch=branch)
    if source == "github" and state.github is None:
        return _waiting(state, "a GitHub token, without which no run can be read", Next())
    run = _of_github(state, state.github, run_id) if source == "github" and state.github else _of_gitlab(state, run_id)
    if run.source is None or run.tested == tip:
        return replace(run, older=False)
    if checkout.has(run.tested) and checkout.is_ancestor(run.tested, tip):
        changed = filter(None, checkout.git("diff", "--name-only", "-z", run.tested, tip).split("\0"))
        if all(map(has_values, changed)):  # committed by an earlier run
            state = replace(state, branch=replace(branch, base_commit=run.tested))
            return replace(run, pull_request=state, older=False)
    if not bump.allowed("older-run", run.number):
        raise Refused(
            f"{run.source.name} tested {run.tested[:10]}, but {name} is at {tip[:10]}: the run's values may differ "
            "from this branch's. Check out the commit that was tested, or name a run of this branch.",
            "older-run",
        )
    return run


def _of_github(state: PullRequestState, github: Forge, named: str | WorkflowRun) -> ChosenRun:
    """Return a run of the bump's pull request, or without a bump any run; ``named`` is a text if a person named it."""
    bump, pull, labellings = state.bump, state.pull, state.labellings
    run = ci_runs.find_run(github, named, bump.repository.ci.workflow).run if isinstance(named, str) else named
    branch, head = run.head_branch, state.branch.start
    if pull:
        branch, head = branch_of(pull.number), pull.head_sha
    elif number := pull_of(branch):
        pull, labellings = github.pull(number), github.labellings(number)
    labels = labels_at(pull.labels, labellings, run.created) if pull else frozenset()
    workflow = bump.repository.ci.workflow or WORKFLOW
    source = ci_runs.of_github(github, run, image_type=bump.image_type, branch=branch, labels=labels, workflow=workflow)
    _require_head(bump, source.name, run.id, run.head_sha, head)
    return ChosenRun(
        state, source, url=run.url, number=run.id, tested=run.head_sha, failed=source.failed,
        older=run.head_sha != head, named=isinstance(named, str), attempt=run.attempt,
    )  # fmt: skip


def _of_gitlab(state: PullRequestState, run_id: str) -> ChosenRun:
    bump, branch = state.bump, state.branch
    if run_id and not re.fullmatch(r"[0-9]{1,18}", run_id):
        raise RunbookError(
            f"run_id={run_id!r} is not a pipeline number.",
            "Use the number from its URL, …/pipelines/<number>; "
            "without run_id, the newest pipeline for the bump's commit is used.",
        )
    if state.pull is None and branch.tip is None:
        return _waiting(state, f"branch {bump.branch}: it does not exist yet", Next.run(notebooks.OPEN_PR))
    head = state.pull.head_sha if state.pull else branch.start
    gitlab = branch.services.second_ci()
    if gitlab is None:
        raise RunbookError(
            "GITLAB_URL is not set, so no pipeline can be read.", "Set it to the address of your GitLab."
        )
    pipelines = (gitlab.pipeline(int(run_id)),) if run_id else gitlab.pipelines(head)[:_MOST_PIPELINES]
    if not pipelines:
        start = Next.run("internal-ci", "Start one:", tests="nightly weekly")
        return _waiting(state, f"a pipeline for {head[:10]} on GitLab: it has none", start)
    for pipeline in pipelines:
        if pipeline.status in UNDER_WAY:
            action = Next.again(f"When it has ended ({pipeline.url}):")
            what = f"pipeline {pipeline.id} of {head[:10]} ({pipeline.status})"
            return _waiting(state, what, action, for_ci=True)
        _require_head(bump, f"pipeline {pipeline.id}", pipeline.id, pipeline.sha, head)
    source = ci_runs.of_pipelines([ci_runs.of_gitlab(gitlab, it, bump.image_type) for it in pipelines])
    failed = tuple(sorted(job.name for job in source.jobs if job.state not in ("passed", "skipped")))
    newest = pipelines[0]
    return ChosenRun(
        state, source, url=newest.url, number=newest.id, tested=newest.sha, failed=failed,
        older=newest.sha != head, named=bool(run_id),
    )  # fmt: skip


def _require_head(bump: Bump, name: str, number: int, commit: str, head: str) -> None:
    """Raise Refused for a bump's run of another commit than its head, unless ``older-run`` permits it."""
    if bump.tag and commit != head and not bump.allowed("older-run", number):
        raise Refused(
            f"{name} tested {commit[:10]}, but the head of the bump is {head[:10]}. Its values may differ from those "
            "of the commit that would be merged.",
            "older-run",
        )
