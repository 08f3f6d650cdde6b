"""Step 4: let CI test the head commit, once and with the right labels, and follow its run."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from runbook_lib import display
from runbook_lib.bump import Bump
from runbook_lib.checks import Check
from runbook_lib.clients.github.ci_status import Progress, branch_of, choose, judge, labels_at, wrong_tests
from runbook_lib.clients.github.client import GitHub, once
from runbook_lib.clients.github.copy_pr_bot import command, commands, complaint, refusals
from runbook_lib.clients.github.models import Comment, Labelling, Pull, Run
from runbook_lib.display import View
from runbook_lib.errors import RunbookError, Unreachable
from runbook_lib.git.checkout import Checkout
from runbook_lib.records.step_record import Step
from runbook_lib.steps.preflight import finished
from runbook_lib.steps.pull_request.publish import asked, settled
from runbook_lib.transport import polling
from runbook_lib.workflow import branch, branch_history
from runbook_lib.workflow.branch import Position
from runbook_lib.workflow.branch_history import Review
from runbook_lib.workflow.proposal import find_pull, head_of, is_mine

#: So many commits whose deployment was refused are enough: then a person must look.
_MAX_REFUSED = 3
_AGAIN = "chore: Trigger CI again"
_AFRESH = "Run 04-run-ci again."
#: Seconds until a run that did not start is given up.
_NO_RUN = 15 * 60


@dataclass(frozen=True)
class Standing:
    """What GitHub says of the bump's pull request and its CI.  ``problem`` is why GitHub could not be asked."""

    stand: Position
    github: GitHub | None
    head_name: str
    pull: Pull | None = None
    comments: tuple[Comment, ...] = ()
    labellings: tuple[Labelling, ...] = ()
    behind: int = 0
    #: The login whose token this is.
    me: str = ""
    #: The bump's folder in the archive, and the review of the commits that the head has beyond the base.
    records: Path | None = None
    review: Review | None = None
    #: Whether the head commit could not be deployed to where CI runs.
    refused: bool = False
    problem: str = ""
    #: Set by ``authorize`` when CI cannot be let go on: what is waited for, and what to do.
    held: str = ""
    next: str = ""

    @property
    def authorized(self) -> tuple[Comment, ...]:
        """The comments that authorize CI for the head commit: our own, and those of people who may write them."""
        return commands(self.comments, self.pull.head_sha, self.me) if self.pull else ()

    def show(self) -> View:
        """The pull request, and what would be written."""
        if self.pull is None:
            return display.note(self.problem or f"No pull request is open for {self.stand.bump.branch}.")
        by = ", ".join(f"{it.author} at {it.created:%Y-%m-%d %H:%M} UTC" for it in self.authorized)
        rows = {
            "pull request": f"#{self.pull.number} {self.pull.url}",
            "head": self.pull.head_sha,
            "merge commit (what CI tests)": self.pull.merge_commit or "not known yet",
            "base": f"{self.pull.base_ref}, {self.behind} commits ahead of the head",
            "labels": ", ".join(sorted(self.pull.labels)) or "none",
            "authorized": by or f"not yet: the comment will be {command(self.pull.head_sha)!r}",
        }
        shown = display.table({"what": name, "value": value} for name, value in rows.items())
        return shown + self.review.show() if self.review and self.review.foreign else shown


def look(stand: Position, github: GitHub | None, head: str | None = None, *, records: Path | None = None) -> Standing:
    """Find the bump's pull request, with what was said and labelled there.  Changes nothing.

    ``head`` is a commit that was just pushed, and that GitHub is waited for to notice.  ``records`` is the bump's
    folder in the archive: with it the commits are reviewed.

    A run that publishes nothing goes on without GitHub, where that cannot be asked.
    """
    bump = stand.bump
    if bump.tag is None or github is None:
        problem = "No tag was given." if bump.tag is None else "Without a token GitHub cannot be asked."
        return Standing(stand, github, "", problem=problem)
    unread = Standing(stand, github, head_of(stand.checkout, bump), records=records)
    try:
        found = find_pull(github, bump, unread.head_name)
        standing = _read(unread, github, found.number, head) if found else unread
    except RunbookError as error:
        if bump.publish:
            raise
        return replace(unread, problem=str(error))
    return replace(standing, review=_reviewed(standing, records)) if records else standing


def _reviewed(standing: Standing, records: Path | None) -> Review | None:
    """The review of the head's commits; None where they are somebody else's, or not in this clone."""
    stand, pull = standing.stand, standing.pull
    if pull is None or not is_mine(pull, standing.head_name):
        return None
    if not stand.checkout.has(pull.head_sha):
        try:  # pushed since the branch was looked at
            stand.checkout.fetch(stand.bump.remote, stand.bump.branch)
        except Unreachable:
            return None
    return branch_history.review(stand, pull.head_sha, records) if stand.checkout.has(pull.head_sha) else None


