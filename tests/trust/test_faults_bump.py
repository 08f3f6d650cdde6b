"""A whole bump while a part of all answers is lost: it ends as it would have, and nothing is there twice."""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from fault_calls import CALLS
from fault_proxy import Exchange, Proxy, answer
from figures import Figures
from whole_bump import Played, playing, whole

from runbook_lib.errors import RunbookError
from runbook_lib.practice import state

T = TypeVar("T")

_TRIES = 8
_LOST = re.compile(r"cannot be reached|has an internal problem|not to be had|did not finish its answer")


def lost_before(it: Exchange) -> None:
    it.reset()


def lost_after(it: Exchange) -> None:
    it.real()
    it.reset()


def failed_after(it: Exchange) -> None:
    it.real()
    it.send(answer(502, b"<html>Bad Gateway</html>", [("Content-Type", "text/html")]))


@dataclass
class Ended:
    """What stands on the forge after a bump, the requests that led there, and how often a notebook was run again."""

    made: dict[str, Any]
    seen: set[tuple[str, str]]
    told: int
    struck: int


def bumped(home: Path, faults: Callable[[Exchange], None] | None, every: int) -> Ended:
    """A whole bump, of whose requests one in so many is broken; a notebook that says so, or warns, is run again.

    The first change of every kind is always broken: there are few of them among the requests.

    Drawn, for where each so-manieth is taken a notebook can meet the fault at the same request in every run.
    """
    proxy, told, struck, draw = Proxy(""), 0, 0, random.Random(every)
    changes: set[tuple[str, str]] = set()

    def broken(it: Exchange) -> None:
        nonlocal struck
        kind = it.asked.method, re.sub("[0-9]+", "*", it.asked.target)
        is_first_change = it.asked.method != "GET" and kind not in changes
        changes.add(kind)
        if faults and (is_first_change or draw.random() < 1 / every):
            struck += 1
            faults(it)
        else:
            it.send(bytes(it.real()))

    real = Played.do

    def do(self: Played, step: str, work: Callable[[], T]) -> T:
        nonlocal told
        for _ in range(_TRIES):
            try:
                left = real(self, step, work)
                if not (isinstance(left, dict) and _LOST.search(left["run"].record.show().text)):
                    return left
            except RunbookError:
                if not faults:
                    raise
            told += 1
        raise AssertionError(f"{step} did not come to its end in {_TRIES} runs")

    env = {"GITHUB_API_URL": proxy.url, "GITLAB_URL": f"{proxy.url}/gitlab"}
    with pytest.MonkeyPatch.context() as patch, playing(home, env) as played:
        patch.setattr(Played, "do", do)
        proxy.upstream = played.at.forge.url
        played.at.forge.hub.url = proxy.url
        with proxy.broken(broken, "", ""):
            whole(played)
        made = held(played)
    proxy.close()
    return Ended(made, set(proxy.seen), told, struck)


def held(played: Played) -> dict[str, Any]:
    """What stands on the forge, without what differs from bump to bump."""
    store = played.at.forge.hub.store
    with store.transaction():
        tickets, comments = store.all(state.TicketRecord), store.all(state.CommentRecord)
        runs, attempts = store.all(state.RunRecord), store.all(state.AttemptRecord)

    def same(text: str | None) -> str:
        return re.sub(r"\b[0-9a-f]{10,40}\b|127\.0\.0\.1:[0-9]+|\b5[0-9]{9}\b", "*", text or "")

    return {
        # An issue that could not be filed comes after the others.
        "tickets": sorted((it.title, it.state, it.labels, it.head_ref) for it in tickets),
        "comments": [(it.number, it.author, same(it.body)) for it in comments],
        "runs": [(it.head_branch, it.event) for it in runs],
        "attempts": len(attempts),
    }


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return bumped(tmp_path_factory.mktemp("right"), None, 1)


def test_every_kind_of_request_of_a_bump_is_attacked(right: Ended) -> None:
    def known(method: str, target: str) -> bool:
        return any(it.method == method and re.search(it.route, target) for it in CALLS.values())

    assert len(right.seen) > 50
    assert not sorted(it for it in right.seen if not known(*it))


@pytest.mark.parametrize("work", [lost_before, lost_after, failed_after])
def test_a_bump_on_a_bad_network(
    tmp_path: Path, right: Ended, figures: Figures, work: Callable[[Exchange], None]
) -> None:
    ended = bumped(tmp_path, work, 5)
    assert ended.struck > 10
    assert ended.made["tickets"] == right.made["tickets"]
    # A fault may postpone a step to the next round, so that the number of rounds differs: each is authorized once.
    for key in ("comments", "runs"):
        assert set(ended.made[key]) == set(right.made[key])
    authorized = [body for _, _, body in ended.made["comments"] if body.startswith("/ok to test")]
    assert len(authorized) == len([branch for branch, _ in ended.made["runs"] if branch.startswith("pull-request/")])
    figures["faults"] += ended.struck
