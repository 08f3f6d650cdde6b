"""A whole bump, notebook by notebook in this process, and all that it says to the practice forge and hears from it.

The code cells of the notebooks are run as they stand, one after the other, without a kernel: a kernel more would cost
three seconds a notebook, and the forge's clock is ours here.
"""

import atexit
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import pytest
from bumping import World, bump_to, world, written
from cells import cells
from github_server.server import Forge
from practised import ACCEPT, BROKEN, TAG
from registry_server import RegistryServer
from werkzeug.wrappers import Request, Response

from runbook_lib.bump import ready
from runbook_lib.world.bump_branch import BumpBranch

T = TypeVar("T")

HANG = "gpt3_mcore_te_tp4_pp1_long@dgx_h100"


@dataclass(frozen=True)
class Exchange:
    """A request to GitHub's API, its answer, and in which notebook or command it was."""

    step: str
    request: Request
    answer: Response

    @property
    def url(self) -> str:
        """Path and query."""
        return quote(self.request.path) + (f"?{urlencode(self.request.args)}" if self.request.args else "")


@dataclass
class Played:
    """``exchanges`` grows as steps are played."""

    at: World
    exchanges: list[Exchange] = field(default_factory=list)
    step: str = ""

    def do(self, step: str, work: Callable[[], T]) -> T:
        """Do a thing; on a bad network a person does it until it is done."""
        self.step = step
        return work()

    def play(self, notebook: str, **parameters: Any) -> dict[str, Any]:
        """Run a notebook's code; what its cells left behind."""
        return self.do(notebook, lambda: self._play(notebook, parameters))

    def _play(self, notebook: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        left: dict[str, Any] = {}
        given = {"tag": TAG, "repo": str(self.at.home / "checkout"), "mode": "publish"} | parameters
        for index, code in enumerate(cells(notebook)):
            exec(code, left)
            left.update({name: value for name, value in given.items() if index == 0})
        return left

    def later(self) -> None:
        """CI ends."""
        self.at.now[0] += 1000


@contextmanager
def playing(home: Path) -> Iterator[Played]:
    """A practice environment of its own, reached by the environment as a real one is."""
    with world(home) as at, closing(RegistryServer()) as images, pytest.MonkeyPatch.context() as patch:
        played = Played(at)
        answer = Forge.answer

        def heard(forge: Forge, request: Request) -> Response:
            request.get_data()  # keeps the body, which cannot be read later
            given = answer(forge, request)
            if not request.path.startswith("/_storage/"):
                played.exchanges.append(Exchange(played.step, request, given))
            return given

        patch.setattr(Forge, "answer", heard)
        for name, value in {
            "GITHUB_API_URL": at.served.url, "GITHUB_TOKEN": "practice-token", "RUNBOOK_REGISTRY": images.url,
            "RUNBOOK_AUDIT": str(home / "audit"), "RUNBOOK_PRACTICE_HOME": str(home / "practice"),
        }.items():  # fmt: skip
            patch.setenv(name, value)
        patch.delenv("GITLAB_URL", raising=False)
        yield played


def whole(played: Played) -> ready.ReadyFacts:
    """From the first look to what is left after the merge, with all that a person decides on the way."""
    at = played.at
    for name in ("00-start", "00-preflight", "01-github-pin", "02-gitlab-pin", "03-open-pr"):
        played.play(name)
    # It would let CI run less than a bump needs.
    played.do("a person", lambda: at.online().add_label(10, "Run tests"))
    played.play("03-open-pr")
    played.play("04-run-ci")
    played.later()
    played.play("investigate-ci", place="#10")
    told = written(at.home / "decisions.yaml", accept=ACCEPT, broken=BROKEN, confirm="divergence")
    played.play("05-golden-values", decisions=told)
    played.play("06-broken-tests", decisions=told)
    for _ in range(3):
        played.play("04-run-ci")
        played.later()
        played.play("05-golden-values")
        played.play("06-broken-tests")  # and runs again what is flaky
        played.later()
    records = played.play("07-sync-check")["run"].record.records
    decided = bump_to(allow="second-ci-unseen", accept=ACCEPT, confirm="divergence")
    branch = BumpBranch.find(at.checkout, decided)
    found = played.do("bump", lambda: ready.check(branch, at.online(), records))
    written(at.home / "decisions.yaml", reenable=f"{HANG}: mended")
    played.play("06-broken-tests", decisions=told)
    played.play("04-run-ci")
    played.step = "a person"
    at.forge.merge(10)
    played.play("08-after-merge")
    played.later()
    played.play("08-after-merge")
    return found


@dataclass(frozen=True)
class Done:
    """A bump that nothing has disturbed: what was said, what the forge holds, and what was found at its end."""

    exchanges: list[Exchange]
    held: Mapping[str, Any]
    found: ready.ReadyFacts


@cache
def undisturbed() -> Done:
    """Once per process."""
    folder = tempfile.mkdtemp(prefix="undisturbed-")
    atexit.register(shutil.rmtree, folder)  # its records are looked at once more when this process ends
    with playing(Path(folder, "home")) as played:
        found = whole(played)
        return Done(played.exchanges, held(played), found)


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
