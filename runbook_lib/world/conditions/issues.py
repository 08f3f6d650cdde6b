"""Conditions on issues, and on the jobs of a CI run: an issue tracks something, failed jobs have been started again."""

from collections.abc import Sequence
from dataclasses import dataclass

from runbook_lib.checks import Check, Evidence
from runbook_lib.model import Effect
from runbook_lib.world.conditions.pulls import DELAYS
from runbook_lib.world.github.models import Issue
from runbook_lib.world.once import once
from runbook_lib.world.outside import World


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
