"""A practice forge with other people: forks, accounts without rights, and what GitHub and copy-pr-bot refuse.

The rules of copy-pr-bot come from its documentation and from Megatron-LM's `.github/copy-pr-bot.yaml`.
"""

import copy
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

from runbook_lib.errors import RunbookError
from runbook_lib.practice.forge import PracticeForge
from runbook_lib.practice.git import BareRepository
from runbook_lib.practice.runs import PracticeRefusal
from runbook_lib.practice.store import ACCOUNTS, PracticeAccount, Record, Store, matching, scripted, transactions
from runbook_lib.world.github.models import Comment, GitHubRepository, Issue, Pull

STRANGER = PracticeAccount("outside-contributor", "Outside Contributor")
COPY_PR_BOT = PracticeAccount("copy-pr-bot[bot]", "copy-pr-bot", bot=True)
ACCOUNTS.update({account.login: account for account in (STRANGER, COPY_PR_BOT)})

_COMMAND = re.compile(r"/ok(?:ay)? to test(?:\s+(?P<sha>\S+))?")
_LONGEST_BODY = 65536  # characters


class InvalidRequest(RunbookError):
    """A request that GitHub answers with 422."""


@transactions
class PeopledForge(PracticeForge):
    """The forge as one account sees it; ``forks`` are bare repositories of other owners.

    Part of the state are the names of jobs that shall fail, and the commits whose deployment is refused.
    """

    def __init__(
        self, store: Store, remote: Path, pages: Path, clock: Callable[[], float] | None = None,
        forks: Mapping[str, Path] | None = None,
    ) -> None:  # fmt: skip
        if clock:
            self.clock = clock
        super().__init__(store, remote, pages)
        self._looked_at = set[tuple[str, str]]()
        self.places = {owner: BareRepository(path) for owner, path in (forks or {}).items()} | {self.owner: self.home}

    def seen_by(self, account: PracticeAccount) -> Self:
        other = copy.copy(self)
        other.account = account
        return other

    def require_write(self, author: str = "") -> None:
        if not self.account.may_write and self.account.login != author:
            raise PracticeRefusal("Must have admin rights to Repository.", 403)

    def public(self, value: Any) -> Any:
        if len(value) > _LONGEST_BODY:
            raise InvalidRequest(f"It is too long (maximum is {_LONGEST_BODY} characters).")
        return super().public(value)

    def repo(self) -> GitHubRepository:
        permissions = {"pull", "triage", "push"} if self.account.may_write else {"pull"}
        return GitHubRepository(self.repository, frozenset(permissions), private=False)

    def may_write(self, login: str) -> bool:
        return self.account.may_write and self.is_assignable(login)

    def is_assignable(self, login: str) -> bool:
        return login in ACCOUNTS and ACCOUNTS[login].may_write

    def resolve(self, revision: str) -> str:
        owner, _, name = revision.rpartition(":")
        place = self.places.get(owner)
        return self._fetched(place, place.tip(name)) if place and owner != self.owner else super().resolve(revision)

    def head(self, ticket: Record) -> str | None:
        place = self.places[ticket.head_owner]
        tip = place.tip(ticket.head_ref)
        return self._fetched(place, tip) if tip else None

    def _fetched(self, place: BareRepository, sha: str | None) -> str:
        if sha is None:
            raise PracticeRefusal()
        if place is not self.home and self.home.find(sha) is None:
            self.home.git("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", str(place.path), sha)
        return sha

    def open_pull(self, title: str, head: str, base: str, body: str) -> Pull:
        if head.startswith(f"{self.owner}:") and not self.account.may_write:
            raise InvalidRequest("The author must be a collaborator.")
        try:
            commits = self.home.log(self.resolve(base), self.resolve(head))
        except PracticeRefusal as error:
            raise InvalidRequest(f"Head {head} or base {base} is invalid.") from error
        if not commits:
            raise InvalidRequest(f"No commits between {base} and {head}.")
        return super().open_pull(title, head, base, body)

    def pull(self, number: int) -> Pull:
        """The merge is computed at the first look, and shown from the second on."""
        pull, looked_at = super().pull(number), (self.home.tip("main") or "", self.ticket(number).head_sha)
        is_known = pull.state != "open" or looked_at in self._looked_at
        self._looked_at.add(looked_at)
        return pull if is_known else replace(pull, mergeable=None)

    def update_pull(self, number: int, body: str) -> Pull:
        self.require_write(self.ticket(number).author)
        return super().update_pull(number, body)

    def add_label(self, number: int, name: str) -> None:
        self.require_write()
        super().add_label(number, name)

    def remove_label(self, number: int, name: str) -> None:
        self.require_write()
        super().remove_label(number, name)

    def comment(self, number: int, body: str) -> Comment:
        if not body.strip():
            raise InvalidRequest("Body cannot be blank.")
        return super().comment(number, body)

    def obey(self, ticket: Record, command: str) -> None:
        if match := _COMMAND.fullmatch(command):
            error = "" if match["sha"] == ticket.head_sha else "E2" if match["sha"] else "E1"
            error = error if self.account.may_write else "E3"
            if error:
                told = f"@{self.account.login}, there was an error processing your request: `{error}`"
                self.say(ticket, COPY_PR_BOT.login, told)
            else:
                self.start_run(ticket)

    def remove_comment(self, comment: Comment) -> None:
        self.require_write(comment.author)
        super().remove_comment(comment)

    def file_issue(self, title: str, body: str, labels: Collection[str] = (), assignee: str = "") -> Issue:
        if self.account.may_write and assignee and not self.is_assignable(assignee):
            raise InvalidRequest(f"{assignee} cannot be assigned.")
        return super().file_issue(title, body, labels if self.account.may_write else ())

    def withdraw_issue(self, issue: Issue) -> None:
        self.require_write(issue.author)
        super().withdraw_issue(issue)

    def rerun_failed(self, run_id: int) -> None:
        self.require_write()
        super().rerun_failed(run_id)

    def deployment_failed(self, sha: str) -> bool:
        newest = matching(self.records(), event="push", head_sha=sha)[:1]
        ended = {self.show(job).conclusion for run in newest for job in self.listed(run) if job.kind == "queue"}
        return not ended.isdisjoint(("failure", "cancelled"))

    def start_run(self, ticket: Record) -> bool:
        state = self.store.state
        refusals = getattr(state, "refused_deployments", [])
        refused = not {ticket.head_sha, "next"}.isdisjoint(refusals)
        own = dict.fromkeys(getattr(state, "broken_jobs", ()), "broken")
        with patch.dict(scripted("scenario")["always"], {"cicd-wait-in-queue": "refused"} if refused else own):
            started = super().start_run(ticket)
        if started and refused:
            # GitHub shows a failed deployment in the timeline.  The forge adds a comment, which people read.
            self.say(
                ticket, COPY_PR_BOT.login, f"copy-pr-bot had a problem deploying to test (commit {ticket.head_sha})."
            )
            state.refused_deployments = [sha for sha in refusals if sha != "next"]
        return started
