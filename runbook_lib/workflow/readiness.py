"""A bump's readiness to merge: the requirements, each checked again, and the work left to people."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runbook_lib import display, notebooks
from runbook_lib.bump import Bump
from runbook_lib.checks import Check
from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.github.copy_pr_bot import commands
from runbook_lib.clients.github.models import Pull
from runbook_lib.clients.gitlab.client import GitLab
from runbook_lib.display import View
from runbook_lib.errors import RunbookError
from runbook_lib.golden.form import STOPPED
from runbook_lib.records import cards
from runbook_lib.records.status import BEFORE_MERGE, NO_HOLD
from runbook_lib.records.step_record import StepRecord
from runbook_lib.runner import command_line
from runbook_lib.runner.execute import StepResult
from runbook_lib.runner.sequence import ROUNDS, conclude
from runbook_lib.text.decisions import entries
from runbook_lib.text.redact import Redactor
from runbook_lib.triage.failed_jobs import failed
from runbook_lib.workflow import (
    branch_history,
    ci_run,
    ci_triggers,
    golden_refreshes,
    lts_validation,
    push_round,
    quarantines,
    sync_survey,
)
from runbook_lib.workflow.bump_branch import BumpBranch
from runbook_lib.workflow.bump_pull import is_mine
from runbook_lib.workflow.pull_request import PullRequestState, read_state, review_commits

_CI = "a green CI run of the head commit"
_COMMITS = "commits that are the runbook's own or confirmed"
_PINS = "pins that agree on that commit"
_VALUES = "golden values without open decisions"
_ISSUES = "an open issue for every broken test"
_GITLAB = "a green pipeline on GitLab"
_PUSHED = "a push of the local commits"
_ACCEPTED = "A person accepted"
#: The exception for a pipeline that was not looked at.
_UNSEEN = "second-ci-unseen"
#: The links of a bump's record to the runs of the checked commit.
_LINKS = {_CI: "CI run", _GITLAB: "GitLab pipeline"}
_LIFT = "Fix the cause, or bump to another image. To lift the hold, run bump without it."


@dataclass(frozen=True)
class Requirement:
    """A condition for the merge: met, missing, or None where it does not apply to the repository.

    What could not be looked at is missing.  ``detail`` is the evidence or the reason.
    ``running``: CI will decide it without a person.  ``url`` is that of the run or pipeline of the checked commit.
    """

    name: str
    ok: bool | None
    detail: str
    next: str = ""
    running: bool = False
    url: str = ""


@dataclass(frozen=True)
class Readiness:
    """The requirements for the merge, and ``people``: the work left to people once all are met.

    ``problem`` is the reason why nothing was checked.  ``follows_ci`` is False if the repository's CI cannot be
    followed here.  ``commit`` is the checked head commit.
    """

    requirements: tuple[Requirement, ...] = ()
    people: tuple[str, ...] = ()
    problem: str = ""
    follows_ci: bool = True
    commit: str = ""

    @property
    def missing(self) -> tuple[Requirement, ...]:
        """The requirements that are not met yet."""
        return tuple(requirement for requirement in self.requirements if requirement.ok is False)

    def unseen(self, bump: Bump) -> Requirement | None:
        """Return the requirement that a person does without, although it applies; None if there is none."""
        if bump.repository.inapplicable(notebooks.GITLAB_PIN):
            return None
        return next((each for each in self.requirements if each.name == _GITLAB and each.ok is None), None)

    def show(self) -> View:
        """Show every requirement, and the work left to people."""
        if self.problem:
            return display.note(self.problem)
        outcomes = {True: "✓ met", False: "✗ missing", None: "– does not apply"}
        rows = (
            {"before the merge": each.name, "outcome": outcomes[each.ok], "found": each.detail, "next": each.next}
            for each in self.requirements
        )
        return display.table(rows) + display.notes(self.people, title="Left to people")


def holds(hold: str) -> dict[str, str]:
    """Return the reasons for a person's holds on the merge, by name.  Raises Refused for a malformed entry."""
    return entries(hold, "hold", "name: reason", Redactor(os.environ))


