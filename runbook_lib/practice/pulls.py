"""The pull requests of the practice forge."""

from runbook_lib.clients.github.models import Pull
from runbook_lib.practice import bots
from runbook_lib.practice.access import ForgeAccess, transaction
from runbook_lib.practice.hub import InvalidRequest, PracticeRefusal
from runbook_lib.practice.store import TicketRecord


class PullRequests(ForgeAccess):
    """Reading, opening and changing pull requests."""

    @transaction
    def pulls(self, head: str | None = None, base: str | None = None, state: str = "open") -> tuple[Pull, ...]:
        """Return pull requests, newest first; ``head`` is ``owner:branch``."""
        found = []
        for ticket in self.hub.tickets():
            # GitHub ignores a head without an owner.
            is_head = not head or ":" not in head or f"{ticket.head_owner}:{ticket.head_ref}".lower() == head.lower()
            if ticket.is_pull and state in ("all", ticket.state) and is_head and base in (None, "", ticket.base_ref):
                found.append(self._pull(ticket, mergeable=None))
        return tuple(found)

    @transaction
    def pull(self, number: int) -> Pull:
        """Return one pull request; its merge is computed on the first request, and shown from the second on."""
        ticket = self.find_pull(number)
        if ticket.state != "open":
            return self._pull(ticket, ticket.mergeable)
        merged = self.hub.with_merge_commit(ticket)
        if merged.merge_of != ticket.merge_of:
            return self._pull(ticket, mergeable=None)
        return self._pull(merged, merged.mergeable)

    def find_pull(self, number: int) -> TicketRecord:
        """Return the current state of a pull request.  Raises PracticeRefusal."""
        ticket = self.hub.ticket(number)
        if not ticket.is_pull:
            raise PracticeRefusal()
        return ticket

    def _pull(self, ticket: TicketRecord, mergeable: bool | None) -> Pull:
        return Pull(
            number=ticket.number, url=self.url(f"pull/{ticket.number}"), title=ticket.title, body=ticket.body or "",
            draft=ticket.draft, state=ticket.state, merged=ticket.merged is not None, head_ref=ticket.head_ref,
            head_sha=ticket.head_sha, head_owner=ticket.head_owner, base_ref=ticket.base_ref, base_sha=ticket.base_sha,
            merge_commit=ticket.merge_sha, mergeable=mergeable, labels=frozenset(ticket.labels), author=ticket.author,
        )  # fmt: skip

    @transaction
    def files(self, number: int) -> tuple[str, ...]:
        """Return the paths that a pull request changes."""
        pull = self.find_pull(number)
        _, _, fork_point = self.hub.home.compare(pull.base_sha, pull.head_sha)
        return self.hub.home.changes(fork_point, pull.head_sha)

    @transaction
    def open_pull(self, title: str, head: str, base: str, body: str, *, draft: bool = True) -> Pull:
        """Open a pull request; ``head`` is ``owner:branch``.  The answer shows it before the bots act."""
        values = self.common_fields("PullRequest", title, body)
        owner, branch, tip, base_tip = self._resolve_branches(head, base)
        ticket = self.hub.store.create(
            TicketRecord, number=self.hub.store.next("number"), **values, draft=draft, head_owner=owner,
            head_ref=branch, head_sha=tip, base_ref=base, base_sha=base_tip,
        )  # fmt: skip
        self.hub.home.set_ref(f"refs/pull/{ticket.number}/head", tip)
        shown = self._pull(ticket, mergeable=None)
        bots.pull_opened(self.hub, ticket)
        return shown

    def _resolve_branches(self, head: str, base: str) -> tuple[str, str, str, str]:
        """Return owner, name and tip of the head, and the tip of the base.

        Raises InvalidRequest, as GitHub does, for branches between which there can be no new pull request.
        """
        hub = self.hub
        owner, _, branch = head.rpartition(":")
        owner = {name.lower(): name for name in hub.places}.get((owner or hub.owner).lower(), "")
        base_tip = hub.home.tips().get(base)
        if base_tip is None:
            raise InvalidRequest("PullRequest", field="base", code="invalid")
        tip = hub.places[owner].tips().get(branch) if owner else None
        if tip is None:
            raise InvalidRequest("PullRequest", field="head", code="invalid")
        if owner == hub.owner and not self.account.may_write:
            raise InvalidRequest("PullRequest", field="head", message="must be a collaborator")
        hub.home.fetch(hub.places[owner], tip)
        for ticket in hub.tickets():
            if ticket.state == "open" and (ticket.head_owner, ticket.head_ref, ticket.base_ref) == (
                owner,
                branch,
                base,
            ):
                raise InvalidRequest("PullRequest", message=f"A pull request already exists for {owner}:{branch}.")
        ahead, _, fork_point = hub.home.compare(base_tip, tip)
        if not fork_point:
            raise InvalidRequest("PullRequest", message=f"The {branch} branch has no history in common with {base}")
        if not ahead:
            name = head if owner != hub.owner else branch
            raise InvalidRequest("PullRequest", message=f"No commits between {base} and {name}")
        return owner, branch, tip, base_tip

    @transaction
    def update_pull(self, number: int, body: str) -> Pull:
        """Change the body of a pull request."""
        ticket = self.find_pull(number)
        self.require_author(ticket)
        self.hub.store.change(ticket, body=self.text("PullRequest", "body", body), updated=self.hub.clock())
        return self.pull(number)