def _read(standing: Standing, github: GitHub, number: int, head: str | None = None) -> Standing:
    pull = settled(github, number, head)
    behind = github.compare(pull.base_ref, pull.head_sha).behind
    comments, labellings = github.comments(number), github.labellings(number)
    me = standing.me or github.me().login
    refused = bool(refusals(comments, pull.head_sha)) or github.deployment_failed(pull.head_sha)
    return replace(standing, pull=pull, comments=comments, labellings=labellings, behind=behind, me=me, refused=refused)


def authorize(step: Step, standing: Standing) -> Standing:
    """Let CI test the head commit: with one comment a commit, and only while the labels are right.

    Only commits that the runbook made are let go, and those that a person has confirmed (``branch_history``).
    Where the deployment of the commit was refused, an empty commit takes its place.  What keeps CI from being let go
    on is in ``held`` of the result.
    """
    bump, github, pull = standing.stand.bump, standing.github, standing.pull
    if bump.tag and (why := bump.repository.idle("04-run-ci")):
        return replace(standing, problem=why)
    if pull is None or github is None:
        if github is not None and finished(standing.stand):
            done = f"{bump.base} already names {bump.tag}: there is no CI to run."
            return replace(standing, problem=done)
        why = standing.problem or f"no pull request is open for {bump.branch}"
        return replace(standing, held=f"waiting for the pull request: {why}", next="03-open-pr, with publish")
    step.link("pull request", pull.url)
    step.given(
        pull_request=pull.number, head_commit=pull.head_sha, merge_commit=pull.merge_commit,
        base_commit=standing.stand.base_commit,
    )  # fmt: skip
    if standing.behind:
        step.warn(
            f"{pull.base_ref} has moved: it has {standing.behind} commits that #{pull.number} lacks. CI tests the "
            "merge of both as of the moment it starts; allow=merge-base merges them into the branch and plans again."
        )
    standing = replace(standing, review=_reviewed(standing, step.records))
    if standing.review:
        standing.review.record(step)
    if held := _held(standing, pull, github):
        return replace(standing, held=held[0], next=held[1])
    if standing.refused:
        standing = _another_commit(step, standing, pull, github)
        if standing.held or standing.pull is None:
            return standing
        pull = standing.pull
    elif standing.authorized or _own_run(pull, github, bump):
        return standing
    return _comment(step, standing, pull, github)


def _held(standing: Standing, pull: Pull, github: GitHub) -> tuple[str, str] | None:
    """Why CI must not be let go, and what to do."""
    bump, checkout = standing.stand.bump, standing.stand.checkout
    on, off = bump.labels
    if ask := asked(pull, sorted(on - pull.labels), sorted(off & pull.labels), github.repository):
        return f"waiting for the labels of #{pull.number}: CI must not start without them", ask
    if pull.mergeable is False:
        fix = f"Run again with allow=merge-base, or merge {pull.base_ref} into {pull.head_ref} by hand."
        return f"waiting for a person: #{pull.number} conflicts with {pull.base_ref}", fix
    tip = checkout.branch_tip(bump.branch) if is_mine(pull, standing.head_name) else None
    if tip and not _is_in(checkout, tip, pull.head_sha) and not branch.answers(checkout, bump, pull.head_sha, tip):
        return (
            f"waiting for a push: {bump.branch} is at {tip[:10]} here, #{pull.number} at {pull.head_sha[:10]}",
            "03-open-pr",
        )
    let_go = not standing.refused and (standing.authorized or _own_run(pull, github, bump))
    if not let_go and not is_mine(pull, standing.head_name):
        # The gate keeps code that nobody has read off the runners: only a person opens it for somebody else's commits.
        return (
            f"waiting for a person: the commits of #{pull.number} are {pull.author}'s, and CI must be let go by hand",
            f'Read every line of {pull.url}/files, then comment "{command(pull.head_sha)}" there.',
        )
    if not let_go and (standing.review is None or standing.review.head != pull.head_sha):
        why = f"{pull.head_sha[:10]} of #{pull.number} cannot be fetched, and so not be reviewed"
        return f"waiting for git: {why}", _AFRESH
    if not let_go and standing.review and standing.review.foreign:
        return standing.review.held, standing.review.next
    if not bump.publish and not let_go:
        return f"waiting for publish: only then {command(pull.head_sha)!r} is written on #{pull.number}", "publish=True"
    return None


