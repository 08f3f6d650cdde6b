"""What a token lacks is told before anything is written: tokens of all kinds, on a public and a private repository."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from bumping import World, bump_to, world
from people import STRANGER
from token_rights import Token

from runbook_lib.bump import preflight, token_scopes
from runbook_lib.bump.token_scopes import NEEDS
from runbook_lib.checks import Check
from runbook_lib.clients.github.errors import RIGHTS
from runbook_lib.errors import RunbookError
from runbook_lib.practice.store import ENGINEER

READS = sorted({it.replace("=write", "=read") for need in NEEDS for it in need.permissions})
CLASSIC = {name: Token(ENGINEER, scopes=name) for name in ("repo", "repo, workflow", "public_repo", "gist", "")}
NARROW = Token.fine_grained("issues=write", "pull_requests=write", "contents=read")


@pytest.fixture
def at(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def asked(at: World, token: Token, mode: str = "publish") -> Check:
    at.served.issue_token("this", token)
    *_, found = preflight.rights(at.github("this"), bump_to(mode=mode))
    assert found.name == token_scopes.NAME
    return found


@pytest.mark.parametrize(
    ("token", "private", "status", "words"),
    [
        (CLASSIC["repo"], False, "passed", "every step"),
        (CLASSIC["repo, workflow"], True, "passed", "every step"),
        (Token(STRANGER, scopes="repo"), False, "passed", "every step"),
        (CLASSIC["public_repo"], False, "skipped", "05-golden-values, 06-broken-tests and investigate-ci may be"),
        (CLASSIC["gist"], False, "failed", "The scope public_repo is needed by 03-open-pr and 04-run-ci; the scope"),
        (CLASSIC[""], False, "failed", "The token of release-engineer does not have it for practice/Megatron-LM."),
        (NARROW, False, "skipped", "“Actions: read and write” is needed by 06-broken-tests;"),
        (NARROW, True, "failed", "The permission “Actions: read” is needed by 04-run-ci, 05-golden-values, 06-"),
        (NARROW, True, "failed", "“Deployments: read” is needed by 04-run-ci, 05-golden-values, 06-broken-tests and"),
        (Token.fine_grained(*READS), True, "skipped", "“Pull requests: read and write” is needed by 03-open-pr, 04"),
    ],
)  # fmt: skip
def test_missing_permissions_of_a_token(at: World, token: Token, private: bool, status: str, words: str) -> None:
    at.served.make_private(private)
    found = asked(at, token)
    assert (found.status, words in found.detail) == (status, True), found.detail
    assert asked(at, token, "preview").status == (status if status != "failed" else "skipped")


def test_a_private_repository_is_not_seen_without_the_scope(at: World) -> None:
    at.served.make_private()
    with pytest.raises(RunbookError, match=r"one of the scopes repo; the token has public_repo") as caught:
        asked(at, CLASSIC["public_repo"])
    assert "does not find it for this token" in str(caught.value)


def test_disabled_issues_are_not_a_missing_permission(at: World) -> None:
    at.served.make_private()
    at.served.disable_issues()
    assert asked(at, Token.fine_grained(*READS)).status == "skipped"


def test_the_message_of_a_refusal_names_the_same_rights() -> None:
    needed = {it for need in NEEDS for it in need.permissions}
    writes = sorted(it.removesuffix("=write").replace("_", " ") for it in needed if it.endswith("=write"))
    reads = sorted(
        name for it in needed if it.endswith("=read") and (name := it.removesuffix("=read")) not in writes
        and f"{name}=write" not in needed
    )  # fmt: skip
    assert (reads, writes) == (["contents", "deployments", "metadata"], ["actions", "issues", "pull requests"])
    assert "read access to metadata, contents and deployments, and write access to actions, issues and pull" in RIGHTS
