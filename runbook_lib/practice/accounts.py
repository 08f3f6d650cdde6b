"""The accounts of the practice forge, and the tokens that the practice services take.

The tokens are worth nothing anywhere else.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

TOKEN = "practice-token"
#: The token of the practice GitLab, which is served below the forge's address.
GITLAB_TOKEN = "practice-gitlab-token"


@dataclass(frozen=True)
class PracticeAccount:
    """An account of the practice forge.  ``permission`` is its permission in the repository."""

    id: int
    login: str
    name: str
    permission: Literal["write", "read"] = "read"
    kind: Literal["User", "Bot", "Organization"] = "User"
    email: str = ""  # the address by which commits are attributed to the account


ENGINEER = PracticeAccount(
    90_000_001, "release-engineer", "Release Engineer", "write", email="release-engineer@practice.invalid"
)
#: The author of some of the tests, who can be assigned to fix them.
TEST_AUTHOR = PracticeAccount(90_000_005, "mlindqvist", "Mara Lindqvist", "write", email="mara@practice.invalid")
CONTRIBUTOR = PracticeAccount(90_000_002, "outside-contributor", "Outside Contributor")
COPY_PR_BOT = PracticeAccount(90_000_003, "copy-pr-bot[bot]", "copy-pr-bot", "write", "Bot")
ACTIONS_BOT = PracticeAccount(90_000_004, "github-actions[bot]", "github-actions", "write", "Bot")
ACCOUNTS: Mapping[str, PracticeAccount] = {
    account.login: account for account in (ENGINEER, CONTRIBUTOR, COPY_PR_BOT, ACTIONS_BOT, TEST_AUTHOR)
}


@dataclass(frozen=True)
class Token:
    """A practice token: its owner, and the problem that it has.

    A classic token has ``scopes``; a fine-grained one has ``permissions`` instead, such as ``issues=write``.
    """

    account: PracticeAccount
    problem: Literal["", "sso", "expired"] = ""
    scopes: str | None = "repo, workflow"
    permissions: frozenset[str] = frozenset()

    @classmethod
    def fine_grained(cls, *permissions: str, account: PracticeAccount = ENGINEER) -> "Token":
        """Return a token with only these permissions, on all repositories of the forge."""
        return cls(account, scopes=None, permissions=frozenset(permissions))


_READABLE = ("actions", "contents", "deployments", "issues", "metadata", "pull_requests")
TOKENS: Mapping[str, Token] = {
    TOKEN: Token(ENGINEER),
    "contributor-token": Token(CONTRIBUTOR),
    "sso-token": Token(ENGINEER, "sso"),
    "expired-token": Token(ENGINEER, "expired"),
    "readonly-token": Token.fine_grained(*(f"{name}=read" for name in _READABLE)),
}