def _is_in(checkout: Checkout, tip: str, head: str) -> bool:
    return tip == head or (checkout.has(head) and checkout.is_ancestor(tip, head))


def _own_run(pull: Pull, github: GitHub, bump: Bump) -> Run | None:
    """A run that copy-pr-bot let start by itself, as for a trusted author."""
    return choose(github.runs(branch_of(pull.number), pull.head_sha), pull.head_sha, bump.repository.workflow)


def _another_commit(step: Step, standing: Standing, pull: Pull, github: GitHub) -> Standing:
    """The deployment belongs to the commit, so the way on is another one."""
    stand, bump, checkout = standing.stand, standing.stand.bump, standing.stand.checkout
    assert standing.review is not None
    trees = [commit.tree for commit in standing.review.commits]
    refused = sum(tree == before for before, tree in pairwise(trees)) + 1
    if refused >= _MAX_REFUSED:
        return replace(
            standing, held=f"waiting for a maintainer: {refused} commits of #{pull.number} could not be deployed",
            next=f"Ask a maintainer what keeps it from deploying: {pull.url}",
        )  # fmt: skip
    branch.enter(stand)
    commit = checkout.empty_commit(_AGAIN)
    step.effect("commit", bump.branch, pull.head_sha, commit)
    reviewed = branch_history.review(stand, commit, step.records)
    reviewed.record(step)
    if reviewed.foreign:
        return replace(standing, review=reviewed, held=reviewed.held, next=reviewed.next)
    branch_history.push(step, reviewed, pull.head_sha)
    step.given(head_commit=commit)
    found = _read(replace(standing, review=reviewed), github, pull.number, commit)
    if found.pull is None or found.pull.head_sha != commit:
        return replace(found, held=f"waiting for GitHub to notice the push of {commit[:10]}", next=_AFRESH)
    return found


def _comment(step: Step, standing: Standing, pull: Pull, github: GitHub) -> Standing:
    text = command(pull.head_sha)
    written = once(
        lambda: next(iter(commands(github.comments(pull.number), pull.head_sha, standing.me)), None),
        lambda: github.comment(pull.number, text),
        github.remove_comment,
    )
    if written not in standing.comments:
        step.effect("comment", f"#{pull.number}", None, text, url=written.url)
    return replace(standing, comments=github.comments(pull.number))


def follow(
    step: Step,
    standing: Standing,
    *,
    wait: bool = False,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    say: Callable[[str], object] = print,
) -> Progress | None:
    """The run of the head commit as it is now; with ``wait`` until it has ended, saying each change of its state.

    A preview never waits: it shows what is.
    None where there is nothing to follow.  Raises Unreachable when GitHub stays away for long.
    """
    wait = wait and standing.stand.bump.apply
    idle = standing.stand.bump.repository.idle("04-run-ci")
    if idle or standing.held or standing.pull is None or standing.github is None:
        return None
    pull, github = standing.pull, standing.github

    def seen(now: Progress) -> polling.Seen:
        return polling.Seen(now.sentence, now.ended, now.mark, _NO_RUN if now.state == "none" else polling.LIMIT)

    found = polling.follow(
        lambda: progress(standing, pull, github), seen, wait=wait, sleep=sleep, clock=clock, say=say
    )  # fmt: skip
    _account(step, found)
    return found


def progress(standing: Standing, pull: Pull, github: GitHub) -> Progress:
    """Where the run of the head commit stands now."""
    head, bump = pull.head_sha, standing.stand.bump
    run = choose(github.runs(branch_of(pull.number), head), head, bump.repository.workflow)
    jobs = github.jobs(run.id) if run else ()
    then = labels_at(pull.labels, standing.labellings, run.created) if run else pull.labels
    found = judge(run, jobs, head, wrong_tests(then, bump.image_type, bump.repository) if run else "")
    if run and found.state == "failed" and not bump.repository.golden:
        found = replace(found, next=f"Look at its failed jobs: {run.url}")
    if found.state in ("passed", "useless"):
        return found
    comments = github.comments(pull.number)
    if refusals(comments, head) or (found.state in ("none", "failed") and github.deployment_failed(head)):
        return replace(
            found, state="refused", sentence=f"waiting for another commit: copy-pr-bot could not deploy {head[:10]}",
            next="Run 04-run-ci again: it pushes an empty commit and lets CI test that.",
        )  # fmt: skip
    if run is None and (code := complaint(comments, head, standing.me)):
        return replace(
            found, state="refused", sentence=f"waiting for a maintainer: copy-pr-bot did not take the command ({code})",
            next=f'Ask a maintainer of {github.repository} to comment "{command(head)}" on {pull.url} (again).',
        )  # fmt: skip
    if run is None and (now := github.pull(pull.number)).head_sha != head:
        return replace(
            found, state="superseded", sentence=f"waiting: #{now.number} has a newer head, {now.head_sha[:10]}",
            next="Run bump again for that commit.",
        )  # fmt: skip
    if run is None and not commands(comments, head, standing.me):
        return replace(
            found, sentence=f"waiting for a comment: none lets CI test {head[:10]} yet",
            next="Run 04-run-ci, with publish: it writes that comment.",
        )  # fmt: skip
    return found


