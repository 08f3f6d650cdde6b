"""Step 3: the branch, its commit, and the labelled draft pull request.  What is there already is found and kept."""

from dataclasses import dataclass

from runbook_lib import display, notebooks
from runbook_lib.checks import Check
from runbook_lib.clients.github.client import GitHub, once
from runbook_lib.clients.github.errors import NotAllowed
from runbook_lib.clients.github.models import Pull
from runbook_lib.display import View
from runbook_lib.errors import CannotTell
from runbook_lib.git.command import GitFailed
from runbook_lib.records.step_record import StepRecord
from runbook_lib.workflow import branch_history, bump_branch
from runbook_lib.workflow.branch_history import Review
from runbook_lib.workflow.bump_plan import plan_commit
from runbook_lib.workflow.proposal import Proposal, is_mine, propose
from runbook_lib.workflow.pull_request import label_request, wait_for_head
from runbook_lib.workflow.pull_request_body import compose_body, named_in

_PUBLISH = "Run again with -p apply True -p publish True."


@dataclass(frozen=True)
class Made:
    """What is there after step 3; ``ask`` is what to ask a maintainer for, where this token may not label.

    ``proposal`` is the one that was carried out: after a merge of the base it is not the one that was shown.
    """

    proposal: Proposal
    commit: str | None = None
    pull: Pull | None = None
    ask: str = ""
    told: tuple[str, ...] = ()
    #: Of the branch's commits; None where there is no commit of ours.
    review: Review | None = None

    @property
    def view(self) -> View:
        """What was done, line by line, and each commit that a person has to confirm."""
        told = display.notes(self.told)
        return told + self.review.show() if self.review and self.review.foreign else told


def carry_out(step: StepRecord, proposal: Proposal) -> Made:
    """With ``apply`` make the branch and the commit; with ``publish`` push them, and open or renew the pull request.

    Raises Refused where git or the remote refuses, and RunbookError for what GitHub does not do.
    """
    if proposal.nothing_to_do:
        return Made(proposal, told=(proposal.nothing_to_do,))
    if not proposal.bump.apply:
        reviewed = _previewed(step, proposal)
        return Made(proposal, told=("This is a preview: nothing was changed.",), review=reviewed)
    proposal.planned.require()
    told: list[str] = []
    commit = _commit(step, proposal, told) if proposal.mine else None
    if commit is not None and proposal.merges:
        proposal = _merge(step, proposal, commit, told)
        commit = _commit(step, proposal, told)
    reviewed = branch_history.review(proposal.branch, commit, step.records) if commit else None
    if reviewed:
        reviewed.record(step)
    if not proposal.bump.publish or proposal.github is None:
        step.add_inputs(head_commit=commit, base_commit=proposal.branch.base_commit)
        told.append("Skipped without publish: push, pull request, labels.")
        return Made(proposal, commit, proposal.pull, told=tuple(told), review=reviewed)
    if reviewed is not None:
        commit = _push(step, proposal, reviewed, told)
        if commit is None:
            return Made(proposal, reviewed.head, proposal.pull, told=tuple(told), review=reviewed)
    pull = _pull(step, proposal, proposal.github, told)
    ask = set_labels(step, proposal.github, pull, proposal, told)
    pull = wait_for_head(proposal.github, pull.number, commit)
    step.link("pull request", pull.url)
    step.add_inputs(
        pull_request=pull.number, head_commit=pull.head_sha, base_commit=proposal.branch.base_commit,
        merge_commit=pull.merge_commit,
    )  # fmt: skip
    return Made(proposal, commit, pull, ask, tuple(told), reviewed)


def _previewed(step: StepRecord, proposal: Proposal) -> Review | None:
    """The review of what the branch holds already, so that a person can confirm it before anything is applied."""
    if not proposal.own_commits or not proposal.mine:
        return None
    reviewed = branch_history.review(proposal.branch, proposal.branch.start, step.records)
    reviewed.record(step)
    return reviewed


def _commit(step: StepRecord, proposal: Proposal, told: list[str]) -> str:
    """The branch's commit with the whole bump, made now or found."""
    branch, bump = proposal.branch, proposal.bump
    commit = branch.start
    if proposal.remaining.edits:
        commit = branch_history.make(step, branch, proposal.remaining.edits, proposal.message)
        told.append(f"Committed {commit[:10]} on {bump.branch}.")
    else:
        told.append(f"Found: {bump.branch} at {commit[:10]} holds the whole bump.")
        if bump_branch.fast_forward(branch):
            step.effect("merge", bump.branch, None, commit)
            told.append(f"Took {bump.branch} on to it here.")
    return commit