def check(branch: BumpBranch, github: GitHub | None, records: Path | None = None, hold: str = "") -> Readiness:
    """Check the CI run of the head commit, its pins, golden values, issues and GitLab.  Changes nothing.

    ``records`` is the bump's folder in the archive, ``hold`` the parameter with a person's holds.
    """
    bump = branch.bump
    if bump.tag is None or github is None or not bump.apply:
        return Readiness(problem="Readiness to merge is checked only with apply.")
    state = read_state(branch, github)
    pull = state.pull
    if pull is None:
        return Readiness(problem=state.problem or "There is no pull request, so there is nothing to merge.")
    review = review_commits(state, records)
    if review is None:
        unseen = f"#{pull.number} is at {pull.head_sha[:10]}, which cannot be fetched, so nothing was looked at."
        return Readiness((Requirement(_COMMITS, False, unseen, "Run bump again."),), commit=pull.head_sha)
    # Each requirement with its check and its step, which may not apply to a repository.
    checks: dict[str, tuple[str, Callable[[], Iterable[Requirement]]]] = {
        _CI: (notebooks.RUN_CI, lambda: _check_ci(state, github, pull)),
        _COMMITS: ("", lambda: [_check_commits(review)]),
        _PINS: ("", lambda: [_check_pins(branch, pull)]),
        _VALUES: (notebooks.GOLDEN_VALUES, lambda: [_check_values(branch, records)]),
        _ISSUES: (notebooks.BROKEN_TESTS, lambda: [_check_issues(branch, github, pull)]),
        _GITLAB: (notebooks.GITLAB_PIN, lambda: [_check_gitlab(bump, pull)]),
        _PUSHED: ("", lambda: [_check_pushed(state, pull)]),
    }
    requirements: list[Requirement] = []
    for name, reason in holds(hold).items():
        requirements.append(Requirement(NO_HOLD, False, f"Do not merge: {name}: {reason}", _LIFT))
    for name, (step, check_requirement) in checks.items():
        if reason := bump.repository.inapplicable(step):
            requirements.append(Requirement(name, None, reason))
            continue
        try:
            requirements += check_requirement()
        except RunbookError as error:  # one unavailable answer must not hide the others
            requirements.append(Requirement(name, False, str(error), "Run bump again."))
    follows_ci = not bump.repository.inapplicable(notebooks.RUN_CI)
    people = [each.detail for each in requirements if each.name == _VALUES and each.detail.startswith(_ACCEPTED)]
    people = [f"Reviewers: {sentence[0].lower()}{sentence[1:]} Read its plot before the merge." for sentence in people]
    left = (*people, *_left_to_people(state, pull))
    return Readiness(tuple(requirements), left, follows_ci=follows_ci, commit=pull.head_sha)


def _check_ci(state: PullRequestState, github: GitHub, pull: Pull) -> Iterator[Requirement]:
    status = ci_run.progress(state, pull, github)
    authors = ", ".join(comment.author for comment in commands(state.comments, pull.head_sha))
    if not authors and status.run:
        authors = "copy-pr-bot"
    action = "" if authors else notebooks.RUN_CI
    detail = f"{pull.head_sha[:10]}, by {authors or 'nobody'}."
    yield Requirement("authorization of the head commit", bool(authors), detail, action)
    if status.state == "failed":
        red = {job.name for job in failed(status.jobs)}
        rows = quarantines.quarantined_since_fork(state.branch, pull.head_sha)
        soft = {str(row["test"]) for row in rows if row["form"] == "soft"}
        if red and all(name.partition(" - ")[0] in soft for name in red):
            yield Requirement(_CI, True, f"Red but explained: {', '.join(sorted(red))} may fail (soft).")
            return
    passed = status.state == "passed"
    detail = f"{status.sentence.rstrip('.')}."
    if passed:
        moved = f", which has since moved by {state.behind} commits." if state.behind else " as it is."
        detail += f" It tested the merge with {pull.base_ref}{moved}"
    running = status.run is not None and not status.is_over
    yield Requirement(_CI, passed, detail, status.next, running, status.run.url if status.run else "")


def _check_commits(review: branch_history.Review) -> Requirement:
    detail = f"{review.waiting}." if review.foreign else f"{display.count(len(review.commits), 'commit')}."
    return Requirement(_COMMITS, not review.foreign, detail, review.next)


def _check_pins(branch: BumpBranch, pull: Pull) -> Requirement:
    bump = branch.bump
    survey = sync_survey.survey(
        branch.checkout.path, [pull.head_sha], expected=bump.tag, image_type=bump.image_type,
        repository=bump.repository, of_bump=True,
    )  # fmt: skip
    return Requirement(_PINS, survey.outcome == "in sync", survey.summary, notebooks.SYNC_CHECK)


