"""A bump's readiness to merge: the requirements, each checked again, and the work left to people."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Literal

from runbook_lib import display, notebooks
from runbook_lib.bump import branch_history, lts_validation, policy, sync_survey
from runbook_lib.bump.people import left_to_people
from runbook_lib.checks import Next
from runbook_lib.display import View
from runbook_lib.errors import RunbookError
from runbook_lib.failures import quarantines
from runbook_lib.golden import comparison
from runbook_lib.golden.ci_runs import failed
from runbook_lib.pins.bump import Bump
from runbook_lib.text.lists import join_first
from runbook_lib.world import pull_request
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.bump_pull import is_mine
from runbook_lib.world.github.ci_status import CiStatus
from runbook_lib.world.github.copy_pr_bot import commands
from runbook_lib.world.github.models import Pull
from runbook_lib.world.ports import Forge
from runbook_lib.world.pull_request import PullRequestState, read_state

State = Literal["met", "missing", "unknown", "inapplicable"]

#: The requirements in words, by kind.
NAMES = {
    "hold": "no hold by a person",
    "authorization": "authorization of the head commit",
    "ci": "a green CI run of the head commit",
    "commits": "commits that are the runbook's own or confirmed",
    "signatures": "signed commits",
    "pins": "pins that agree on that commit",
    "values": "golden values without open decisions",
    "issues": "an open issue for every broken test",
    "downstream": "the downstream tests that a label asks for",
    "second ci": "a green pipeline on GitLab",
    "push": "a push of the local commits",
}


@dataclass(frozen=True)
class Requirement:
    """What must hold before the merge: unknown is what could not be looked at, inapplicable what is not there.

    ``decisions`` are those of people that it rests on: accepted dangers, or the exception for what is unknown.
    ``running``: CI will decide it without a person.  ``url`` is that of the run or pipeline of the checked commit.
    """

    kind: str
    state: State
    evidence: str
    next: Next = field(default_factory=Next)
    decisions: tuple[str, ...] = ()
    running: bool = False
    url: str = ""

    @property
    def name(self) -> str:
        """The requirement in words."""
        return NAMES[self.kind]

    @property
    def blocks(self) -> bool:
        """False if it is met, or unknown and a person does without it."""
        return self.state == "missing" or (self.state == "unknown" and not self.decisions)

    def as_json(self) -> dict[str, object]:
        """Return it for the record."""
        return {**asdict(self), "name": self.name, "blocks": self.blocks}


#: The exception for a pipeline that was not looked at.
UNSEEN = "second-ci-unseen"
_MARKS = {"met": "✓ met", "missing": "✗ missing", "unknown": "? unknown", "inapplicable": "– does not apply"}
_LIFT = "Fix the cause, or bump to another image. To lift the hold, remove line {line} of {file}."
_START = "Start one with internal-ci"


@dataclass(frozen=True)
class Readiness:
    """The requirements for the merge, and ``people``: the work left to people once all are met.

    ``problem`` is the reason why nothing was checked.  ``commit`` is the checked head commit.
    """

    requirements: tuple[Requirement, ...] = ()
    people: tuple[str, ...] = ()
    problem: str = ""
    commit: str = ""

    @property
    def missing(self) -> tuple[Requirement, ...]:
        """The requirements that prevent the merge: they are not met, or unknown and no person does without them."""
        return tuple(requirement for requirement in self.requirements if requirement.blocks)

    @property
    def unseen(self) -> tuple[Requirement, ...]:
        """The requirements that are unknown, and that a person does without."""
        return tuple(each for each in self.requirements if each.state == "unknown" and not each.blocks)

    def show(self) -> View:
        """Show every requirement, and the work left to people."""
        if self.problem:
            return display.note(self.problem)
        rows = (
            {"before the merge": each.name, "outcome": _MARKS[each.state], "found": each.evidence, "next": each.next}
            for each in self.requirements
        )
        return display.table(rows) + display.notes(self.people, title="Left to people")


def check(branch: BumpBranch, github: Forge | None, records: Path | None = None) -> Readiness:
    """Check the CI run of the head commit, its pins, golden values, issues and GitLab.  Changes nothing.

    ``records`` is the bump's folder in the archive.
    """
    bump = branch.bump
    if bump.tag is None or github is None or not bump.apply:
        return Readiness(problem="Readiness to merge is not checked in a preview.")
    state = read_state(branch, github)
    pull = state.pull
    if pull is None:
        return Readiness(problem=state.problem or "There is no pull request, so there is nothing to merge.")
    review = branch_history.review_pull(branch, pull, records, mine=is_mine(pull, state.head_name))
    if review is None:
        unseen = f"#{pull.number} is at {pull.head_sha[:10]}, which cannot be fetched, so nothing was looked at."
        return Readiness((Requirement("commits", "unknown", unseen, Next.again()),), commit=pull.head_sha)
    # Each requirement with its check and its step, which may not apply to a repository.
    progress = cache(partial(pull_request.progress, state, pull, github))
    checks: dict[str, tuple[str, Callable[[], Iterable[Requirement]]]] = {
        "ci": (notebooks.RUN_CI, lambda: _check_ci(state, pull, progress())),
        "commits": ("", lambda: [_check_commits(review)]),
        "signatures": ("", lambda: _check_signatures(branch, pull, review)),
        "pins": ("", lambda: [_check_pins(branch, pull)]),
        "values": (notebooks.GOLDEN_VALUES, lambda: [_check_values(branch)]),
        "issues": (notebooks.BROKEN_TESTS, lambda: [_check_issues(branch, github, pull)]),
        "downstream": (notebooks.RUN_CI, lambda: _check_downstream(state, pull, progress)),
        "second ci": (notebooks.GITLAB_PIN, lambda: [_check_gitlab(branch, pull)]),
        "push": ("", lambda: [_check_pushed(state, pull)]),
    }
    requirements: list[Requirement] = []
    for each in bump.decisions.of("hold"):
        lift = _LIFT.format(line=each.line, file=bump.decisions.file)
        requirements.append(Requirement("hold", "missing", f"Do not merge: {each.subject}: {each.reason}", Next(lift)))
    for kind, (step, check_requirement) in checks.items():
        if reason := bump.repository.inapplicable(step):
            requirements.append(Requirement(kind, "inapplicable", reason))
            continue
        try:
            requirements += check_requirement()
        except RunbookError as error:  # one unavailable answer must not hide the others
            requirements.append(Requirement(kind, "unknown", str(error), Next.again()))
    accepted = ["; ".join(each.decisions) for each in requirements if each.kind == "values" and each.decisions]
    people = [f"Reviewers: a person accepted {dangers}. Read its plot before the merge." for dangers in accepted]
    left = () if bump.decisions.of("hold") else (*people, *left_to_people(state, github, pull, progress))
    return Readiness(tuple(requirements), left, commit=pull.head_sha)


def _met(kind: str, ok: bool, evidence: str, action: Next, *, decisions: tuple[str, ...] = ()) -> Requirement:
    """Return a requirement that was looked at; the action is for one that is missing."""
    return Requirement(kind, "met" if ok else "missing", evidence, Next() if ok else action, decisions)


def _check_ci(state: PullRequestState, pull: Pull, status: CiStatus) -> Iterator[Requirement]:
    authors = ", ".join(comment.author for comment in commands(state.comments, pull.head_sha))
    if not authors and status.run:
        authors = "copy-pr-bot"
    detail = f"{pull.head_sha[:10]}, by {authors or 'nobody'}."
    yield _met("authorization", bool(authors), detail, Next.run(notebooks.RUN_CI))
    if status.state == "failed":
        red = {job.name for job in failed(status.jobs)}
        soft = {each.test for each in quarantines.quarantined_since_fork(state.branch, pull.head_sha) if each.soft}
        if red and all(name.partition(" - ")[0] in soft for name in red):
            yield Requirement("ci", "met", f"Red but explained: {', '.join(sorted(red))} may fail (soft).")
            return
    passed = status.state == "passed"
    detail = f"{status.text.rstrip('.')}."
    if passed:
        moved = f", which has since moved by {state.behind} commits." if state.behind else " as it is."
        detail += f" It tested the merge with {pull.base_ref}{moved}"
    running = status.run is not None and not status.is_over
    url = status.run.url if status.run else ""
    yield Requirement("ci", "met" if passed else "missing", detail, status.next, running=running, url=url)


def _check_commits(review: branch_history.Review) -> Requirement:
    detail = f"{review.waiting}." if review.foreign else f"{display.count(len(review.commits), 'commit')}."
    return _met("commits", not review.foreign, detail, review.next)


def _check_signatures(branch: BumpBranch, pull: Pull, review: branch_history.Review) -> Iterator[Requirement]:
    """Yield the requirement where the repository asks for signed commits."""
    if policy.document(branch.checkout, branch.bump):
        ok, evidence, action, decisions = policy.signatures(branch, pull.head_sha, len(review.commits))
        yield _met("signatures", ok, evidence, action, decisions=decisions)


def _check_pins(branch: BumpBranch, pull: Pull) -> Requirement:
    bump = branch.bump
    survey = sync_survey.survey(
        branch.checkout.path, [pull.head_sha], expected=bump.tag, image_type=bump.image_type,
        repository=bump.repository, of_bump=True,
    )  # fmt: skip
    if survey.outcome == "cannot tell":
        return Requirement("pins", "unknown", survey.summary, Next.run(notebooks.SYNC_CHECK))
    return _met("pins", survey.outcome == "in sync", survey.summary, Next.run(notebooks.SYNC_CHECK))


def _check_values(branch: BumpBranch) -> Requirement:
    verdicts = comparison.judge_branch(branch)
    files = [file.file for file in verdicts.stopped]
    # A group's files may have been committed by hand: a person must decide on the group anyway.
    files += [group.id for group in verdicts.groups if not group.accepted]
    action = Next.run(notebooks.GOLDEN_VALUES, "Decide on them.")
    detail = f"{join_first(files, 4)} {display.be(len(files))} held back." if files else "None is held back."
    return _met("values", not files, detail, action, decisions=tuple(verdicts.accepted_dangers))


def _check_issues(branch: BumpBranch, github: Forge, pull: Pull) -> Requirement:
    tests = quarantines.quarantined_since_fork(branch, pull.head_sha)
    problems = [f"{test.test} has no issue" for test in tests if not test.issue]
    for test in tests:
        if test.issue is not None:
            issue = github.issue(test.issue)
            if not issue.is_open:
                state = "a pull request" if issue.is_pull else issue.state
                problems.append(f"#{issue.number} for {test.test} is {state}")
    detail = (
        f"{'; '.join(problems)}." if problems else f"{pull.head_sha[:10]} marks {display.count(len(tests), 'test')}."
    )
    return _met("issues", not problems, detail, Next("File one, and name it in the comment above the row."))


def _check_downstream(state: PullRequestState, pull: Pull, progress: Callable[[], CiStatus]) -> Iterator[Requirement]:
    """Yield a requirement for each suite of another project whose label the pull request has."""
    for label, name in state.bump.repository.ci.downstream.items():
        if label not in pull.labels:
            continue
        status = progress()
        job = next((job for job in status.jobs if job.name == name and job.conclusion != "skipped"), None)
        if job is None:
            evidence = f"The label {label!r} is set, but the run of {pull.head_sha[:10]} has no job {name}."
            action = Next("Start CI again, which reads the label at its start, or remove the label.")
            yield Requirement("downstream", "unknown", evidence, action, running=not status.is_over)
            continue
        evidence, running = f"{name}: {job.conclusion or job.status}.", job.status != "completed"
        action = Next.again() if running else Next(f"Read {job.url}, and fix it, or remove the label {label!r}.")
        met: State = "met" if job.conclusion == "success" else "missing"
        yield Requirement("downstream", met, evidence, action, running=running, url=job.url)


def _check_gitlab(branch: BumpBranch, pull: Pull) -> Requirement:
    bump, short = branch.bump, pull.head_sha[:10]
    try:
        gitlab = branch.services.second_ci()
        if gitlab is None:
            return _gitlab_unseen(bump, "GITLAB_URL is not set, so nobody looked for the pipeline.", "Set it")
        pipelines = gitlab.pipelines(pull.head_sha)
    except RunbookError as error:
        return _gitlab_unseen(bump, str(error), "Run bump again")
    if lts_validation.applies(bump):
        pipelines = lts_validation.testing(gitlab, pipelines)
        if not pipelines:
            action = Next.run("internal-ci", "Only pipelines with tests run them in the LTS image:", tests="mr")
            return Requirement("second ci", "missing", f"No pipeline for {short} runs the lts tests.", action)
    pipeline = next(iter(pipelines), None)
    if pipeline is None:
        return _gitlab_unseen(bump, f"{short} has no pipeline.", _START)
    detail = f"Pipeline {pipeline.id} for {short}: {pipeline.status}. {pipeline.url}"
    if pipeline.status == "skipped":
        return _gitlab_unseen(bump, detail, _START, pipeline.url)
    if pipeline.status == "success":
        return Requirement("second ci", "met", detail, url=pipeline.url)
    action = Next.run(notebooks.GOLDEN_VALUES) if pipeline.status == "failed" else Next.again()
    return Requirement("second ci", "missing", detail, action, url=pipeline.url)


def _gitlab_unseen(bump: Bump, detail: str, action: str, url: str = "") -> Requirement:
    """Return the requirement for a pipeline whose tests nobody saw; a person may do without it."""
    decisions = (UNSEEN,) if bump.allowed(UNSEEN, detail) else ()
    advice = f"{action}, or do without it: {bump.decisions.advice('allow', UNSEEN)}."
    return Requirement("second ci", "unknown", detail, Next() if decisions else Next(advice), decisions, url=url)


def _check_pushed(state: PullRequestState, pull: Pull) -> Requirement:
    branch = state.branch
    pushed = branch.start == pull.head_sha
    detail = f"{branch.start[:10]} here, {pull.head_sha[:10]} on #{pull.number}."
    action = Next.run(notebooks.BROKEN_TESTS, "Push it:")
    if not is_mine(pull, state.head_name):
        ref = f"refs/pull/{pull.number}/head:{branch.bump.branch}"
        action = Next(f"Fetch it, so that its values are compared: git fetch {branch.base_remote} {ref}")
    return _met("push", pushed, detail, action)