def _merge(step: StepRecord, proposal: Proposal, commit: str, told: list[str]) -> Proposal:
    """Merge the base into the branch and plan again: the base may have brought further pins."""
    branch, bump, checkout = proposal.branch, proposal.bump, proposal.branch.checkout
    bump_branch.switch_to(branch)
    merged = checkout.merge(branch.base_commit, f"Merge branch '{bump.base}' into {bump.branch}")
    step.effect("merge", bump.branch, commit, merged)
    step.allowed("merge-base", f"{bump.base} had moved by {proposal.base_moved_by} commits.")
    told.append(f"Merged {bump.base} at {branch.base_commit[:10]} into {bump.branch}: {merged[:10]}.")
    return propose(bump_branch.find(checkout, bump), proposal.planned, proposal.github)


def _push(step: StepRecord, proposal: Proposal, reviewed: Review, told: list[str]) -> str | None:
    """Push what the remote lacks, and return what it then has; None where a foreign commit keeps it from that."""
    bump, checkout, commit = proposal.bump, proposal.branch.checkout, reviewed.head
    there = checkout.remote_tip(bump.remote, bump.branch)
    if there == commit:
        told.append(f"Found: {bump.remote} has {commit[:10]} already.")
        return commit
    if there and bump_branch.only_ci_answers(checkout, bump, there, commit):
        told.append(f"Found: {bump.remote} has {there[:10]}; the answers to its CI run are pushed when all are given.")
        return there
    if reviewed.foreign:
        told.append(f"Not pushed: {bump.branch} holds a commit that the runbook did not make.")
        return None
    branch_history.push(step, reviewed, there)
    told.append(f"Pushed {bump.branch} to {bump.remote}.")
    return commit


def _pull(step: StepRecord, proposal: Proposal, github: GitHub, told: list[str]) -> Pull:
    """The open pull request, with our part of its text renewed; a new draft where there is none."""
    bump, pull = proposal.bump, proposal.pull
    if pull is None:
        pull = once(
            lambda: next(iter(github.pulls(head=proposal.head, base=bump.base)), None),
            lambda: github.open_pull(bump.title, proposal.head, bump.base, proposal.body, draft=True),
        )
        step.effect("pull request", f"#{pull.number}", None, bump.title, url=pull.url)
        told.append(f"Opened the draft #{pull.number}: {pull.url}")
    else:
        told.append(f"Found: #{pull.number} by {pull.author}: {pull.url}")
    if not proposal.mine and not named_in(pull.body):
        return pull  # somebody else's words
    try:
        body = github.public(compose_body(pull.body, proposal.part))
        if body != pull.body:
            github.update_pull(pull.number, body)
            step.effect("pull request", f"#{pull.number} text", pull.body, body, url=pull.url)
            told.append("Renewed our part of its text.")
    except (CannotTell, NotAllowed) as error:
        step.warn(str(error))
    return pull


def set_labels(step: StepRecord, github: GitHub, pull: Pull, proposal: Proposal, told: list[str]) -> str:
    """Set the labels that choose the tests and take off those that spoil them, and look whether they are so.

    Returns what to ask a maintainer for where this token may not; empty when all is well.
    """
    on, off = proposal.bump.labels
    before = github.labels(pull.number)
    wishes = [(name, True) for name in sorted(on - before)] + [(name, False) for name in sorted(off & before)]
    if not wishes:
        return ""
    refused: list[str] = []
    for name, wanted in wishes:
        try:
            (github.add_label if wanted else github.remove_label)(pull.number, name)
            step.effect("label", f"#{pull.number} {name}", not wanted, wanted, url=pull.url)
            told.append(f"{'Set' if wanted else 'Took off'} the label {name!r}.")
        except NotAllowed as error:  # a contributor; or somebody was quicker
            refused.append(str(error))
    after = github.labels(pull.number)
    ask = label_request(pull, sorted(on - after), sorted(off & after), github.repository)
    if ask:
        step.warn(*refused)
    return ask


def verify(step: StepRecord, made: Made) -> View:
    """Read branch and pull request again, and tell the record what was done or would be."""
    proposal, bump = made.proposal, made.proposal.bump
    step.warn(*proposal.warnings)
    step.table("changes", [vars(change) for change in proposal.plan.changes])
    if proposal.nothing_to_do:
        step.done(proposal.nothing_to_do)
        return display.note("There is nothing to verify.")
    step.check(*_branch_checks(made), *_pull_checks(made))
    number = f"#{made.pull.number}" if made.pull else "the draft pull request"
    if not bump.apply:
        found = f"#{proposal.pull.number} is open" if proposal.pull else "would open a draft pull request"
        _would(step, proposal)
        step.done(f"Preview: {found}, {bump.title!r} into {bump.base}.", "Run again with -p apply True.")
    elif made.review and made.review.foreign:
        step.waiting(made.review.held, made.review.next)
    elif not bump.publish:
        step.waiting("waiting for publish: the branch is pushed and the pull request opened only then", _PUBLISH)
    elif made.ask:
        step.waiting(f"waiting for a maintainer to set the labels of {number}", made.ask)
    else:
        step.done(f"{number} is open with its labels: {made.pull.url if made.pull else ''}", notebooks.RUN_CI)
    return display.note("The checks are in the record below.")


