"""A practice forge with its remote and a checkout, seen through the port: in process, or with the real client."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import described
from bumping import CONTRIBUTOR, REPOSITORY, forge_of, git
from controlled_forge import ControlledForge
from controls import Controls
from werkzeug.wrappers import Request, Response

from runbook_lib.clients.github.client import GitHub
from runbook_lib.practice.store import ACCOUNTS, ENGINEER, Store
from runbook_lib.world.ports import Forge

BRANCH = "bump/main/dev-26.04-py3"
_TOKENS = {ENGINEER.login: "practice-token", CONTRIBUTOR: "contributor-token"}


class Heard(ControlledForge):
    """A server whose requests and answers GitHub's published description judges, where that is installed."""

    def answer(self, request: Request) -> Response:
        body = request.get_data()
        given = super().answer(request)
        if described.FILE.exists() and not request.path.startswith("/_storage/"):
            judge, url = described.description(), request.full_path.removesuffix("?")
            problems = judge.request(request.method, url, dict(request.headers), body)
            problems += judge.answer(request.method, url, given.status_code, dict(given.headers), given.get_data())
            assert not problems, f"{request.method} {url}: {problems}"
        return given


class World:
    """The forge, a checkout to push from, and a clock; ``over_http``: accounts see it with the real client."""

    def __init__(self, folder: Path, undo: ExitStack, *, over_http: bool) -> None:
        self.remote, self.checkout, self.now = folder / "remote.git", folder / "checkout", 1_800_000_000.0
        store, fork = Store(folder / "forge.sqlite"), folder / CONTRIBUTOR / "Megatron-LM.git"
        undo.callback(store.close)
        self.undo, self.controls = undo, Controls(forge_of(store, folder, lambda: self.now, seconds=20))
        self._served = None
        if over_http:
            forks = {CONTRIBUTOR: fork}
            heard = Heard(folder / "forge.sqlite", self.remote, lambda: self.now, forks)
            self._served = undo.enter_context(heard)
        self.fork = fork
        self.forge = self.seen_by(ENGINEER.login)

    def seen_by(self, login: str) -> Forge:
        if self._served is None:
            return self.controls.hub.seen_by(ACCOUNTS[login])
        env = {"GITHUB_TOKEN": _TOKENS[login], "GITHUB_API_URL": self._served.url}
        return self.undo.enter_context(GitHub(REPOSITORY, env))

    def commit(self, revision: str) -> str | None:
        """The commit that a revision names on the forge, or None."""
        return self.controls.hub.home.resolve(revision)

    def push(self, branch: str = BRANCH, pin: str = "26.04-py3", to: str = "origin") -> str:
        """A commit on a branch from main, or one more on it, that sets the pin."""
        if git(self.checkout, "branch", "--list", branch):
            git(self.checkout, "checkout", "-q", branch)
        else:
            git(self.checkout, "checkout", "-q", "-b", branch, "origin/main")
        (self.checkout / "docker/.ngc_version.dev").write_text(f"nvcr.io/nvidia/pytorch:{pin}\n")
        git(self.checkout, "commit", "-q", "--allow-empty", "-am", f"chore: Update to {pin}")
        git(self.checkout, "push", "-q", to, f"+HEAD:refs/heads/{branch}")
        return git(self.checkout, "rev-parse", "HEAD")

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
def copied(seeded: Path, folder: Path, *, over_http: bool = False) -> Iterator[World]:
    """A world of a test's own, from repositories that were seeded once."""
    shutil.copytree(seeded, folder, dirs_exist_ok=True)
    remote, fork = folder / "remote.git", folder / CONTRIBUTOR / "Megatron-LM.git"
    git(folder, "clone", "-q", "--bare", "--shared", str(remote), str(fork))
    git(folder / "checkout", "remote", "set-url", "origin", str(remote))
    with ExitStack() as undo:
        yield World(folder, undo, over_http=over_http)
