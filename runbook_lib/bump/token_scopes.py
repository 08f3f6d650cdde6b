"""The permissions of a GitHub token that each step needs, and a check of them before anything is written.

Source of the permissions: GitHub's pages "Permissions required for fine-grained personal access tokens" and "Scopes for
OAuth apps", and the scopes of single operations in its description of the API.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from runbook_lib import notebooks
from runbook_lib.checks import Check
from runbook_lib.clients.github.errors import scopes
from runbook_lib.clients.github.models import GitHubRepository
from runbook_lib.world.ports import Forge

NAME = "the token may do what the steps need"
_READ_ALL = ("actions=read", "contents=read", "deployments=read", "pull_requests=read")
_CI = ("actions=read", "contents=read", "deployments=read", "pull_requests=write")


@dataclass(frozen=True)
class Need:
    """The needs of a step that publishes.

    ``permissions`` are those of a fine-grained token for a private repository; for a public one only those that write
    suffice.  ``scope`` is a classic token's for a public repository; for a private one each needs ``repo``.
    """

    step: str
    permissions: tuple[str, ...]
    scope: str = ""


NEEDS = (
    Need(notebooks.PREFLIGHT, ("metadata=read",)),
    Need(notebooks.OPEN_PR, ("pull_requests=write",), "public_repo"),
    Need(notebooks.RUN_CI, _CI, "public_repo"),
    Need(notebooks.GOLDEN_VALUES, _CI, "repo"),
    Need(notebooks.BROKEN_TESTS, ("actions=write", *_CI[1:-1], "issues=write", "pull_requests=write"), "repo"),
    Need(notebooks.BUMP, (*_READ_ALL[:-1], "issues=read", "pull_requests=read")),
    Need(notebooks.AFTER_MERGE, ("actions=read", "issues=read", "pull_requests=read")),
    Need(notebooks.INVESTIGATE_CI, ("actions=read", "pull_requests=read"), "repo"),
)  # fmt: skip
_AREAS = ("actions", "contents", "deployments", "issues", "pull_requests")


def check(github: Forge, login: str, repository: GitHubRepository, *, publish: bool) -> Check:
    """Check that the token has the permissions that the steps need; skipped if only writing would show.

    ``github`` must have answered once.  Missing permissions fail the check of a run that publishes.
    """
    if github.scopes is not None:
        missing, unknown = _classic(scopes(github.scopes), repository)
    else:
        missing, unknown = _fine_grained(github, repository)
    if missing:
        detail = f"{_sentence(missing)} The token of {login} does not have it for {repository.name}."
        return Check(NAME, "failed" if publish else "skipped", detail)
    if unknown:
        return Check(NAME, "skipped", unknown)
    return Check(NAME, "passed", f"The scope repo is enough for every step on {repository.name}.")


def _classic(owned: frozenset[str], repository: GitHubRepository) -> tuple[dict[str, list[str]], str]:
    """Return the steps with a missing scope, by scope, and a sentence on what cannot be known."""
    if "repo" in owned:
        return {}, ""
    if repository.private:
        return {"the scope repo": [need.step for need in NEEDS]}, ""
    full = [need.step for need in NEEDS if need.scope == "repo"]
    if "public_repo" in owned:
        return {}, (
            f"The scope public_repo may write to {repository.name}. For artifacts, and to rerun failed jobs, GitHub's "
            f"description of its API requires the scope repo: {_and(full)} may be refused."
        )
    public = [need.step for need in NEEDS if need.scope == "public_repo"]
    return {"the scope public_repo": public, "the scope repo": full}, ""


def _fine_grained(github: Forge, repository: GitHubRepository) -> tuple[dict[str, list[str]], str]:
    """Return the same by permission.  Anybody may read a public repository, so reading it proves nothing."""
    denied = []
    if repository.private:
        denied = [f"{area}=read" for area in _AREAS if not github.may_read(area)]
    needed = set[str]().union(*(need.permissions for need in NEEDS))
    writing = sorted(permission for permission in needed if permission.endswith("=write"))
    unknown = f"Only writing shows whether a fine-grained token may write. {_sentence(_steps(writing))}"
    return _steps(sorted(denied)), unknown


def _steps(permissions: Iterable[str]) -> dict[str, list[str]]:
    """Return the steps that need each of these permissions, under the name on GitHub's page for tokens."""
    steps = {}
    for permission in permissions:
        sufficient = {permission, permission.replace("=read", "=write")}
        needed_by = [need.step for need in NEEDS if sufficient.intersection(need.permissions)]
        steps[f"the permission {_title(permission)}"] = needed_by
    return steps


def _title(permission: str) -> str:
    """Return the name of ``pull_requests=write`` on GitHub's page for tokens."""
    name, _, access = permission.replace("_", " ").partition("=")
    return f"“{name.capitalize()}: {'read and write' if access == 'write' else 'read'}”"


def _sentence(steps: dict[str, list[str]]) -> str:
    needs = "; ".join(f"{right} is needed by {_and(names)}" for right, names in steps.items())
    return f"{needs[:1].upper()}{needs[1:]}."


def _and(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
