"""What a token lacks is told before anything is written: tokens of all kinds, on a public and a private repository."""

import pytest
from bumping import World, bump_to
from people import STRANGER
from token_rights import Token

from runbook_lib.bump import preflight
from runbook_lib.bump.preflight import PERMISSIONS
from runbook_lib.errors import RunbookError
from runbook_lib.model import Check
from runbook_lib.practice.store import ENGINEER
from runbook_lib.world.github.models import RIGHTS

READS = [each.replace("=write", "=read") for each in PERMISSIONS]
CLASSIC = {name: Token(ENGINEER, scopes=name) for name in ("repo", "repo, workflow", "public_repo", "gist", "")}
NARROW = Token.fine_grained("issues=write", "pull_requests=write", "contents=read")


def asked(world: World, token: Token, mode: str = "publish") -> Check:
    world.served.tokens["this"] = token
    *_, found = preflight.rights(world.github("this"), bump_to(mode=mode))
    return found


@pytest.mark.parametrize(
    ("token", "private", "status", "words"),
    [
        (CLASSIC["repo"], False, "passed", "every step"),
        (CLASSIC["repo, workflow"], True, "passed", "every step"),
        (Token(STRANGER, scopes="repo"), False, "passed", "every step"),
        (CLASSIC["public_repo"], False, "skipped", "to rerun failed jobs"),
        (CLASSIC["gist"], False, "failed", "has no scope for practice/Megatron-LM. A fine-grained token needs"),
        (CLASSIC[""], False, "failed", "The token of release-engineer has no scope"),
        (NARROW, False, "skipped", "Only writing shows whether the token of release-engineer may write. A fine-"),
        (NARROW, True, "failed", "may not read actions, deployments of practice/Megatron-LM"),
        (Token.fine_grained(*READS), True, "skipped", "Only writing shows"),
    ],
)
def test_missing_permissions_of_a_token(world: World, token: Token, private: bool, status: str, words: str) -> None:
    world.served.make_private(private)
    found = asked(world, token)
    assert (found.status, words in found.detail) == (status, True), found.detail
    assert asked(world, token, "preview").status == (status if status != "failed" else "skipped")


@pytest.mark.parametrize(
    ("token", "statuses"),
    [("contributor-token", ["passed", "skipped", "passed"]), ("practice-token", ["passed"] * 3)],
)
def test_only_accounts_with_the_right_can_set_labels(world: World, token: str, statuses: list[str]) -> None:
    assert [check.status for check in preflight.rights(world.github(token), bump_to())] == statuses


def test_a_private_repository_is_not_seen_without_the_scope(world: World) -> None:
    world.served.make_private()
    with pytest.raises(RunbookError, match=r"one of the scopes repo; the token has public_repo") as caught:
        asked(world, CLASSIC["public_repo"])
    assert "does not find it for this token" in str(caught.value)


def test_disabled_issues_are_not_a_missing_permission(world: World) -> None:
    world.served.make_private()
    world.served.hub.has_issues = False
    assert asked(world, Token.fine_grained(*READS)).status == "skipped"


def test_the_message_of_a_refusal_names_the_same_rights() -> None:
    listed = {access: [each.split("=")[0].replace("_", " ") for each in PERMISSIONS if each.endswith(access)]
              for access in ("read", "write")}  # fmt: skip
    assert listed == {"read": ["contents", "deployments", "metadata"], "write": ["actions", "issues", "pull requests"]}
    assert "read access to metadata, contents and deployments, and write access to actions, issues and pull" in RIGHTS
