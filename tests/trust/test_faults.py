"""A whole bump whose forge loses connections and answers: it ends as it would have, and nothing is there twice."""

import random
import re
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest
from github_server.server import Forge
from werkzeug.wrappers import Request, Response
from whole_bump import Played, held, playing, undisturbed, whole

from runbook_lib.errors import RunbookError
from runbook_lib.world.transport import http

T = TypeVar("T")
Fault = Callable[[Request, Callable[[], Response]], Response]

#: How often a person runs a notebook again that says that the network failed.
_TRIES = 40
_EVERY = 5  # one in so many requests that read fails
_SLOW = 1.0  # seconds after which nobody waits for an answer any more
_LOST = re.compile(r"gave no usable answer|could not be read|did not finish its answer")
#: Ends git's server for the branch's push, once.
_HOOK = '#!/bin/sh\nrm "$0"\nkill -9 $PPID\n'


def _cut(request: Request) -> NoReturn:
    request.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionResetError


def cut_before(request: Request, _: Callable[[], Response]) -> Response:
    _cut(request)


def cut_after(request: Request, carry_out: Callable[[], Response]) -> Response:
    carry_out()
    _cut(request)


def bad_gateway(_: Request, __: Callable[[], Response]) -> Response:
    return Response("<html>Bad Gateway</html>", 502, content_type="text/html")


def too_many(_: Request, __: Callable[[], Response]) -> Response:
    return Response('{"message": "Too many"}', 429, {"Retry-After": "0"}, content_type="application/json")


def slow(_: Request, carry_out: Callable[[], Response]) -> Response:
    answer = carry_out()
    time.sleep(_SLOW + 1)
    return answer


@dataclass
class Ended:
    """What the forge holds after a bump, and which faults each kind of change met."""

    held: Mapping[str, Any]
    met: Mapping[tuple[str, str], list[Fault]]


def bumped(home: Path, faults: Sequence[Fault]) -> Ended:
    """A whole bump, each notebook of which is run again when it says that the network failed.

    Each kind of change meets these faults, one after the other, before it succeeds, and so does the push; requests that
    read meet the first at times.
    """
    draw, met = random.Random(5), defaultdict[tuple[str, str], list[Fault]](list)
    do = Played.do

    def answered(answer: Callable[[Forge, Request], Response], forge: Forge, request: Request) -> Response:
        kind = request.method, re.sub("[0-9]+", "*", request.path)
        if request.method == "GET":
            lost = faults[:1] if draw.random() < 1 / _EVERY and faults[0] is not slow else ()
        else:
            lost = faults[len(met[kind]) :][:1]
            met[kind] += lost
        return lost[0](request, lambda: answer(forge, request)) if lost else answer(forge, request)

    def repeated(played: Played, step: str, work: Callable[[], T]) -> T:
        for _ in range(_TRIES):
            try:
                left = do(played, step, work)
            except RunbookError:
                continue
            if not (isinstance(left, dict) and _LOST.search(left["run"].record.show().text)):
                return left
        raise AssertionError(f"{step} did not come to its end in {_TRIES} runs")

    with playing(home) as played, pytest.MonkeyPatch.context() as patch:
        answer = Forge.answer
        patch.setattr(Forge, "answer", lambda *of: answered(answer, *of))
        patch.setattr(Played, "do", repeated)
        patch.setattr(http, "DEADLINE", _SLOW)
        for name in ("pre-receive", "post-receive"):
            hook = played.at.remote / "hooks" / name
            hook.parent.mkdir(exist_ok=True)
            hook.write_text(_HOOK)
            hook.chmod(0o755)
        whole(played)
        assert not list((played.at.remote / "hooks").glob("*-receive"))
        return Ended(held(played), met)


FAULTS = {"lost": (cut_before, too_many, bad_gateway, cut_after), "slow": (slow,)}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("faults", FAULTS)
def test_each_change_meets_a_bad_network(tmp_path: Path, faults: str) -> None:
    ended = bumped(tmp_path, FAULTS[faults])
    assert len(ended.met) == 7, "a request of a new kind that changes something?"
    assert {kind: tuple(met) for kind, met in ended.met.items()} == dict.fromkeys(ended.met, FAULTS[faults])
    right = undisturbed().held
    assert ended.held["tickets"] == right["tickets"]
    # A fault may postpone a step to the next round, so that the number of rounds differs: each is authorized once.
    for key in ("comments", "runs"):
        assert set(ended.held[key]) == set(right[key])
    authorized = [body for _, _, body in ended.held["comments"] if body.startswith("/ok to test")]
    assert len(authorized) == len([branch for branch, _ in ended.held["runs"] if branch.startswith("pull-request/")])
