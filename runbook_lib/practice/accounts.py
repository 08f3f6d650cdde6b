"""The accounts of the practice forge, and the tokens of the practice services, which are worthless elsewhere."""

from dataclasses import dataclass
from typing import Literal

TOKEN = "practice-token"


@dataclass(frozen=True)
class PracticeAccount:
    """An account of the practice forge; commits with its email address are attributed to it."""

    id: int
    login: str
    name: str
    may_write: bool = False
    type: Literal["User", "Bot", "Organization"] = "User"
    email: str = ""


ENGINEER = PracticeAccount(
    90_000_001, "release-engineer", "Release Engineer", True, email="release-engineer@practice.invalid"
)
#: The author of some of the tests, who can be assigned to fix them.
TEST_AUTHOR = PracticeAccount(90_000_005, "mlindqvist", "Mara Lindqvist", True, email="mara@practice.invalid")
CONTRIBUTOR = PracticeAccount(90_000_002, "outside-contributor", "Outside Contributor")
COPY_PR_BOT = PracticeAccount(90_000_003, "copy-pr-bot[bot]", "copy-pr-bot", True, "Bot")
ACTIONS_BOT = PracticeAccount(90_000_004, "github-actions[bot]", "github-actions", True, "Bot")
ACCOUNTS: dict[str, PracticeAccount] = {
    account.login: account for account in (ENGINEER, CONTRIBUTOR, COPY_PR_BOT, ACTIONS_BOT, TEST_AUTHOR)
}
