"""Conditions on the forge: a pull request with its description, labels and CI, an issue, the jobs of a CI run."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.model import Check, Effect, Evidence, Next
from runbook_lib.text.markdown import compose_body
from runbook_lib.world.github.ci_status import branch_of, choose
from runbook_lib.world.github.copy_pr_bot import command, commands
from runbook_lib.world.github.models import Issue, NotAllowed, Pull
from runbook_lib.world.once import once
from runbook_lib.world.ports import Forge, World

#: Seconds between reads of a pull request that GitHub is still processing.
DELAYS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)


def wait_for_head(github: Forge, number: int, head: str | None, sleep: Callable[[float], None]) -> Pull:
    """Return the pull request once GitHub has noticed the push of ``head`` and computed its merge, or after 16 s."""
    pull = github.pull(number)
    for delay in DELAYS:
        if head in (None, pull.head_sha) and pull.mergeable is not None:
            break
        sleep(delay)
        pull = github.pull(number)
    return pull


@dataclass(frozen=True)
class PullKey:
    """The open pull request from ``head`` (``owner:branch``) into ``base``."""

    head: str
    base: str

    def find(self, github: Forge) -> Pull | None:
        """Return the newest one; None if there is none."""
        return next(iter(github.pulls(head=self.head, base=self.base)), None)

    def require(self, github: Forge) -> Pull:
        """Return it.  Raises CannotTell if there is none."""
        if (pull := self.find(github)) is None:
            raise CannotTell(f"No pull request from {self.head} into {self.base} is open.", "Run again.")
        return pull


def evidence_of(pull: Pull) -> Evidence:
    """Return what the record keeps of a pull request."""
    inputs = {"pull_request": pull.number, "head_commit": pull.head_sha, "merge_commit": pull.merge_commit}
    return Evidence(inputs, {"pull request": pull.url})


@dataclass(frozen=True)
class PullOpen:
    """A pull request is open, as a draft at first; its head is the branch's newest commit on the remote."""

    key: PullKey
    remote: str
    title: str
    body: str
    leaves_machine = True

    @property
    def sentence(self) -> str:
        """The change in the imperative."""
        return f"open a draft pull request from {self.key.head} into {self.key.base}: {self.title!r}"

    def holds(self, world: World) -> Check:
        """Read the pull request; after a push wait some seconds until GitHub has noticed it."""
        name, pull = "the pull request is open", self.key.find(world.forge)
        if pull is None:
            return Check(name, "failed", f"None from {self.key.head} into {self.key.base}.")
        pushed = world.checkout.remote_tip(self.remote, self.key.head.partition(":")[2])
        if world.changes.pushed:
            pull = wait_for_head(world.forge, pull.number, pushed, world.sleep)
        state = "draft" if pull.draft else "ready for review"
        detail = f"#{pull.number}: {state}, into {pull.base_ref}, at {pull.head_sha[:10]}: {pull.url}"
        if pushed == pull.head_sha:
            return Check.of(name, True, detail, evidence=evidence_of(pull))
        waiting = f"waiting for GitHub to notice the push of {(pushed or 'the branch')[:10]}"
        return Check(name, "waiting", waiting, Next.again(), evidence_of(pull))

    def make_true(self, world: World) -> Sequence[Effect]:
        """Open it, unless somebody else is faster."""
        github, key = world.forge, self.key
        pull = once(lambda: key.find(github), lambda: github.open_pull(self.title, key.head, key.base, self.body))
        return [Effect("pull request", f"#{pull.number}", None, self.title, pull.url)]


@dataclass(frozen=True)
class Described:
    """The description has this part, with its markers (``text.markdown``).

    A refusal of a section is a warning: the work that it describes is done, and the next run tries again.
    """

    key: PullKey
    part: str
    section: str = ""
    leaves_machine = True
    sentence = "update our part of the pull request's description"

    def holds(self, world: World) -> Check:
        """Compare the description with the same one with our part replaced; skipped if its markers are damaged."""
        name, pull = "the description is current", self.key.find(world.forge)
        if pull is None:
            return Check(name, "failed", "No pull request is open yet.")
        if self.section in world.changes.refused:
            return Check(name, "skipped", world.changes.refused[self.section])
        try:
            body = self._body(world, pull)
        except CannotTell as error:
            return Check(name, "skipped", str(error))
        return Check.of(name, body == pull.body, f"#{pull.number}.")

    def make_true(self, world: World) -> Sequence[Effect]:
        """Replace our part, and nothing else."""
        pull = self.key.require(world.forge)
        body = self._body(world, pull)
        try:
            world.forge.update_pull(pull.number, body)
        except RunbookError as error:
            if not self.section:
                raise
            world.changes.refused[self.section] = str(error)
            return []
        return [Effect("pull request", f"#{pull.number} text", pull.body, body, pull.url)]

    def text(self, world: World) -> str:
        """Return our part."""
        return self.part

    def _body(self, world: World, pull: Pull) -> str:
        return world.forge.public(compose_body(pull.body, self.text(world), self.section))


