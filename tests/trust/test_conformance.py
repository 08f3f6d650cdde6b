"""What we send to GitHub and what the practice forge answers, held against GitHub's own description of its API."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import described
import pytest
import token_rights
from github_server import server
from token_rights import TOKENS, Token
from whole_bump import Exchange, playing, whole

from runbook_lib.bump import token_scopes
from runbook_lib.clients.github.client import GitHub

pytestmark = pytest.mark.component("github-api")

#: All that we ask of GitHub, in the words of its description; nothing else may be sent, and all of it is.
OPERATIONS = """
GET /user
GET /search/issues
GET /repos/{owner}/{repo}
GET /repos/{owner}/{repo}/actions/artifacts/{artifact_id}/{archive_format}
GET /repos/{owner}/{repo}/actions/jobs/{job_id}
GET /repos/{owner}/{repo}/actions/jobs/{job_id}/logs
GET /repos/{owner}/{repo}/actions/runs
GET /repos/{owner}/{repo}/actions/runs/{run_id}
GET /repos/{owner}/{repo}/actions/runs/{run_id}/artifacts
GET /repos/{owner}/{repo}/actions/runs/{run_id}/jobs
GET /repos/{owner}/{repo}/assignees/{assignee}
GET /repos/{owner}/{repo}/commits
GET /repos/{owner}/{repo}/compare/{basehead}
GET /repos/{owner}/{repo}/deployments
GET /repos/{owner}/{repo}/deployments/{deployment_id}/statuses
GET /repos/{owner}/{repo}/issues
GET /repos/{owner}/{repo}/issues/{issue_number}
GET /repos/{owner}/{repo}/issues/{issue_number}/comments
GET /repos/{owner}/{repo}/issues/{issue_number}/events
GET /repos/{owner}/{repo}/issues/{issue_number}/labels
GET /repos/{owner}/{repo}/pulls
GET /repos/{owner}/{repo}/pulls/{pull_number}
GET /repos/{owner}/{repo}/pulls/{pull_number}/files
POST /repos/{owner}/{repo}/actions/runs/{run_id}/rerun-failed-jobs
POST /repos/{owner}/{repo}/issues
POST /repos/{owner}/{repo}/issues/{issue_number}/comments
POST /repos/{owner}/{repo}/issues/{issue_number}/labels
POST /repos/{owner}/{repo}/pulls
PATCH /repos/{owner}/{repo}/pulls/{pull_number}
DELETE /repos/{owner}/{repo}/issues/comments/{comment_id}
DELETE /repos/{owner}/{repo}/issues/{issue_number}/labels/{name}
""".strip().splitlines()
#: The least that a fine-grained token must have for a whole bump of a private repository.
LEAST = token_scopes.PERMISSIONS


def judged(exchanges: list[Exchange]) -> list[str]:
    """What is wrong with these requests and answers."""
    judge, wrong = described.description(), []
    for it in exchanges:
        named = f"{it.step}: {it.request.method} {it.url}"
        wrong += [
            f"{named}: {problem}"
            for problem in judge.request(it.request.method, it.url, dict(it.request.headers), it.request.data)
        ]
        given = judge.answer(it.request.method, it.url, it.answer.status_code, dict(it.answer.headers), it.answer.data)
        wrong += [f"{named} answered {it.answer.status_code}: {problem}" for problem in given]
    return wrong


def operation(it: Exchange) -> str:
    found = described.description().operation(it.request.method, it.request.path)
    return found.name if found else f"{it.request.method} {it.request.path}"


# -- a whole bump ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "private"),
    [(TOKENS["practice-token"], False), (Token.fine_grained(*LEAST), True)],
    ids=["the usual token", "the least token, and a private repository"],
)
def test_a_complete_bumps_messages_satisfy_githubs_description(
    token: Token, private: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = spied(monkeypatch)
    with playing(tmp_path, {"GITHUB_TOKEN": "this"}) as played:
        played.at.served.issue_token("this", token)
        played.at.served.make_private(private)
        found = whole(played)
    assert found.requirements
    assert found.missing == ()
    assert judged(played.exchanges) == []
    assert {operation(it) for it in played.exchanges} == {*OPERATIONS}
    # Only somebody else's pull request, issues filed at the same moment, and a private repository need the others.
    assert methods() - {"may_read", "may_write", "withdraw_issue"} <= called
    if not private:  # there the token is asked what it may read, by one request for each permission
        assert {*needs(played.exchanges), "metadata=read"} == {*token_scopes.PERMISSIONS}


def methods() -> set[str]:
    """The calls that a client of GitHub has."""
    plumbing = {"connect", "close", "path", "get", "pages", "send", "public", "exists"}
    return {name for name, it in vars(GitHub).items() if callable(it) and not name.startswith("_")} - plumbing


def spied(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The calls that are made from now on."""
    called: set[str] = set()

    def heard(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            called.add(name)
            return method(*args, **named)

        return call

    for name in methods():
        monkeypatch.setattr(GitHub, name, heard(name, getattr(GitHub, name)))
    return called


# -- the least that a token must have -------------------------------------------------------------------------------


def needs(exchanges: list[Exchange]) -> set[str]:
    """The permissions without which a step is refused something, by what the forge holds of each operation."""
    asked = {token_rights.needs(route_of(it)) for it in exchanges if it.step != "a person"}
    return token_rights.least({each for each in asked if each})


def route_of(it: Exchange) -> Any:
    match = server.match_route(it.request.method, it.request.path)
    assert match
    return match[0]


@pytest.mark.parametrize("route", server.ROUTES, ids=lambda it: f"{it.method} {it.path}")
def test_the_forge_requires_the_scopes_that_github_describes(route: Any) -> None:
    operation = described.description().operation(route.method, route.path)
    assert operation
    prose = " ".join(operation.described["description"].split())
    full = "need the `repo` scope to use this endpoint. " in prose + " " and "is private, OAuth" not in prose
    assert token_rights.is_full(route) == full
