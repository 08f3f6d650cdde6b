"""What we send to GitHub and what the practice forge answers, held against GitHub's own description of its API."""

from pathlib import Path

import described
import pytest
import token_rights
from github_server import server
from token_rights import Token
from whole_bump import Exchange, playing, undisturbed

from runbook_lib.bump import preflight

pytestmark = pytest.mark.component("github-api")


def judged(exchanges: list[Exchange]) -> list[str]:
    """What is wrong with these requests and answers."""
    judge, wrong = described.description(), []
    # What is asked again and answered as before is judged once.
    for it in {(it.url, it.request.method, it.request.data, it.answer.data): it for it in exchanges}.values():
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


def test_a_complete_bumps_messages_satisfy_githubs_description() -> None:
    done = undisturbed()
    assert done.found.requirements
    assert done.found.missing == ()
    assert judged(done.exchanges) == []
    assert {*needs(done.exchanges), "metadata=read"} == {*preflight.PERMISSIONS}


def test_the_least_token_begins_a_bump_of_a_private_repository(tmp_path: Path) -> None:
    """There it is asked what it may read, by one request for each permission."""
    with playing(tmp_path, {"GITHUB_TOKEN": "this"}) as played:
        played.at.served.issue_token("this", Token.fine_grained(*preflight.PERMISSIONS))
        played.at.served.make_private(True)
        for name in ("00-preflight", "03-open-pr", "04-run-ci"):
            played.play(name)
        assert [it for it in played.at.github().comments(10) if it.body.startswith("/ok to test")]
    assert judged(played.exchanges) == []
