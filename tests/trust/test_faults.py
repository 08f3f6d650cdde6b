"""A whole bump whose forge loses connections and answers: it ends as it would have, and nothing is there twice."""

import random
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest
from github_server.server import Forge
from werkzeug.wrappers import Request, Response
from whole_bump import Played, playing, whole

from runbook_lib.errors import RunbookError

T = TypeVar("T")
Fault = Callable[[Request, Callable[[], Response]], Response]

#: How often a person runs a notebook again that says that the network failed.
_TRIES = 20
_EVERY = 5  # one in so many requests fails
_LOST = re.compile(r"cannot be reached|has an internal problem|not to be had|did not finish its answer|limits the rate")


def _cut(request: Request) -> NoReturn:
    request.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionResetError


def cut_before(request: Request, _: Callable[[], Response]) -> Response:
    _cut(request)


def cut_after(request: Request, carry_out: Callable[[], Response]) -> Response:
    carry_out()
    _cut(request)


def bad_gateway_after(_: Request, carry_out: Callable[[], Response]) -> Response:
    carry_out()
    return Response("<html>Bad Gateway</html>", 502, content_type="text/html")


def too_many(_: Request, __: Callable[[], Response]) -> Response:
    return Response('{"message": "Too many"}', 429, {"Retry-After": "0"}, content_type="application/json")


@dataclass
class Ended:
    """What the forge holds after a bump, and how many requests met the fault."""

    held: Mapping[str, Any]
    struck: int


def bumped(home: Path, faults: Sequence[Fault]) -> Ended:
    """A whole bump, each notebook of which is run again when it says that the network failed.

    The first change of every kind meets one of the faults, and a drawn part of all other requests.
    """
    draw, struck, changes = random.Random(5), 0, set[tuple[str, str]]()
    do = Played.do

    def answered(answer: Callable[[Forge, Request], Response], forge: Forge, request: Request) -> Response:
        nonlocal struck
        kind = request.method, re.sub("[0-9]+", "*", request.path)
        is_first_change = request.method != "GET" and kind not in changes
        changes.add(kind)
        if not faults or not (is_first_change or draw.random() < 1 / _EVERY):
            return answer(forge, request)
        struck += 1
        return draw.choice(faults)(request, lambda: answer(forge, request))

    def repeated(played: Played, step: str, work: Callable[[], T]) -> T:
        for _ in range(_TRIES):
            try:
                left = do(played, step, work)
            except RunbookError:
                if not faults:
                    raise
                continue
            if not (isinstance(left, dict) and _LOST.search(left["run"].record.show().text)):
                return left
        raise AssertionError(f"{step} did not come to its end in {_TRIES} runs")

    with playing(home) as played, pytest.MonkeyPatch.context() as patch:
        answer = Forge.answer
        patch.setattr(Forge, "answer", lambda *of: answered(answer, *of))
        patch.setattr(Played, "do", repeated)
        whole(played)
        return Ended(held(played), struck)


def held(played: Played) -> dict[str, Any]:
    """What the forge holds, without what differs from bump to bump."""
    with played.at.forge.hub.store.transaction() as state:
        tickets, runs = state.tickets, state.runs

    def same(text: str) -> str:
        return re.sub(r"\b[0-9a-f]{10,40}\b|127\.0\.0\.1:[0-9]+|\b5[0-9]{9}\b", "*", text)

    return {
        # An issue that could not be filed at first comes after the others.
        "tickets": sorted((it.title, it.state, it.labels, it.head_ref) for it in tickets),
        "comments": [(it.number, each.author, same(each.body)) for it in tickets for each in it.comments],
        "runs": [(it.head_branch, it.event) for it in runs],
    }


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return bumped(tmp_path_factory.mktemp("right"), ())


@pytest.mark.parametrize("faults", [(cut_after,), (cut_before, bad_gateway_after, too_many)], ids=["lost", "mixed"])
def test_a_bump_on_a_bad_network(tmp_path: Path, right: Ended, faults: Sequence[Fault]) -> None:
    ended = bumped(tmp_path, faults)
    assert ended.struck > 10
    assert ended.held["tickets"] == right.held["tickets"]
    # A fault may postpone a step to the next round, so that the number of rounds differs: each is authorized once.
    for key in ("comments", "runs"):
        assert set(ended.held[key]) == set(right.held[key])
    authorized = [body for _, _, body in ended.held["comments"] if body.startswith("/ok to test")]
    assert len(authorized) == len([branch for branch, _ in ended.held["runs"] if branch.startswith("pull-request/")])
