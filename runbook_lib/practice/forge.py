"""The practice forge: the port `Forge`, in process, as the engineer sees it, with the bots that answer there."""

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from runbook_lib.practice import ci, git
from runbook_lib.practice.runs import PracticeRefusal, PracticeRuns, moment, one
from runbook_lib.practice.store import ACCOUNTS, ENGINEER, Record, Store, matching, scripted, transactions
from runbook_lib.text.redact import Redactor
from runbook_lib.world.github.models import Comment, GitHubRepository, Issue, LabelEvent, Pull

REPOSITORY = "practice/Megatron-LM"

T = TypeVar("T")


@transactions
class PracticeForge(PracticeRuns):
    """The practice forge, whose methods are those of the port; the URLs of its objects lead to the folder ``pages``.

    A ticket is an issue or a pull request by ``author``.  ``base_sha`` of a pull request is the tip of the base branch
    when the head was last pushed: GitHub does not update it.  ``merge_commit`` is the synthetic merge commit, or the
    real one once merged.
    """

    scopes: str | None = "repo, workflow"
    repository, account = REPOSITORY, ENGINEER
    owner, _, name = REPOSITORY.partition("/")

    def __init__(self, store: Store, remote: Path, pages: Path) -> None:
        """Open the forge of a bare repository, with its first issue and runs if it is new."""
        super().__init__(store, remote, pages)
        with store.transaction() as state:
            if not state.tickets:
                self._create(**scripted("history")["issue"])
                if tip := self.home.tip("main"):
                    for number, hours in ((7, 9), (9, 6)):
                        base = self.home.find(f"{tip}^") or tip
                        self._queue("main", number, tip, base, self.clock() - 3600 * hours)

    def public(self, value: T) -> T:
        text = json.dumps(Redactor(os.environ).data(value), ensure_ascii=False)
        public: T = json.loads(text.encode("utf-8", "replace"))
        return public

    def me(self) -> str:
        return self.account.login

    def repo(self) -> GitHubRepository:
        return GitHubRepository(self.repository, frozenset({"pull", "triage", "push"}), private=False)

    def may_read(self, area: str) -> bool:
        return True

    def may_write(self, login: str) -> bool:
        return login in ACCOUNTS and ACCOUNTS[login].may_write

    is_assignable = may_write

    def last_author(self, path: str, ref: str) -> str:
        logins = {account.email: account.login for account in ACCOUNTS.values() if account.email}
        return logins.get(self.home.git("log", "-1", "--format=%ae", self.resolve(ref), "--", path), "")

    def behind(self, base: str, head: str) -> int:
        return len(self.home.log(self.resolve(head), self.resolve(base)))

    def resolve(self, revision: str) -> str:
        """Return a commit by branch, as ``owner:branch`` too, or by its full ID.  Raises PracticeRefusal."""
        owner, _, name = revision.rpartition(":")
        known = [self.home.tip(name) or self.home.find(name)] if owner in ("", self.owner) else []
        return one([sha for sha in known if sha])

    def pulls(self, head: str | None = None, base: str | None = None, state: str = "open") -> tuple[Pull, ...]:
        asked = {"head": head, "base_ref": base, "state": None if state == "all" else state}
        return tuple(self._pull(ticket) for ticket in matching(self.tickets(), **asked) if ticket.base_ref)

    def pull(self, number: int) -> Pull:
        ticket = self.ticket(number, is_pull=True)
        return self._pull(ticket, self.merge(ticket) is not None if ticket.state == "open" else None)

    def _pull(self, ticket: Record, mergeable: bool | None = None) -> Pull:
        return Pull(**self._fields(Pull, ticket, mergeable=mergeable))

    def files(self, number: int) -> Mapping[str, str]:
        pull = self.ticket(number, is_pull=True)
        difference = ("diff", "--no-color", "--no-renames", f"{pull.base_sha}...{pull.head_sha}")
        listed = self.home.git(*difference, "-z", "--name-only").split("\0")
        patches = {path: self.home.git("--literal-pathspecs", *difference, "--", path) for path in listed if path}
        return {path: patch[patch.find("\n@@") + 1 :] if "\n@@" in patch else "" for path, patch in patches.items()}

    def open_pull(self, title: str, head: str, base: str, body: str) -> Pull:
        owner, _, branch = head.rpartition(":")
        tip, base_sha = self.resolve(head), self.resolve(base)
        if any(pull.base_ref == base for pull in self.pulls(head)):
            raise PracticeRefusal(f"A pull request already exists for {head}", 422)
        ticket = self._create(
            title=self.public(title), body=self.public(body), draft=True, head=head, head_owner=owner, head_ref=branch,
            head_sha=tip, base_ref=base, base_sha=base_sha,
        )  # fmt: skip
        self.home.git("update-ref", f"refs/pull/{ticket.number}/head", tip)
        return self._pull(ticket)

    def update_pull(self, number: int, body: str) -> Pull:
        self.ticket(number, is_pull=True).body = self.public(body)
        return self.pull(number)

    def labellings(self, number: int) -> tuple[LabelEvent, ...]:
        return tuple(LabelEvent(name, on, moment(when)) for name, on, when in self.ticket(number).events)

    def add_label(self, number: int, name: str) -> None:
        ticket = self.ticket(number)
        if name not in ticket.labels:
            ticket.labels.append(name)
            ticket.events.append([name, True, self.clock()])

    def remove_label(self, number: int, name: str) -> None:
        ticket = self.ticket(number)
        if name not in ticket.labels:
            raise PracticeRefusal("Label does not exist")
        ticket.labels.remove(name)
        ticket.events.append([name, False, self.clock()])

    def comments(self, number: int) -> tuple[Comment, ...]:
        ticket = self.ticket(number)
        return tuple(self._comment(ticket, comment) for comment in ticket.comments)

    def _comment(self, ticket: Record, stored: Record) -> Comment:
        author, url = ACCOUNTS[stored.author], f"{self.page(ticket)}#issuecomment-{stored.id}"
        created = moment(stored.created)
        return Comment(stored.id, author.login, stored.body, created, url, author.may_write, author.bot)

    def comment(self, number: int, body: str) -> Comment:
        ticket = self.ticket(number)
        comment = self.say(ticket, self.me(), self.public(body))
        if ticket.base_ref and ticket.state == "open":
            self.obey(ticket, body.strip())
        return self._comment(ticket, comment)

    def obey(self, ticket: Record, command: str) -> None:
        """Let copy-pr-bot carry out the command to test the head commit."""
        if command == f"/ok to test {ticket.head_sha}":
            self.start_run(ticket)

    def say(self, ticket: Record, author: str, body: str) -> Record:
        """Add a comment of anybody."""
        comment = Record(id=self.store.next_id(), author=author, body=body, created=self.clock())
        ticket.comments.append(comment)
        return comment

    def remove_comment(self, comment: Comment) -> None:
        for ticket in self.store.state.tickets:
            ticket.comments = [stored for stored in ticket.comments if stored.id != comment.id]

    def search_issues(self, words: str) -> tuple[Issue, ...]:
        words = words.replace('"', " ").lower()
        return tuple(each for each in self.list_issues() if words in f"{each.title}\n{each.body}".lower())

    def list_issues(self, creator: str = "") -> tuple[Issue, ...]:
        issues = matching(reversed(self.tickets()), base_ref="", state="open", author=creator or None)
        return tuple(map(self._issue, issues))

    def issue(self, number: int) -> Issue:
        return self._issue(self.ticket(number))

    def _issue(self, ticket: Record) -> Issue:
        return Issue(**self._fields(Issue, ticket, insider=ACCOUNTS[ticket.author].may_write))

    def file_issue(self, title: str, body: str, labels: Collection[str] = (), assignee: str = "") -> Issue:
        return self._issue(self._create(title=self.public(title), body=self.public(body), labels=sorted(labels)))

    def withdraw_issue(self, issue: Issue) -> None:
        self.close_ticket(self.ticket(issue.number))

    def records(self) -> list[Record]:
        self.tickets()  # one that was merged since the last request has another run
        return super().records()

    def start_run(self, ticket: Record) -> bool:
        """Mirror the head of a pull request and test its merge commit; return False if that was done before."""
        mirror = f"pull-request/{ticket.number}"
        known = matching(self.store.state.runs, pull=ticket.number, event="push", head_sha=ticket.head_sha)
        if known and self.home.tip(mirror) == ticket.head_sha:
            return False
        self.home.git("update-ref", f"refs/heads/{mirror}", ticket.head_sha)
        self.start(
            self.clock(), pull=ticket.number, title=ticket.title, head_sha=ticket.head_sha, head_branch=mirror,
            event="push", labels=[*ticket.labels], merge_sha=self.merge(ticket) or ticket.head_sha,
            base_sha=self.base(ticket),
        )  # fmt: skip
        return True

    def _queue(self, branch: str, number: int, tip: str, base: str, began: float) -> None:
        """Test a merged commit, as the merge queue does before it moves the branch to it."""
        self.start(
            began, pull=number, title=ci.WORKFLOW, head_sha=tip, event="merge_group",
            head_branch=f"gh-readonly-queue/{branch}/pr-{number}-{base}", merge_sha=tip, base_sha=base,
            labels=["Run functional tests"],
        )  # fmt: skip

    def page(self, ticket: Record) -> str:
        """Return the URL of the page of an issue or a pull request."""
        return self.url(f"{'pull' if ticket.base_ref else 'issues'}/{ticket.number}")

    def _create(self, **values: Any) -> Record:
        """Write a new issue or pull request, by default with the next number."""
        self.store.state.last_number += 1
        known = {"number": self.store.state.last_number, "author": self.account.login, "created": self.clock()}
        known |= {"state": "open", "base_ref": "", "head": "", "head_ref": "", "merged": False, "merge_commit": None}
        known |= {"labels": [], "comments": [], "events": []}
        ticket = Record(**known | values)
        self.store.state.tickets.append(ticket)
        return ticket

    def ticket(self, number: int, *, is_pull: bool = False) -> Record:
        """Return the current state of an issue or a pull request.  Raises PracticeRefusal."""
        known = matching(self.store.state.tickets, number=number)
        return self._refreshed(one([ticket for ticket in known if ticket.base_ref or not is_pull]))

    def tickets(self) -> list[Record]:
        """Return all issues and pull requests, newest first."""
        return [self._refreshed(ticket) for ticket in reversed(self.store.state.tickets)]

    def _refreshed(self, ticket: Record) -> Record:
        """Return a ticket after a check of its branches, if it is a pull request: pushed to, merged or deleted."""
        if not ticket.base_ref or ticket.state != "open":
            return ticket
        head, base = self.head(ticket), self.base(ticket)
        if head is not None and head != ticket.head_sha:
            self.home.git("update-ref", f"refs/pull/{ticket.number}/head", head)
            ticket.head_sha, ticket.base_sha = head, base
        if base != ticket.base_sha and self.home.is_ancestor(ticket.head_sha, base):
            self._queue(ticket.base_ref, ticket.number, base, ticket.base_sha, self.clock())
            ticket.merged, ticket.merge_commit = True, base
        if ticket.merged or head is None:
            self.close_ticket(ticket)
        return ticket

    def head(self, ticket: Record) -> str | None:
        """Return the newest commit of the branch that a pull request is about, or None."""
        return self.home.tip(ticket.head_ref)

    def base(self, ticket: Record) -> str:
        """Return the newest commit of the branch that a pull request goes to."""
        return self.home.tip(ticket.base_ref) or str(ticket.base_sha)

    def close_ticket(self, ticket: Record) -> None:
        """Close a ticket; copy-pr-bot deletes the mirror of a pull request."""
        ticket.state = "closed"
        if ticket.base_ref:
            self.home.git("update-ref", "-d", f"refs/heads/pull-request/{ticket.number}")

    def merge(self, ticket: Record) -> str | None:
        """Return the merge commit of an open pull request as it is now; None for a conflict."""
        commit = git.merge(self.home, self.base(ticket), ticket.head_sha)
        if commit and commit != ticket.merge_commit:
            self.home.git("update-ref", f"refs/pull/{ticket.number}/merge", commit)
        ticket.merge_commit = commit
        return commit

    def _fields(self, kind: type[Pull] | type[Issue], ticket: Record, **values: object) -> dict[str, Any]:
        """Return the fields of an object of the port that is made from a ticket."""
        known = {**vars(ticket), "labels": frozenset(ticket.labels), "url": self.page(ticket), **values}
        return {field.name: known[field.name] for field in fields(kind)}
