"""From a request to the function that answers it."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote

from runbook_lib.practice.github.protocol import Answer, Caller, Problem, Request, not_found
from runbook_lib.practice.hub import Hub
from runbook_lib.practice.state import Ticket

#: Parts of a path that may hold slashes.
_LONG = ("ref", "branch", "basehead", "name")


@dataclass(frozen=True)
class Call:
    """A request that has found its route: whose it is, and the parts of its path."""

    hub: Hub
    request: Request
    caller: Caller
    parts: Mapping[str, str]

    @property
    def url(self) -> str:
        """The address that was asked for, without its query."""
        return self.hub.url + self.request.path

    @property
    def owner(self) -> str:
        return self.parts.get("owner", self.hub.owner)

    def number(self, name: str) -> int:
        """A part of the path that is a number; 404 for anything else."""
        if not re.fullmatch(r"[0-9]{1,15}", self.parts[name]):
            raise not_found()
        return int(self.parts[name])

    def ticket(self) -> Ticket:
        """The issue or pull request of the path."""
        return self.hub.ticket(self.number("issue_number"))

    def pull(self) -> Ticket:
        """The pull request of the path; 404 for an issue."""
        ticket = self.hub.ticket(self.number("pull_number"))
        if not ticket.is_pull:
            raise not_found()
        return ticket


@dataclass(frozen=True)
class Route:
    """One operation, under the path by which GitHub's description calls it.

    A fine-grained token must have one of the permissions ``needs``, by GitHub's page "Permissions required for
    fine-grained personal access tokens"; ``full`` is one for which a classic token needs the scope ``repo`` even where
    the repository is public, by GitHub's description.  ``forks`` tells whether it is answered for forks too.
    """

    method: str
    path: str
    handler: Callable[[Call], Answer]
    needs: tuple[str, ...] = ()
    full: bool = False
    forks: bool = False

    def scopes(self, private: bool) -> tuple[str, ...]:
        """The scopes one of which a classic token must have; none for what anybody may read."""
        if private or self.full:
            return ("repo",)
        return () if self.method == "GET" else ("public_repo", "repo")

    def refusal(self, who: Caller, private: bool) -> Problem | None:
        """What GitHub answers to a token that may not do this."""
        if private and who.account is None:
            return not_found()
        if who.permissions is not None:
            public = self.method == "GET" and not private
            has = who.permissions | {f"{it.removesuffix('=write')}=read" for it in who.permissions} | {"metadata=read"}
            if public or not self.needs or has & set(self.needs):
                return None
            return Problem(403, "Resource not accessible by personal access token")
        scopes = self.scopes(private)
        lacks = who.scopes is not None and scopes and not set(who.scopes.split(", ")) & set(scopes)
        return not_found() if lacks else None

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        def part(match: re.Match[str]) -> str:
            return f"(?P<{match[1]}>{'.+' if match[1] in _LONG else '[^/]+'})"

        return re.compile(re.sub(r"\\{(\w+)\\}", part, re.escape(self.path)))


def find(routes: Iterable[Route], hub: Hub, method: str, path: str) -> tuple[Route, dict[str, str]] | None:
    """The route of a request, and the parts of its path; None without one, or for a repository that is not here."""
    # GitHub's own links to further pages call the repository by its id.
    path = re.sub(r"^/repositories/[0-9]+(?=/|$)", f"/repos/{hub.owner}/{hub.name}", path)
    for route in routes:
        match = route.pattern.fullmatch(path) if route.method == method else None
        if match is None:
            continue
        parts = {name: unquote(value) for name, value in match.groupdict().items()}
        if "owner" in parts:
            owners = {owner.lower(): owner for owner in hub.places}
            parts["owner"] = owners.get(parts["owner"].lower(), "")
            here = parts["owner"] and parts["repo"].lower() == hub.name.lower()
            if not here or (parts["owner"] != hub.owner and not route.forks):
                return None
        return route, parts
    return None
