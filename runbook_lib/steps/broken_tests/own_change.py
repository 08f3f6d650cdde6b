"""Notebook 06-broken-tests without a tag: re-enable tests and file issues in a separate pull request."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from runbook_lib import display
from runbook_lib.checks import Check
from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.github.errors import NotAllowed
from runbook_lib.clients.github.models import Issue
from runbook_lib.pins.repositories import FUNCTIONAL
from runbook_lib.recipes import quarantine
from runbook_lib.recipes.targets import Target
from runbook_lib.records.step_record import StepRecord
from runbook_lib.steps.broken_tests import issue as tracking
from runbook_lib.steps.broken_tests.survey import QuarantineSurvey
from runbook_lib.text import edits
from runbook_lib.text.markdown import code, prose, unlinked
from runbook_lib.workflow import branch_history, bump_branch, bump_pull, pull_request
from runbook_lib.workflow.quarantines import check_reenabled, commit_message, recipe_texts


@dataclass(frozen=True)
class SurveyOutcome:
    """The state after the change: issues by test, the commit, and the pull request's URL."""

    survey: QuarantineSurvey
    issues: Mapping[Target, Issue] = field(default_factory=dict)
    commit: str = ""
    url: str = ""


def carry_out(step: StepRecord, survey: QuarantineSurvey) -> SurveyOutcome:
    """Offer the decisions; without a tag, file issues, commit on a separate branch, push it and open a pull request.

    Raises Refused if git or the remote refuses.
    """
    for parameter, test, why, suggestion in survey.decisions():
        step.decide(parameter, test, why, suggestion)
    step.table("quarantined", [test.row for test in survey.tests])
    bump = survey.bump
    if bump.tag is not None or not bump.apply or not (survey.reenabled or survey.untracked):
        return SurveyOutcome(survey)
    branch = bump_branch.find(survey.branch.checkout, bump)
    branch.checkout.identity()
    issues = _file_issues(step, survey) if bump.publish else {}
    if survey.untracked and not bump.publish:
        step.report("Skipped without publish: filing issues and naming them in the rows.")
    edited = survey.edits(branch, {target: issue.number for target, issue in issues.items()})
    commit = branch.tip or ""
    if edited:
        step.diff(edits.diff(edited))
        commit = branch_history.make(
            step, branch, edited, commit_message(bump.title, issues, survey.reenabled), "quarantine"
        )
    url = ""
    if not commit:
        step.report("No row changes.")
    elif bump.publish and survey.github is not None:
        url = _publish(step, survey, survey.github, commit, issues)
    return SurveyOutcome(survey, issues, commit, url)


def _file_issues(step: StepRecord, survey: QuarantineSurvey) -> dict[Target, Issue]:
    github, issues = survey.github, {}
    assert github is not None  # publishing needs a token
    for target in survey.untracked:
        issue = tracking.open_issue(github, target)
        if issue is None:
            test = next(test for test in survey.tests if target.is_of(test.entry.row))
            title = unlinked(f"Quarantined in CI: {target}")
            body = tracking.body_of_quarantined(target, test.entry.row, test.age)
            issue = tracking.file(step, github, target, title, body, survey.bump.base)
        step.report(f"#{issue.number} tracks {target}.")
        issues[target] = issue
    return issues


def _publish(
    step: StepRecord, survey: QuarantineSurvey, github: GitHub, commit: str, issues: Mapping[Target, Issue],
) -> str:  # fmt: skip
    """Push the reviewed branch, open its draft pull request, and return the URL."""
    bump, checkout = survey.bump, survey.branch.checkout
    remote_tip = checkout.remote_tip(bump.remote, bump.branch)
    if remote_tip != commit:
        review = branch_history.review(bump_branch.find(checkout, bump), commit, step.records)
        review.record(step)
        branch_history.push(step, review, remote_tip)
    text = ["### Quarantined tests", ""]
    text += [f"- {code(str(target))} is re-enabled: {prose(target.reason)}" for target in survey.reenabled]
    text += [f"- {code(str(target))} is tracked by #{issue.number}" for target, issue in issues.items()]
    pull = pull_request.open_draft(step, github, bump, bump_pull.head_of(checkout, bump), "\n".join([*text, ""]))
    step.link("pull request", pull.url)
    if survey.reenabled and FUNCTIONAL not in pull.labels:
        try:
            github.add_label(pull.number, FUNCTIONAL)
            step.effect("label", f"#{pull.number} {FUNCTIONAL}", False, True, url=pull.url)
        except NotAllowed as error:
            step.warn(f"Ask a maintainer to set the label {FUNCTIONAL!r} on {pull.url}. {error}")
    return pull.url


def verify(step: StepRecord, outcome: SurveyOutcome) -> display.View:
    """Read the branch again; without a tag record the checks and the outcome."""
    survey, bump = outcome.survey, outcome.survey.bump
    step.warn(*survey.notes)
    if bump.tag is not None:
        return display.note(f"{display.count(len(survey.tests), 'row')} quarantined on {bump.base}.")
    untracked = sum(test.entry.issue is None for test in survey.tests)
    state = f"{display.count(len(survey.tests), 'quarantined row')} on {bump.base}, {untracked} without an issue"
    if not (survey.reenabled or survey.untracked):
        step.done(f"No tag was given: {state}.", '-r reenable "case@platform: reason", or -r broken to file an issue.')
        return display.note(f"{state}.")
    counts = []
    if survey.reenabled:
        counts.append(f"{display.count(len(survey.reenabled), 'test')} re-enabled")
    if survey.untracked:
        counts.append(f"{display.count(len(survey.untracked), 'quarantined test')} tracked by an issue")
    changes = ", ".join(counts)
    if not bump.apply:
        if survey.untracked:
            step.would(f"file {display.count(len(survey.untracked), 'issue')}, or use open ones", publish=True)
        step.would(f"commit the rows on branch {bump.branch}")
        step.would(f"push {bump.branch} and open a draft pull request", publish=True)
        step.done(f"Preview: {changes}; {state}.", "Run again with -p apply True -p publish True.")
        return display.note("The record below lists what would be done.")
    step.check(*_checks(bump_branch.find(survey.branch.checkout, bump), outcome))
    step.done(f"{changes}: {outcome.url or outcome.commit[:10] or 'no row changes'}.", outcome.url)
    return display.note("The record below lists the checks.")


def _checks(branch: bump_branch.BumpBranch, outcome: SurveyOutcome) -> list[Check]:
    survey, issues, name = outcome.survey, outcome.issues, "every named row has its issue"
    checks = []
    if survey.reenabled:
        checks.append(check_reenabled(branch, survey.reenabled))
    if issues:
        texts = recipe_texts(branch, [quarantine.BROKEN])
        tracked = set()
        for entry in quarantine.quarantined_rows(texts, branch.checkout.repository())[0]:
            tracked |= {test for test, issue in issues.items() if test.is_of(entry.row) and entry.issue == issue.number}
        checks.append(Check.of(name, tracked == set(issues), ", ".join(sorted(map(str, tracked)))))
    elif survey.untracked:
        checks.append(Check(name, "skipped", "Issues are filed only with publish."))
    return checks
