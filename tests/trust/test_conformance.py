"""What we send to GitHub and what the practice forge answers, held against GitHub's own description of its API."""

import described
import pytest
import token_rights
from github_server import server
from whole_bump import Exchange, undisturbed

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
    assert [each for each in done.found.requirements if each.blocks] == []
    assert judged(done.exchanges) == []
    assert {*needs(done.exchanges), "metadata=read"} == {*preflight.PERMISSIONS}