@dataclass(frozen=True)
class Labelled:
    """The pull request has the required labels and none of the forbidden ones.

    ``head`` is the reviewed head commit of somebody else's; with another one they are not set.
    """

    key: PullKey
    required: frozenset[str]
    forbidden: frozenset[str] = frozenset()
    head: str = ""
    leaves_machine = True

    @property
    def sentence(self) -> str:
        """The change in the imperative."""
        sentence = f"set the label {', '.join(sorted(self.required))}"
        if self.forbidden:
            sentence += f", without {', '.join(sorted(self.forbidden))}"
        return sentence

    def holds(self, world: World) -> Check:
        """Read the labels.  Waiting if only somebody with more permissions can correct them."""
        name, github, pull = "its labels select the tests", world.forge, self.key.find(world.forge)
        if pull is None:
            return Check(name, "failed", "No pull request is open yet.")
        if self.head not in ("", pull.head_sha):
            return _unreviewed(name, pull)
        labels = ", ".join(sorted(pull.labels)) or "none"
        request = label_request(pull, self.required, self.forbidden, github.repository)
        if not request:
            return Check.of(name, True, f"{labels}.", evidence=evidence_of(pull))
        if github.repo().permissions.isdisjoint({"triage", "push", "maintain", "admin"}):
            sentence = f"waiting for a maintainer to set the labels of #{pull.number}"
            return Check(name, "waiting", sentence, Next.again(request), evidence_of(pull))
        return Check(name, "failed", f"{labels}.")

    def make_true(self, world: World) -> Iterator[Effect]:
        """Set and remove labels.  Raises Refused if the pull request has moved since it was read."""
        pull = self.key.require(world.forge)
        if self.head not in ("", pull.head_sha):
            raise Refused(f"{_unreviewed('', pull).detail}. Nothing was changed.", "Run again.")
        for label in sorted(self.required - pull.labels):
            world.forge.add_label(pull.number, label)
            yield Effect("label", f"#{pull.number} {label}", False, True, pull.url)
        for label in sorted(self.forbidden & pull.labels):
            world.forge.remove_label(pull.number, label)
            yield Effect("label", f"#{pull.number} {label}", True, False, pull.url)


@dataclass(frozen=True)
class Authorized:
    """CI may test the pull request's head commit: ``head``, whose commits were reviewed, or one made in this run.

    ``head`` is empty if the plan has yet to make that commit.

    copy-pr-bot starts a run after the comment ``/ok to test <commit>``, and by itself for a trusted author.
    """

    key: PullKey
    head: str
    workflow: str
    leaves_machine = True

    @property
    def sentence(self) -> str:
        """The change in the imperative."""
        return f"authorize CI for {self.head[:10] or 'that commit'}, with one comment on the pull request"

    def holds(self, world: World) -> Check:
        """Look for a run, and for a comment by somebody who may authorize it."""
        name, github = "CI may test the head commit", world.forge
        pull, pushed = self._find(world)
        if not self.head and not world.changes.commits:
            return Check(name, "failed", "That commit has yet to be made.")
        if pushed and pull.head_sha != pushed:
            return Check(name, "waiting", f"waiting for GitHub to notice the push of {pushed[:10]}", Next.again())
        if not self._is_known(world, pull):
            return _unreviewed(name, pull)
        comments = github.comments(pull.number)
        if by := [f"{each.author} ({each.url})" for each in commands(comments, pull.head_sha)]:
            return Check.of(name, True, f"By {', '.join(by)}.", evidence=evidence_of(pull))
        if run := choose(github.runs(branch_of(pull.number), pull.head_sha), pull.head_sha, self.workflow):
            return Check.of(name, True, f"By copy-pr-bot itself: {run.url}", evidence=evidence_of(pull))
        me = login_of(github)
        if own := commands(comments, pull.head_sha, me):
            waiting = f"waiting for a maintainer: {me} is not a member of the repository, so {own[0].url} has no effect"
            request = f'Ask a maintainer of {github.repository} to comment "{command(pull.head_sha)}" on {pull.url}.'
            return Check(name, "waiting", waiting, Next(request))
        if pull.mergeable is False:
            fix = f"Merge {pull.base_ref} into {pull.head_ref} by hand, or allow merge-base in the decisions."
            waiting = f"waiting for a person: #{pull.number} conflicts with {pull.base_ref}"
            return Check(name, "waiting", waiting, Next.again(fix))
        return Check(name, "failed", "No comment authorizes it.")

    def make_true(self, world: World) -> Sequence[Effect]:
        """Comment, unless a comment of ours names the commit.  Raises Refused for a head that was not reviewed."""
        github, (pull, _) = world.forge, self._find(world)
        if not self._is_known(world, pull):
            raise Refused(f"#{pull.number} has moved to {pull.head_sha[:10]} since it was read.", "Run again.")
        me, text = login_of(github), command(pull.head_sha)
        comment = once(
            lambda: next(iter(commands(github.comments(pull.number), pull.head_sha, me)), None),
            lambda: github.comment(pull.number, text),
            github.remove_comment,
        )
        return [Effect("comment", f"#{pull.number}", None, text, comment.url)]

    def _find(self, world: World) -> tuple[Pull, str]:
        """Return the pull request and the commit that this run has pushed to it, which GitHub may not show yet."""
        pull, pushed = self.key.require(world.forge), world.changes.pushed.get(self.key.head.partition(":")[2], "")
        if pushed and (pull.head_sha != pushed or pull.mergeable is None):
            pull = wait_for_head(world.forge, pull.number, pushed, world.sleep)
        return pull, pushed

    def _is_known(self, world: World, pull: Pull) -> bool:
        return pull.head_sha in {self.head, *world.changes.commits}