def _account(step: Step, found: Progress) -> None:
    """What the record keeps of the run."""
    if found.run is None:
        return
    step.given(run_id=found.run.id, run_attempt=found.run.attempt, run_state=found.state)
    step.link("CI run", found.run.url)
    names = ("name", "status", "conclusion", "started", "completed", "url")
    step.table("jobs", [{name: getattr(job, name) for name in names} for job in found.jobs])


def show(standing: Standing, found: Progress | None) -> View:
    """Where CI stands, and each job that failed."""
    reviewed = standing.review.show() if standing.review and standing.review.foreign else display.View("", "")
    if found is None:
        return display.note(standing.held or standing.problem) + reviewed
    rows = [{"job": job.name, "ended": job.conclusion, "url": job.url} for job in found.bad_jobs]
    shown = display.note(f"{found.sentence[:1].upper()}{found.sentence[1:]}") + display.note(found.counts())
    return (shown + display.table(rows) if rows else shown) + reviewed


def verify(step: Step, standing: Standing, found: Progress | None) -> View:
    """Read the pull request again, and tell the record where CI stands."""
    bump = standing.stand.bump
    step.check(*_checks(standing, found))
    if (
        bump.repository.golden
        and found
        and found.run
        and found.ended
        and not any("gb200" in job.name.lower() for job in found.jobs)
    ):
        step.warn(
            f"No GB200 job ran in CI run {found.run.id}: they run for maintainers only, and when the repository lets "
            "them. Their absence is no success: 05-golden-values says which golden files were not covered."
        )
    if bump.tag is None:
        step.done("No tag was given, so there is no CI to run.")
    elif why := bump.repository.idle("04-run-ci"):
        step.done(why)
    elif standing.held and not bump.apply:
        if not standing.authorized and not standing.problem:
            commit = standing.pull.head_sha[:10] if standing.pull else "the commit"
            step.would(f"let CI test {commit}, by one comment on the pull request", publish=True)
        step.done(f"Preview: {standing.held}.", standing.next)
    elif standing.held:
        step.waiting(standing.held, standing.next)
    elif found is None or found.state == "passed":
        step.done(found.sentence if found else standing.problem, "07-sync-check; then a person: reviews, merge queue.")
    else:
        step.waiting(found.sentence, found.next)
    return display.note("The checks are in the record below.")


def _checks(standing: Standing, found: Progress | None) -> list[Check]:
    authorized, same, passed = "CI may test the head commit", "the run is of the head commit", "CI passed"
    github, pull = standing.github, standing.pull
    if found is None or github is None or pull is None:
        why = standing.held or standing.problem or "There is nothing to follow."
        return [Check(name, "skipped", why) for name in (authorized, same, passed)]
    now = github.pull(pull.number)
    checks = [_authorization(authorized, github.comments(pull.number), standing, found)]
    if found.run is None:
        return [*checks, *(Check(name, "skipped", found.sentence) for name in (same, passed))]
    heads = f"{found.run.head_sha[:10]} on {found.run.head_branch}; #{now.number} is at {now.head_sha[:10]}."
    checks.append(Check.of(same, found.run.head_sha == now.head_sha, heads))
    # A red run is for a person to judge: the bump waits, and does not fail.
    return [*checks, Check(passed, "passed" if found.state == "passed" else "waiting", found.sentence)]


def _authorization(name: str, comments: Sequence[Comment], standing: Standing, found: Progress) -> Check:
    """Whether CI may test the head commit: proved by a run, or by the command of somebody who may write it."""
    by = [f"{it.author} ({it.url})" for it in commands(comments, found.head)]
    own = [it.url for it in commands(comments, found.head, standing.me)]
    if by:
        return Check(name, "passed", f"By {', '.join(by)}.")
    if found.run:
        return Check(name, "passed", f"By copy-pr-bot itself: {found.run.url}")
    if own:
        told = f"{standing.me} wrote the command ({own[0]}), and is no member of the repository: a maintainer must."
        return Check(name, "waiting", told)
    return Check(name, "failed", "Nobody has.")
