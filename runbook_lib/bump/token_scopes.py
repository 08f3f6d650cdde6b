"""The permissions of a GitHub token that a bump needs, and a check of them before anything is written.

Source of the permissions: GitHub's pages "Permissions required for fine-grained personal access tokens" and "Scopes for
OAuth apps", and the scopes of single operations in its description of the API.
"""

from runbook_lib.checks import Check
from runbook_lib.world.github.errors import RIGHTS, scopes
from runbook_lib.world.github.models import GitHubRepository
from runbook_lib.world.ports import Forge

NAME = "the token may do what the steps need"
#: A fine-grained token's, for all steps of a bump of a private repository; of a public one anybody may read.
PERMISSIONS = (
    "actions=write", "contents=read", "deployments=read", "issues=write", "metadata=read", "pull_requests=write"
)  # fmt: skip


def check(github: Forge, login: str, repository: GitHubRepository, *, publish: bool) -> Check:
    """Check that the token has the permissions that the steps need; skipped if only writing would show.

    ``github`` must have answered once.  Missing permissions fail the check of a run that publishes.
    """
    token, owned = f"The token of {login}", scopes(github.scopes)
    if "repo" in owned:
        return Check(NAME, "passed", f"The scope repo is enough for every step on {repository.name}.")
    if "public_repo" in owned and not repository.private:
        limit = "to read artifacts and to rerun failed jobs, GitHub's description of its API requires the scope repo"
        return Check(NAME, "skipped", f"{token} may write to {repository.name} by its scope public_repo; {limit}.")
    areas = [permission.partition("=")[0] for permission in PERMISSIONS if permission != "metadata=read"]
    if github.scopes is not None:
        problem = f"{token} has no scope for {repository.name}."
    elif repository.private and (denied := [area for area in areas if not github.may_read(area)]):
        problem = f"{token} may not read {', '.join(denied)} of {repository.name}."
    else:
        return Check(NAME, "skipped", f"Only writing shows whether {token[0].lower()}{token[1:]} may write. {RIGHTS}")
    return Check(NAME, "failed" if publish else "skipped", f"{problem} {RIGHTS}")