def _would(step: StepRecord, proposal: Proposal) -> None:
    bump, pull = proposal.bump, proposal.pull
    if proposal.merges:
        step.would(f"merge {bump.base} into the branch {bump.branch}")
    if proposal.remaining.edits:
        step.would(f"make one commit of {display.count(len(proposal.remaining.edits), 'file')}: {bump.title!r}")
    if not proposal.mine:
        return
    on, off = bump.labels
    set_, taken = on - (pull.labels if pull else frozenset()), off & (pull.labels if pull else frozenset())
    if pull is None:
        step.would(f"push the branch to {bump.remote} and open a draft pull request into {bump.base}", publish=True)
    elif proposal.remaining.edits or proposal.merges:
        step.would(f"push the branch to {bump.remote}, for #{pull.number}", publish=True)
    if set_ or taken:
        told = [f"set the label {', '.join(sorted(set_))}"] * bool(set_)
        told += [f"take off the label {', '.join(sorted(taken))}"] * bool(taken)
        step.would(" and ".join(told), publish=True)


def _branch_checks(made: Made) -> list[Check]:
    proposal = made.proposal
    holds, own = "the branch holds the whole bump", "every commit is the runbook's own, or confirmed"
    bump = proposal.bump
    if not bump.apply:
        return [Check(name, "skipped", "This is a preview.") for name in (holds, own)]
    commit, reviewed = made.commit, made.review
    if commit is None:
        assert made.pull is not None
        commit = made.pull.head_sha
        try:
            _fetch_theirs(proposal, made.pull)
        except GitFailed as error:
            return [
                Check(name, "skipped", f"#{made.pull.number} could not be fetched. {error}") for name in (holds, own)
            ]
        reviewed = branch_history.review(proposal.branch, commit, None)
    elif reviewed is not None and reviewed.foreign:  # what it has made of the pins is looked at once it is confirmed
        return [Check(name, "waiting", f"{reviewed.held}.") for name in (holds, own)]
    lacking = plan_commit(proposal.branch, commit).changes
    wrong = ", ".join(f"{change.path}:{change.line}" for change in lacking)
    files = ", ".join(edit.path for edit in proposal.plan.edits)
    told = f"{wrong} is not at {bump.tag}." if wrong else f"{commit[:10]}: {files}."
    return [Check.of(holds, not lacking, told), _own_check(own, reviewed)]


def _own_check(name: str, reviewed: Review | None) -> Check:
    assert reviewed is not None
    if reviewed.foreign:  # of somebody else's branch, where a person reads every line
        return Check(name, "skipped", f"{reviewed.held}.")
    told = display.count(len(reviewed.commits), "commit")
    confirmed = f", {len(reviewed.confirmed)} of them confirmed by a person" if reviewed.confirmed else ""
    return Check(name, "passed", f"{told}{confirmed}.")


def _fetch_theirs(proposal: Proposal, pull: Pull) -> None:
    """Bring the head of somebody else's pull request here, moving no ref."""
    branch, refs = proposal.branch, f"refs/pull/{pull.number}/head"
    if not branch.checkout.has(pull.head_sha):
        branch.checkout.git(
            "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--refmap=", branch.base_remote, refs
        )


def _pull_checks(made: Made) -> list[Check]:
    proposal = made.proposal
    is_open, head, labels = "the pull request is open", "its head is the bump's commit", "its labels choose the tests"
    if proposal.github is None or made.pull is None or not proposal.bump.publish:
        why = "This is a preview." if not proposal.bump.apply else "Nothing was published."
        return [Check(name, "skipped", why) for name in (is_open, head, labels)]
    if made.review and made.review.foreign and made.commit != made.pull.head_sha:
        return [Check(name, "waiting", "Nothing was pushed.") for name in (is_open, head, labels)]
    pull = proposal.github.pull(made.pull.number)
    right = pull.state == "open" and pull.base_ref == proposal.bump.base
    state = f"#{pull.number}: {'draft' if pull.draft else 'ready for review'}, {pull.state}, into {pull.base_ref}."
    on, off = proposal.bump.labels
    chosen = on <= pull.labels and not off & pull.labels
    told = f"{', '.join(sorted(pull.labels)) or 'none'}."
    return [
        Check.of(is_open, right, state),
        Check.of(head, made.commit in (None, pull.head_sha), f"{pull.head_sha[:10]}.")
        if is_mine(pull, proposal.head)
        else Check(head, "skipped", f"{pull.head_sha[:10]}, on {pull.head_owner}:{pull.head_ref}."),
        Check(labels, "skipped", f"{told} A maintainer must set them.") if made.ask else Check.of(labels, chosen, told),
    ]
