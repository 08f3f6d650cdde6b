"""What a token must be allowed to do on GitHub, step by step, and what of it can be known before anything is written.

Source of the permissions: GitHub's pages "Permissions required for fine-grained personal access tokens" and "Scopes for
OAuth apps", and what its description of the API says of the scopes of single operations.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from runbook_lib import notebooks
from runbook_lib.checks import Check
from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.github.errors import NotAllowed, scopes
from runbook_lib.clients.github.models import Account, GitHubRepository

NAME = "the token may do what the steps need"
_READ_ALL = ("actions=read", "contents=read", "deployments=read", "pull_requests=read")
_CI = ("actions=read", "contents=read", "deployments=read", "pull_requests=write")


@dataclass(frozen=True)
class Need:
    """What a step needs of a token, to publish as well.

    ``permissions`` are those of a fine-grained token for a private repository; for a public one those that write
    suffice.  ``scope`` is a classic token's for a public repository; for a private one each needs ``repo``.  ``role``
    is the person's in the repository, where reading it is not enough.
    """

    step: str
    permissions: tuple[str, ...]
    scope: str = ""
    role: str = ""

    @property
    def writes(self) -> tuple[str, ...]:
        """The permissions without which not even a public repository will do."""
        return tuple(it for it in self.permissions if it.endswith("=write"))


NEEDS = (
    Need(notebooks.PREFLIGHT, ("metadata=read",)),
    Need(notebooks.OPEN_PR, ("pull_requests=write",), "public_repo", "triage, to set labels"),
    Need(notebooks.RUN_CI, _CI, "public_repo", "write, to let CI test"),
    Need(notebooks.GOLDEN_VALUES, _CI, "repo"),
    Need(notebooks.BROKEN_TESTS, ("actions=write", *_CI[1:-1], "issues=write", "pull_requests=write"), "repo",
         "write, to run failed jobs again"),
    Need(notebooks.BUMP, (*_READ_ALL[:-1], "issues=read", "pull_requests=read")),
    Need(notebooks.AFTER_MERGE, ("actions=read", "issues=read", "pull_requests=read")),
    Need(notebooks.INVESTIGATE_CI, ("actions=read", "pull_requests=read"), "repo"),
    Need("runbook labels", ("pull_requests=read",)),
    Need("the forms", _READ_ALL),
)  # fmt: skip
_PROBES = {
    "actions": "/actions/runs", "contents": "/commits", "deployments": "/deployments", "issues": "/issues",
    "pull_requests": "/pulls",
}  # fmt: skip


def check(github: GitHub, account: Account, repository: GitHubRepository, *, publish: bool) -> Check:
    """Return what the token lacks, and for which steps; skipped for what only writing would show.

    Ask it after ``github`` has answered once.  What is lacking fails the check of a run that publishes.
    """
    if github.scopes is not None:
        lacking, open_ = _classic(scopes(github.scopes), repository)
    else:
        lacking, open_ = _fine_grained(github, repository)
    if lacking:
        detail = f"{_sentence(lacking)} The token of {account.login} does not have it for {repository.name}."
        return Check(NAME, "failed" if publish else "skipped", detail)
    if open_:
        return Check(NAME, "skipped", open_)
    return Check(NAME, "passed", f"The scope repo does for every step on {repository.name}.")


def _classic(has: frozenset[str], repository: GitHubRepository) -> tuple[dict[str, list[str]], str]:
    """Return what is missing (the steps by scope), and a sentence on what cannot be known."""
    if "repo" in has:
        return {}, ""
    if repository.private:
        return {"the scope repo": [need.step for need in NEEDS]}, ""
    full = [need.step for need in NEEDS if need.scope == "repo"]
    if "public_repo" in has:
        return {}, (
            f"The scope public_repo writes to {repository.name}. For artifacts, and to run failed jobs again, GitHub's "
            f"description of its API asks for the scope repo: {_and(full)} may be refused."
        )
    return {"the scope public_repo": [it.step for it in NEEDS if it.scope == "public_repo"], "the scope repo": full}, ""


def _fine_grained(github: GitHub, repository: GitHubRepository) -> tuple[dict[str, list[str]], str]:
    """Return the same by permission.  A public repository tells nothing: anybody may read it."""
    denied = {name for name, path in _PROBES.items() if _is_denied(github, name, path)} if repository.private else set()
    lacking = _steps(f"{name}=read" for name in sorted(denied))
    writes = _steps(sorted({it for need in NEEDS for it in need.writes}))
    return lacking, f"Whether a token like this may write shows when it writes. {_sentence(writes)}"


def _is_denied(github: GitHub, name: str, path: str) -> bool:
    try:
        github.get(f"see whether the token may read {name}", github.path(path), lambda _: None, {"per_page": 1})
    except NotAllowed as error:
        return "not accessible" in str(error)  # and not, for one, issues that the repository does not have
    return False


def _steps(permissions: Iterable[str]) -> dict[str, list[str]]:
    """Return the steps that need each of these permissions, under the name on GitHub's page for tokens."""
    return {
        f"the permission {_called(it)}": [
            need.step for need in NEEDS if {it, it.replace("=read", "=write")} & {*need.permissions}
        ]
        for it in permissions
    }


def _called(permission: str) -> str:
    """Return ``pull_requests=write`` as GitHub's page for tokens calls it."""
    name, _, access = permission.replace("_", " ").partition("=")
    return f"“{name.capitalize()}: {'read and write' if access == 'write' else 'read'}”"


def _sentence(steps: dict[str, list[str]]) -> str:
    said = "; ".join(f"{what} is needed by {_and(who)}" for what, who in steps.items())
    return f"{said[:1].upper()}{said[1:]}."


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