def _check_values(branch: BumpBranch, records: Path | None) -> Requirement:
    verdicts = golden_refreshes.changed_since_fork(branch, records, golden_refreshes.read_history(branch))
    files = [judgement.file for judgement in verdicts.judgements if judgement.verdict in STOPPED]
    # A group's files may have been committed by hand: a person must decide on the group anyway.
    files += [group.id for group in verdicts.groups if not group.accepted]
    if not files:
        dangers = "; ".join(verdicts.accepted_dangers)
        detail = f"{_ACCEPTED} {dangers}." if dangers else "Nothing is held back."
        return Requirement(_VALUES, True, detail)
    detail = f"{display.first_names(files, 4)} {display.be(len(files))} held back."
    return Requirement(_VALUES, False, detail, f"{notebooks.GOLDEN_VALUES} with accept")


def _check_issues(branch: BumpBranch, github: GitHub, pull: Pull) -> Requirement:
    tests = quarantines.quarantined_since_fork(branch, pull.head_sha)
    problems = [f"{test['test']} has no issue" for test in tests if not test["issue"]]
    for test in tests:
        if isinstance(test["issue"], int):
            issue = github.issue(test["issue"])
            if issue.state != "open":
                problems.append(f"#{issue.number} for {test['test']} is {issue.state}")
    if not problems:
        return Requirement(_ISSUES, True, f"{display.count(len(tests), 'test')} marked.")
    action = "File one, and name it in the comment above the row."
    return Requirement(_ISSUES, False, f"{'; '.join(problems)}.", action)


def _check_gitlab(bump: Bump, pull: Pull) -> Requirement:
    short = pull.head_sha[:10]
    if not os.environ.get("GITLAB_URL"):
        return _gitlab_unseen(bump, "GITLAB_URL is not set, so nobody looked for the pipeline.", "Set it")
    gitlab = GitLab()
    pipelines = gitlab.pipelines(pull.head_sha)
    if lts_validation.applies(bump):
        pipelines = lts_validation.testing(gitlab, pipelines)
        if not pipelines:
            action = "Run internal-ci with tests=mr: only such pipelines run the tests in the LTS image."
            return Requirement(_GITLAB, False, f"No pipeline for {short} runs the lts tests.", action)
    pipeline = next(iter(pipelines), None)
    if pipeline is None:
        action = "Start one with tools/trigger_internal_ci.py (--dry-run first)"
        return _gitlab_unseen(bump, f"{short} has no pipeline.", action)
    detail = f"Pipeline {pipeline.id} for {short}: {pipeline.status}. {pipeline.url}"
    if pipeline.status == "skipped":
        return _gitlab_unseen(bump, detail, "Start one with tools/trigger_internal_ci.py", pipeline.url)
    if pipeline.status == "success":
        return Requirement(_GITLAB, True, detail, url=pipeline.url)
    action = "Run bump again."
    if pipeline.status == "failed":
        action = f"{notebooks.GOLDEN_VALUES}, then {notebooks.BROKEN_TESTS}"
    return Requirement(_GITLAB, False, detail, action, url=pipeline.url)


def _gitlab_unseen(bump: Bump, detail: str, action: str, url: str = "") -> Requirement:
    """Return the requirement for a pipeline whose tests nobody saw: missing, unless a person does without it."""
    if _UNSEEN in bump.allow:
        return Requirement(_GITLAB, None, f"{detail} allow={_UNSEEN} permits that.", url=url)
    return Requirement(_GITLAB, False, detail, f"{action}, or do without it: allow={_UNSEEN}.", url=url)


def _check_pushed(state: PullRequestState, pull: Pull) -> Requirement:
    branch = state.branch
    pushed = branch.start == pull.head_sha
    detail = f"{branch.start[:10]} here, {pull.head_sha[:10]} on #{pull.number}."
    action = f"{notebooks.GOLDEN_VALUES} or {notebooks.BROKEN_TESTS} push it."
    if not is_mine(pull, state.head_name):
        ref = f"refs/pull/{pull.number}/head:{branch.bump.branch}"
        action = f"Fetch it, so that its values are compared: git fetch {branch.base_remote} {ref}"
    return Requirement(_PUSHED, pushed, detail, "" if pushed else action)


