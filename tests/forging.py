"""A practice forge with its remote and a checkout, seen through the port: in process, or with the real client."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import bumping
import described
from bumping import BRANCH, CONTRIBUTOR, git
from controls import Controls
from github_server.server import Forge as Server
from werkzeug.wrappers import Request, Response

from runbook_lib.world.ports import Forge

_TOKENS = {"release-engineer": "practice-token", CONTRIBUTOR: "contributor-token"}
_answer = Server.answer


def _judged(server: Server, request: Request) -> Response:
    """Answer a request; GitHub's published description judges both, where that is installed."""
    body = request.get_data()
    given = _answer(server, request)
    if described.FILE.exists() and not request.path.startswith("/_storage/"):
        judge, url = described.description(), request.full_path.removesuffix("?")
        problems = judge.request(request.method, url, dict(request.headers), body)
        problems += judge.answer(request.method, url, given.status_code, dict(given.headers), given.get_data())
        assert not problems, f"{request.method} {url}: {problems}"
    return given


@dataclass
class World:
    """The forge, and a checkout to push from; ``over_http``: accounts see it with the real client."""

    made: bumping.World
    over_http: bool

    @property
    def forge(self) -> Forge:
        return self.seen_by("release-engineer")

    @property
    def controls(self) -> Controls:
        return self.made.forge

    def seen_by(self, login: str) -> Forge:
        see = self.made.online if self.over_http else self.made.github
        found: Forge = see(_TOKENS[login])
        return found

    def later(self, seconds: float = 200) -> None:
        """Let time pass, by default until CI has ended."""
        self.made.now[0] += seconds

    def commit(self, revision: str) -> str | None:
        """The commit that a revision names on the forge, or None."""
        return self.controls.hub.home.find(revision)

    def git(self, *arguments: str) -> str:
        return git(self.made.checkout.path, *arguments)

    def push(self, branch: str = BRANCH, pin: str = "26.04-py3", to: str = "origin") -> str:
        """A commit on a branch from main, or one more on it, that sets the pin."""
        known = self.git("branch", "--list", branch)
        self.git("checkout", "-q", *([branch] if known else ["-b", branch, "origin/main"]))
        (self.made.checkout.path / "docker/.ngc_version.dev").write_text(f"nvcr.io/nvidia/pytorch:{pin}\n")
        self.git("commit", "-q", "--allow-empty", "-am", f"chore: Update to {pin}")
        self.git("push", "-q", to, f"+HEAD:refs/heads/{branch}")
        return self.git("rev-parse", "HEAD")

    def opened(self, *labels: str) -> str:
        """Open pull request 10; return its head."""
        sha = self.push()
        assert self.forge.open_pull("chore: bump", f"practice:{BRANCH}", "main", "Why").number == 10
        for label in labels:
            self.forge.add_label(10, label)
        return sha

    def tested(self, *labels: str) -> int:
        """Number of the run of a new pull request with these labels."""
        self.forge.comment(10, f"/ok to test {self.opened(*labels)}")
        return self.forge.runs(branch="pull-request/10")[0].id


@contextmanager
def world(folder: Path, *, over_http: bool = False) -> Iterator[World]:
    with patch.object(Server, "answer", _judged), bumping.world(folder) as made:
        yield World(made, over_http)