def _unreviewed(name: str, pull: Pull) -> Check:
    """Return the check of a pull request that has moved since its commits were reviewed."""
    waiting = f"waiting: #{pull.number} has a newer head, {pull.head_sha[:10]}, which was not reviewed"
    return Check(name, "waiting", waiting, Next.again())


def login_of(github: Forge) -> str:
    """Return the token's login; empty for a workflow job's token, which has none."""
    with contextlib.suppress(NotAllowed):
        return github.me()
    return ""


def label_request(pull: Pull, required: frozenset[str], forbidden: frozenset[str], repository: str) -> str:
    """Return a sentence that asks a maintainer to correct the labels; empty if they are right."""
    requests = []
    for verb, labels in (("set", required - pull.labels), ("remove", forbidden & pull.labels)):
        if labels:
            requests.append(f"{verb} the label {' and '.join(map(repr, sorted(labels)))}")
    if not requests:
        return ""
    return (
        f'Ask a maintainer of {repository}: "Could you please {" and ".join(requests)} on {pull.url}? '
        'CI for this base-image bump needs this before it starts."'
    )


@dataclass(frozen=True)
class IssueFiled:
    """An open issue tracks ``subject``: issue ``known``, or else one of ours with ``marker`` in its text.

    A new one is assigned to ``assignee`` and mentions the team ``mentions``, if there are any.
    """

    subject: str
    marker: str
    title: str
    body: str
    label: str
    assignee: str = ""
    mentions: str = ""
    known: int = 0
    leaves_machine = True

    @property
    def sentence(self) -> str:
        """The change in the imperative."""
        if self.known:
            return f"track {self.subject} in issue #{self.known}"
        notified = [f"assigned to {self.assignee}"] if self.assignee else []
        notified += [f"mentions {self.mentions}"] if self.mentions else []
        return f"file an issue for {self.subject}: {self.title!r} ({', '.join(notified) or 'nobody is notified'})"

    def find(self, world: World) -> Issue | None:
        """Return the issue, the older one of two; None if there is none."""
        if self.known and (issue := world.forge.issue(self.known)).is_open:
            return issue
        # GitHub's search lags behind new issues; the list of our own issues does not.
        own = world.forge.list_issues(world.forge.me())
        return min((issue for issue in own if self.marker in issue.body), key=lambda issue: issue.number, default=None)

    def holds(self, world: World) -> Check:
        """Look for the issue."""
        name, issue = f"an issue tracks {self.subject}", self.find(world)
        if issue is None:
            return Check(name, "failed", "None is open.")
        evidence = Evidence(links={f"issue #{issue.number}": issue.url})
        return Check(name, "passed", f"#{issue.number}: {issue.url}", evidence=evidence)

    def make_true(self, world: World) -> Sequence[Effect]:
        """File it; of two that were filed at the same moment, withdraw ours if it is the younger one."""
        github = world.forge
        issue = once(
            lambda: self.find(world),
            lambda: github.file_issue(self.title, self.body, [self.label], self.assignee),
            github.withdraw_issue,
        )
        return [Effect("issue", f"#{issue.number}", None, self.title, issue.url)]


@dataclass(frozen=True)
class Rerun:
    """The failed jobs of a CI run have been started again since ``attempt``."""

    run: int
    attempt: int
    jobs: tuple[str, ...]
    leaves_machine = True

    @property
    def sentence(self) -> str:
        """The change in the imperative."""
        return f"run again: {', '.join(self.jobs)}"

    def holds(self, world: World) -> Check:
        """Read the run's attempt."""
        run = world.forge.run(self.run)
        detail = f"Attempt {run.attempt} is {run.status}: {run.url}"
        return Check.of("the failed jobs run again", run.attempt > self.attempt, detail)

    def make_true(self, world: World) -> Sequence[Effect]:
        """Start them, and wait some seconds until GitHub shows the new attempt."""
        run = world.forge.run(self.run)
        if run.attempt > self.attempt or run.status != "completed":
            return []  # somebody else was faster
        world.forge.rerun_failed(self.run)
        for delay in DELAYS:
            world.sleep(delay)
            if world.forge.run(self.run).attempt > self.attempt:
                break
        return [Effect("rerun", f"CI run {self.run}", self.attempt, self.attempt + 1, run.url)]
