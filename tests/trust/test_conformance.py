"""What we send to GitHub and what the practice forge answers, held against GitHub's own description of its API."""

from pathlib import Path

import described
import pytest
import token_rights
from github_server import server
from token_rights import TOKENS, Token
from whole_bump import Exchange, playing, whole

from runbook_lib.bump import token_scopes

pytestmark = pytest.mark.component("github-api")


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


def needs(exchanges: list[Exchange]) -> set[str]:
    """The permissions without which a step is refused something, by what the forge holds of each operation."""
    asked = set()
    for it in exchanges:
        match = server.match_route(it.request.method, it.request.path)
        assert match
        asked |= {token_rights.needs(match[0])} if it.step != "a person" else set()
    return token_rights.least(set(filter(None, asked)))


@pytest.mark.parametrize(
    ("token", "private"),
    [(TOKENS["practice-token"], False), (Token.fine_grained(*token_scopes.PERMISSIONS), True)],
    ids=["the usual token", "the least token, and a private repository"],
)
def test_a_complete_bumps_messages_satisfy_githubs_description(token: Token, private: bool, tmp_path: Path) -> None:
    with playing(tmp_path, {"GITHUB_TOKEN": "this"}) as played:
        played.at.served.issue_token("this", token)
        played.at.served.make_private(private)
        found = whole(played)
    assert found.requirements
    assert found.missing == ()
    assert judged(played.exchanges) == []
    if not private:  # there the token is asked what it may read, by one request for each permission
        assert {*needs(played.exchanges), "metadata=read"} == {*token_scopes.PERMISSIONS}
