"""The practice forge: the port `Forge`, in process."""

import re

from runbook_lib.clients.github.models import GitHubRepository
from runbook_lib.practice.access import transaction
from runbook_lib.practice.accounts import ACCOUNTS
from runbook_lib.practice.actions import Actions
from runbook_lib.practice.hub import PracticeRefusal
from runbook_lib.practice.pulls import PullRequests
from runbook_lib.practice.tickets import Tickets


class PracticeForge(PullRequests, Tickets, Actions):
    """The practice forge, as one account sees it."""

    scopes: str | None = "repo, workflow"

    def me(self) -> str:
        """Return the login of the account."""
        return self.account.login

    def repo(self) -> GitHubRepository:
        """Return the repository and the permissions of the account."""
        permissions = {"pull", "triage", "push"} if self.account.may_write else {"pull"}
        return GitHubRepository(self.repository, frozenset(permissions), private=False)

    def may_read(self, area: str) -> bool:
        """Return True: anybody may read everything here."""
        return bool(area)

    def may_write(self, login: str) -> bool:
        """Return True if an account may write to the repository; False also if this is unknown."""
        return self.account.may_write and login in ACCOUNTS and ACCOUNTS[login].may_write

    @transaction
    def last_author(self, path: str, ref: str) -> str:
        """Return the login of whoever last committed to a path; empty where no account is known."""
        logins = {account.email: account.login for account in ACCOUNTS.values() if account.email}
        commits = self.hub.home.history(self.resolve(ref), path)
        return logins.get(self.hub.home.commit(commits[0]).author_email, "") if commits else ""

    @transaction
    def behind(self, base: str, head: str) -> int:
        """Return the number of commits of a branch that are missing from another branch or a fork's commit."""
        _, behind, fork_point = self.hub.home.compare(self.resolve(base), self.resolve(head))
        if not fork_point:
            raise PracticeRefusal(f"No common ancestor between {base} and {head}.")
        return behind

    def resolve(self, revision: str) -> str:
        """Return a commit by branch, tag, ID or abbreviated ID; ``owner:branch`` names one of a fork.

        Raises PracticeRefusal for anything else: of git's many ways to name a commit GitHub accepts these.
        """
        owner, _, name = revision.rpartition(":")
        place = self.hub.places.get(owner or self.hub.owner)
        if place is None or not re.fullmatch(r"[\w./+#@=-]+", name) or ".." in name or "@{" in name:
            raise PracticeRefusal()
        names = [f"refs/heads/{name}", f"refs/tags/{name}"]
        if re.fullmatch("[0-9a-f]{7,40}", name):
            names.append(name)
        for full_name in names:
            if sha := place.resolve(full_name):
                self.hub.home.fetch(place, sha)
                return sha
        raise PracticeRefusal()
