"""The issues, labels and comments of the practice forge; a pull request has labels and comments, too."""

from collections.abc import Collection

from runbook_lib.clients.github.models import Comment, Issue, LabelEvent
from runbook_lib.practice import bots
from runbook_lib.practice.access import ForgeAccess, moment, transaction
from runbook_lib.practice.accounts import ACCOUNTS
from runbook_lib.practice.hub import InvalidRequest, PracticeRefusal
from runbook_lib.practice.store import CommentRecord, EventRecord, TicketRecord


class Tickets(ForgeAccess):
    """Labels, comments and issues."""

    @transaction
    def labels(self, number: int) -> frozenset[str]:
        """Return the names of a pull request's labels."""
        return frozenset(self.hub.ticket(number).labels)

    @transaction
    def labellings(self, number: int) -> tuple[LabelEvent, ...]:
        """Return when labels were added to a pull request and removed, oldest first."""
        events = self.hub.store.all(EventRecord, self.hub.ticket(number).number)
        return tuple(LabelEvent(each.label, each.event == "labeled", moment(each.created)) for each in events)

    @transaction
    def add_label(self, number: int, name: str) -> None:
        """Add a label.  Adding it twice has no further effect."""
        ticket = self.hub.ticket(number)
        self.require_write()
        self.hub.set_labels(ticket, [*ticket.labels, name], self.account.login)

    @transaction
    def remove_label(self, number: int, name: str) -> None:
        """Remove a label.  Raises PracticeRefusal also if it is not set."""
        ticket = self.hub.ticket(number)
        self.require_write()
        remaining = [label for label in ticket.labels if label.lower() != name.lower()]
        if len(remaining) == len(ticket.labels):
            raise PracticeRefusal("Label does not exist")
        self.hub.set_labels(ticket, remaining, self.account.login)

    @transaction
    def comments(self, number: int) -> tuple[Comment, ...]:
        """Return the conversation of a pull request, oldest first."""
        ticket = self.hub.ticket(number)
        return tuple(self._comment(ticket, record) for record in self.hub.store.all(CommentRecord, ticket.number))

    def _comment(self, ticket: TicketRecord, record: CommentRecord) -> Comment:
        author = ACCOUNTS[record.author]
        url = f"{self.url(f'{ticket.page}/{ticket.number}')}#issuecomment-{record.id}"
        is_bot = author.type == "Bot"
        insider = author.may_write and not is_bot
        return Comment(record.id, record.author, record.body, moment(record.created), url, insider, is_bot)

    @transaction
    def comment(self, number: int, body: str) -> Comment:
        """Write a comment, to which the bots may answer."""
        ticket = self.hub.ticket(number)
        text = self.text("IssueComment", "body", body)
        if not text.strip():
            raise InvalidRequest("IssueComment", field="data", code="unprocessable", message="Body cannot be blank")
        record = self.hub.add_comment(ticket, self.account, text)
        bots.comment_created(self.hub, ticket, record)
        return self._comment(ticket, record)

    @transaction
    def remove_comment(self, comment: Comment) -> None:
        """Delete a comment of the account."""
        record = self.hub.store.find(CommentRecord, comment.id)
        if record is None:
            raise PracticeRefusal()
        if record.author != self.account.login:
            self.require_write()
        self.hub.store.remove(record)

    def _issue(self, ticket: TicketRecord) -> Issue:
        return Issue(
            ticket.number, self.url(f"{ticket.page}/{ticket.number}"), ticket.title, ticket.body or "", ticket.state,
            frozenset(ticket.labels), ticket.author, ACCOUNTS[ticket.author].may_write,
        )  # fmt: skip

    def _open_issues(self) -> list[TicketRecord]:
        return [each for each in reversed(self.hub.tickets()) if not each.is_pull and each.state == "open"]

    @transaction
    def search_issues(self, words: str) -> tuple[Issue, ...]:
        """Return the open issues whose text contains exactly these words, oldest first."""
        words = words.replace('"', " ").lower()
        found = [each for each in self._open_issues() if words in f"{each.title}\n{each.body or ''}".lower()]
        return tuple(map(self._issue, found))

    @transaction
    def list_issues(self, creator: str = "") -> tuple[Issue, ...]:
        """Return the open issues, optionally of one author, without pull requests, oldest first."""
        return tuple(self._issue(each) for each in self._open_issues() if creator in ("", each.author))

    @transaction
    def issue(self, number: int) -> Issue:
        """Return one issue."""
        return self._issue(self.hub.ticket(number))

    def is_assignable(self, login: str) -> bool:
        """Return True if issues may be assigned to this account."""
        account = ACCOUNTS.get(login)
        return account is not None and account.type == "User" and account.may_write

    @transaction
    def file_issue(self, title: str, body: str, labels: Collection[str] = (), assignee: str = "") -> Issue:
        """File an issue.  Values that the account may not set are dropped."""
        values = self.common_fields("Issue", title, body)
        ticket = self.hub.store.create(TicketRecord, number=self.hub.store.next("number"), **values)
        if self.account.may_write:
            ticket = self.hub.set_labels(ticket, sorted(labels), self.account.login)
            if assignee and not self.is_assignable(assignee):
                raise InvalidRequest("Issue", field="assignees", code="invalid")
            ticket = self.hub.store.change(ticket, assignees=[assignee] if assignee else [])
        return self._issue(ticket)

    @transaction
    def withdraw_issue(self, issue: Issue) -> None:
        """Close an issue that somebody else has just filed as well."""
        ticket = self.hub.ticket(issue.number)
        self.require_author(ticket)
        self.hub.close(ticket, "not_planned")