def _left_to_people(state: PullRequestState, pull: Pull) -> Iterator[str]:
    repository = state.bump.repository
    if pull.draft:
        yield f"Press “Ready for review” on {pull.url}."
    yield "Get the code owners' reviews."
    if not repository.ci.workflow:
        yield f"{ci_triggers.describe(state.branch)} Read the checks of {pull.url}, which are not followed here."
    yield from lts_validation.describe(state.branch)
    yield from (sentence for label, sentence in repository.ci.offers.items() if label not in pull.labels)
    merge = "Add it to the merge queue" if repository.ci.workflow else "Merge it"
    yield f"{merge}; then run {notebooks.AFTER_MERGE}."


def finish(
    step: StepRecord, results: tuple[StepResult, ...], readiness: Readiness, *, wait: bool = False, hold: str = ""
) -> View:
    """Record the outcome of a complete bump: ready to merge, or everything that is missing.

    The plan of a preview that would ``wait`` for CI ends with the actions after CI, and with those on ``hold``.
    """
    continues = wait and not step.bump.apply and any(each.planned or each.state == "waiting" for each in results)
    actions = list(push_round.actions_after_ci(step.bump, ROUNDS)) if continues else []
    if not step.bump.apply:
        held = [f"end with “do not merge”: {name}: {reason}" for name, reason in holds(hold).items()]
        actions += [{"sentence": sentence, "publish": False} for sentence in held]
    if readiness.requirements:  # the steps may have linked runs of earlier commits
        results = tuple(_without_links(result, _LINKS.values()) for result in results)
    conclude(step, results, actions)
    for each in readiness.requirements:
        step.link(_LINKS.get(each.name, ""), each.url)
    if readiness.problem or not all(result.ok for result in results):
        return display.note(readiness.problem or "A step failed, so the bump is not ready.")
    for each in readiness.requirements:
        step.check(Check(f"{BEFORE_MERGE}{each.name}", "passed" if each.ok else "skipped", each.detail))
    step.table(
        "before the merge", display.rows(readiness.requirements, name="name", ok="ok", found="detail", next="next")
    )
    if all(result.state == "previewed" for result in results):
        return readiness.show()  # the outcome stays the run's plan
    if readiness.missing:
        sentence, action = _not_ready(step.bump, readiness.missing, results)
        if action in [each.next for each in readiness.missing if each.running]:
            action = command_line.command(step.name, step.bump, wait=True)
        step.waiting(sentence, action)
    else:
        if readiness.follows_ci:
            step.add_inputs(ready_commit=readiness.commit)
        limit = "" if readiness.follows_ci else ", except for CI, which is not followed here"
        if unseen := readiness.unseen(step.bump):
            step.allowed(_UNSEEN, unseen.detail)
            limit += f", except for {_GITLAB}, which nobody has seen"
        step.done(f"Ready to merge{limit}: every requirement was checked and is met.", " ".join(readiness.people))
    return readiness.show()


def _without_links(result: StepResult, names: Collection[str]) -> StepResult:
    return replace(result, links={name: url for name, url in result.links.items() if name not in names})


def _not_ready(bump: Bump, missing: Sequence[Requirement], results: Sequence[StepResult]) -> tuple[str, str]:
    """Return a sentence about the missing requirements, and the next action."""
    if held := [each.detail for each in missing if each.name == NO_HOLD]:
        return f"{'; '.join(held)[0].lower()}{'; '.join(held)[1:]}", missing[0].next
    names = ", ".join(each.name for each in missing)
    if len(missing) == 1:  # there is room for the details of a single one; otherwise the table has them
        names += f" ({missing[0].detail.rstrip('.')})"
    sentence = f"not ready to merge; missing: {names}"
    last = {result.notebook: result for result in results if result.notebook in notebooks.CI_ROUND}
    count = sum(len(cards.from_decisions(result.decisions, cards.BUMP_PARAMETERS)) for result in last.values())
    if count:
        return sentence, f"Make {display.count(count, 'decision')}: {command_line.review(bump)}"
    actions = [result.next for result in last.values() if result.state == "waiting" and result.next]
    # Later steps resolve what CI is waiting for.
    return sentence, " ".join(dict.fromkeys(actions[1:] or actions)) or missing[0].next
