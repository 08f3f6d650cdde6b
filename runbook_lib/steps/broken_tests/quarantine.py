"""Step 6, second half: issues for the broken tests, their rows out of the way, and the round pushed or run again.

No test is put out of the way without an issue: where that cannot be filed, its row stays.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from runbook_lib import display, notebooks
from runbook_lib.checks import Check
from runbook_lib.clients.github import issues as github_issues
from runbook_lib.clients.github.client import GitHub, once
from runbook_lib.clients.github.models import Issue
from runbook_lib.display import View
from runbook_lib.errors import RunbookError
from runbook_lib.golden.file_names import FOLDER
from runbook_lib.recipes.targets import Target
from runbook_lib.records.step_record import StepRecord
from runbook_lib.steps.broken_tests import decide
from runbook_lib.steps.broken_tests import issue as tracking
from runbook_lib.steps.broken_tests.decide import Decision, Plan
from runbook_lib.text import edits
from runbook_lib.text.markdown import address, code, prose, unlinked
from runbook_lib.workflow import branch_history, bump_branch, push_round, quarantines
from runbook_lib.workflow.bump_branch import BumpBranch
from runbook_lib.workflow.proposal import is_mine
from runbook_lib.workflow.push_round import Sent
from runbook_lib.workflow.quarantines import quarantined_since_fork

#: A flaky test is run again so often; then a person must look.
_ATTEMPTS = 3
#: Failed jobs that the text of a pull request lists; GitHub's limit is 65536 characters.
_SHOWN = 40


@dataclass(frozen=True)
class Done:
    """What was done: the issue of each test, why some were not filed, and what became of the round."""

    plan: Plan
    issues: Mapping[Target, Issue]
    problems: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    flaky: tuple[str, ...] = ()
    sent: Sent = field(default_factory=Sent)
    rerun: bool = False
    told: tuple[str, ...] = ()

    @property
    def view(self) -> View:
        """What was done, line by line."""
        return display.notes((*self.told, *self.sent.told))


def carry_out(step: StepRecord, plan: Plan) -> Done:
    """With ``publish`` file the missing issues, mark the rows in one commit, push the round or run flaky tests again.

    With ``apply`` alone only tests whose issue is there are marked.  Raises Refused where somebody's changes are in the
    way, or a row stands for more than its test.
    """
    state, bump = plan.triage.pull_request, plan.branch.bump
    if plan.triage.asked.source is None:
        return Done(plan, {})
    # Refuses before anything is filed.  A run that was killed may have filed issues, and left their rows uncommitted.
    planned = plan.edits({it.target: it.issue.number if it.issue else 0 for it in plan.decisions})
    if not bump.apply:
        waiting, flaky = decide.open_jobs(plan.triage, {edit.path: edit.after for edit in planned})
        return Done(plan, {}, open=waiting, flaky=flaky, told=("This is a preview: nothing was changed.",))
    if plan.decisions or plan.back:
        push_round.require_own(state)
        # What would stop the commit must stop it before an issue is filed.
        plan.branch.checkout.require_work_tree()
        plan.branch.checkout.identity()
        bump_branch.uncommitted_edits(plan.branch.checkout, planned)
    told: list[str] = []
    issues, problems = _issues(step, plan, told)
    made = plan.edits({target: issue.number for target, issue in issues.items()})
    if made:
        _commit(step, plan, made, issues, told)
    after = {edit.path: edit.after for edit in made}
    waiting, flaky = decide.open_jobs(plan.triage, after)
    sent = Sent() if plan.triage.asked.older else push_round.send(step, state, waiting)
    alone = not waiting and not sent.commit and not sent.held and not plan.triage.asked.older
    rerun = bool(flaky) and alone and _rerun(step, plan, flaky, told)
    done = Done(plan, issues, problems, waiting, flaky, sent, rerun, tuple(told))
    push_round.tell(step, state, text(done), "broken-tests")
    return done


def _issues(step: StepRecord, plan: Plan, told: list[str]) -> tuple[dict[Target, Issue], tuple[str, ...]]:
    """The issue of each test, found or filed now; and why one could not be filed."""
    github, bump = plan.triage.pull_request.github, plan.branch.bump
    found: dict[Target, Issue] = {}
    problems = []
    for it in plan.decisions:
        if it.issue is not None:
            found[it.target] = it.issue
            told.append(f"Found: #{it.issue.number} tracks {it.target}.")
        elif github is None or not bump.publish:
            problems.append(f"{it.target} stays: it has no open issue, and only publish files one.")
        else:
            try:
                issue = _file(github, plan.branch, it)
            except RunbookError as error:
                problems.append(f"{it.target} stays, since its issue could not be filed. {error}")
                continue
            found[it.target] = issue
            step.effect("issue", f"#{issue.number}", None, it.title, url=issue.url)
            told.append(f"Filed #{issue.number} for {it.target}.")
    return found, tuple(problems)


def _file(github: GitHub, branch: BumpBranch, it: Decision) -> Issue:
    folder = f"{FOLDER}/{it.target.model}/{it.target.case}"
    author = github.last_author(folder, branch.bump.base)
    assignee = author if author and github_issues.assignable(github, author) else ""
    mine = github.me().login
    return once(
        lambda: tracking.choose(
            (issue for issue in github_issues.listed(github, mine) if it.test.marker in issue.body), it.test, mine
        ),
        lambda: github_issues.file(github, it.title, it.body, [tracking.LABEL], assignee),
        lambda made: github_issues.withdraw(github, made),
    )


def _commit(
    step: StepRecord, plan: Plan, made: tuple[edits.Edit, ...], issues: Mapping[Target, Issue], told: list[str]
) -> None:
    branch, bump = plan.branch, plan.branch.bump
    lines = [f"- {unlinked(f'{target}: {target.reason}')} (#{issue.number})" for target, issue in issues.items()]
    lines += [f"- {unlinked(f'{target} comes back: {target.reason}')}" for target in plan.back]
    step.diff(edits.diff(made))
    commit = branch_history.make(step, branch, made, "\n".join([bump.quarantine_title, "", *lines]))
    told.append(f"Committed {commit[:10]} on {bump.branch}: {display.count(len(lines), 'test')}.")
    for name in ("whole-row", "unseen-failure"):
        if name in bump.allow:
            step.allowed(name, "; ".join(map(str, issues)) or "It was not needed.")


def _rerun(step: StepRecord, plan: Plan, flaky: tuple[str, ...], told: list[str]) -> bool:
    state, bump = plan.triage.pull_request, plan.branch.bump
    source = plan.triage.asked.source
    if state.github is None or source is None or source.gitlab or not bump.publish:
        return False
    if state.pull is None or not is_mine(state.pull, state.head_name):
        return False
    run = state.github.run(plan.triage.asked.number)
    if run.attempt >= _ATTEMPTS or run.status != "completed":
        return False
    state.github.rerun_failed(run.id)
    step.effect("rerun", f"CI run {run.id}", run.attempt, run.attempt + 1, url=run.url)
    told.append(f"The flaky tests run again ({', '.join(flaky)}).")
    return True


def text(done: Done) -> str:
    """Our part of the pull request: the tests out of the way, and why each job of the newest run failed."""
    branch = done.plan.branch
    branch = bump_branch.find(branch.checkout, branch.bump)
    lines = ["### Broken tests", ""]
    if listed := quarantined_since_fork(branch):
        lines += [
            f"- {code(str(row['test']))} on {code(str(row['platforms']))}: {prose(str(row['reason']))}"
            + (f" (tracked by #{row['issue']})" if row["issue"] else " (no issue)")
            for row in listed
        ]
    else:
        lines += ["No test was put out of the way."]
    if done.plan.triage.seen:
        lines += [
            "",
            f"Failed in the newest run ({address(done.plan.triage.asked.url)}):",
            "",
            "| job | class | cause |",
            "|---|---|---|",
        ]
        lines += [
            f"| {code(it.failure.job)} | {it.failure.kind} | {code(it.failure.cause[:160])} |"
            for it in done.plan.triage.seen[:_SHOWN]
        ]
        lines += [f"\nand {len(done.plan.triage.seen) - _SHOWN} more"] * (len(done.plan.triage.seen) > _SHOWN)
    return "\n".join(lines)


def verify(step: StepRecord, done: Done) -> View:
    """Read the branch and the issues again, and tell the record what was done and what is open."""
    plan, asked = done.plan, done.plan.triage.asked
    branch = plan.branch
    step.warn(*branch.warnings, *plan.triage.warnings, *plan.warnings)
    if asked.source is not None:
        step.add_inputs(run=asked.source.name, base_commit=branch.base_commit, plan_from=branch.start)
        step.link("GitLab pipeline" if asked.source.gitlab else "CI run", asked.url)
        step.table("failures", [it.row for it in plan.triage.seen])
        step.check(*_checks(done))
        numbers = {it.target: it.issue.number if it.issue else 0 for it in plan.decisions}
        step.diff(edits.diff(plan.edits(numbers | {target: issue.number for target, issue in done.issues.items()})))
        for name, cause in decide.proposed(plan).items():
            step.decide("broken", name, cause, cause)
    _conclude(step, done)
    return display.note("The checks are in the record below.")


def _checks(done: Done) -> list[Check]:
    plan, bump = done.plan, done.plan.branch.bump
    tracked, aside = "every broken test has its issue", "the named tests are out of the way"
    if not bump.apply:
        return [Check(name, "skipped", "This is a preview.") for name in (tracked, aside)]
    told = ", ".join(f"{target}: #{issue.number}" for target, issue in done.issues.items()) or "None was named."
    if not bump.publish and done.problems:
        return [Check(tracked, "skipped", " ".join(done.problems)), Check(aside, "skipped", "Nothing was published.")]
    branch = bump_branch.find(plan.branch.checkout, bump)
    now = quarantines.rows_of(branch, [target.case for target in done.issues])
    running = [
        str(target)
        for target in done.issues
        for row in now
        if target.is_of(row) and not quarantines.is_out(row, plan.soft)
    ]
    return [
        Check.of(tracked, not done.problems, " ".join(done.problems) or told),
        Check.of(aside, not running, f"{', '.join(running)} still run." if running else told),
    ]


def _conclude(step: StepRecord, done: Done) -> None:
    plan, asked, bump = done.plan, done.plan.triage.asked, done.plan.branch.bump
    if bump.tag and (why := bump.repository.idle(step.name)):
        step.done(why)
    elif asked.source is None and (bump.tag is None or not bump.apply or not asked.idle.startswith("waiting")):
        step.done(f"Nothing to decide: {asked.idle}.", asked.next)
    elif asked.source is None:
        step.waiting(asked.idle, asked.next)
    elif not bump.apply:
        count = display.count(len(plan.decisions), "test")
        _would(step, done, count)
        step.done(f"Preview: {count} would be marked broken; {_open(done.open)}.", _how(plan, done.open))
    elif done.open:
        names = ", ".join(done.open[:6]) + (" …" if len(done.open) > 6 else "")
        step.waiting(
            f"waiting for a person: {display.count(len(done.open), 'failed job')} to decide ({names})",
            _how(plan, done.open),
        )
    elif done.rerun:
        step.waiting(
            f"waiting for CI run {asked.number}: its flaky tests run again", "Run bump again, or with wait=True."
        )
    elif done.sent.held:
        step.waiting(done.sent.held, done.sent.next)
    elif done.sent.commit:
        count = display.count(len(done.issues), "test")
        step.done(f"Marked {count} broken; {done.sent.commit[:10]} is pushed, and CI may test it.", notebooks.RUN_CI)
    elif done.flaky:
        names = ", ".join(done.flaky)
        step.waiting(f"waiting for a person: infrastructure fails these again and again: {names}", asked.url)
    else:
        step.done("Every failed test of this run is explained or decided.", notebooks.RUN_CI)


def _would(step: StepRecord, done: Done, count: str) -> None:
    plan, branch = done.plan, done.plan.branch.bump.branch
    if plan.decisions:
        step.would(f"file an issue for {count}, or find the open one, and tell there", publish=True)
        step.would(f"mark the rows of {count} in one commit on the branch {branch}")
    if plan.back:
        step.would(f"let {display.count(len(plan.back), 'test')} run again, in one commit on the branch {branch}")
    if plan.decisions or plan.back or push_round.waits(plan.triage.pull_request):
        step.would(push_round.PUSH, publish=True)
    elif done.flaky and not done.open:
        step.would(f"run again: {', '.join(done.flaky)}", publish=True)


def _open(jobs: tuple[str, ...]) -> str:
    return f"{display.count(len(jobs), 'failed job')} {'is' if len(jobs) == 1 else 'are'} open"


def _how(plan: Plan, waiting: tuple[str, ...]) -> str:
    again = any(it.retryable and it.job in waiting for it in plan.triage.unread)
    return ("Run 06-broken-tests again where golden values could not be read. " if again else "") + _decide(plan)


def _decide(plan: Plan) -> str:
    if text := decide.proposal(plan):
        told = "A regression is a person's to judge: look at the evidence."
        return f"If they are broken: -r broken {shlex.quote(text)}. {told}"  # quoted: the causes come from logs
    return "Look at the evidence: mend the cause, accept the values by name in step 5, or name the test as broken."
