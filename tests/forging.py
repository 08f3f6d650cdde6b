"""A practice forge with its remote and a checkout, spoken to over HTTP; GitHub's own description judges it."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import described
import httpx
from controlled_forge import ControlledForge

from runbook_lib.practice.git import BareRepository

REPO = "/repos/practice/Megatron-LM"
BRANCH = "bump/main/dev-26.04-py3"
START = 1_800_000_000.0


def problems(response: httpx.Response) -> list[str]:
    """What is wrong with an answer's form, by the description of its operation."""
    request = response.request
    url = request.url.raw_path.decode()
    judge = described.description()
    return judge.answer(request.method, url, response.status_code, response.headers, response.content)


# -- the world of a test --------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


class World:
    """A forge with its remote, a checkout to push from, and clients."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.remote, self.checkout = folder / "remote.git", folder / "checkout"
        self.answered: list[httpx.Response] = []
        self.clients: dict[str, httpx.Client] = {}
        self.forge = ControlledForge(folder / "forge.sqlite", self.remote, clock=self.clock, ci_seconds=20)

    def call(self, method: str, path: str, *, token: str = "practice-token", **options: Any) -> httpx.Response:
        if token not in self.clients:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            self.clients[token] = httpx.Client(base_url=self.forge.url, headers=headers, trust_env=False)
        response = self.clients[token].request(method, path, **options)
        self.answered.append(response)
        return response

    def get(self, path: str, expected: int = 200, **options: Any) -> Any:
        return self.done(self.call("GET", path, **options), expected)

    def post(self, path: str, json: Any, expected: int = 201, **options: Any) -> Any:
        return self.done(self.call("POST", path, json=json, **options), expected)

    def done(self, response: httpx.Response, expected: int) -> Any:
        assert response.status_code == expected, response.text
        return response.json() if response.content else None

    def git(self, *args: str) -> str:
        command = ["git", "-C", str(self.checkout), *args]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def remote_commit(self, revision: str) -> str | None:
        """The commit that a revision names in the forge's repository, or None."""
        return BareRepository(self.remote).resolve(revision)

    def push(self, branch: str = BRANCH, pin: str = "26.04-py3") -> str:
        """A commit on a branch from main, or one more on it, that sets the pin."""
        if self.git("branch", "--list", branch):
            self.git("checkout", "-q", branch)
            self.git("commit", "-q", "--allow-empty", "-m", "another")
        else:
            self.git("checkout", "-q", "-b", branch, "origin/main")
        (self.checkout / "docker/.ngc_version.dev").write_text(f"nvcr.io/nvidia/pytorch:{pin}\n")
        self.git("commit", "-q", "--allow-empty", "-am", f"chore: Update to {pin}")
        self.git("push", "-q", "origin", f"+HEAD:refs/heads/{branch}")
        return self.git("rev-parse", "HEAD")

    def open_pull(self, **more: Any) -> Any:
        asked = {"title": "chore: bump", "head": BRANCH, "base": "main", "body": "Why", "draft": True} | more
        return self.post(f"{REPO}/pulls", asked)

    def label(self, number: int, *names: str) -> None:
        self.post(f"{REPO}/issues/{number}/labels", {"labels": list(names)}, 200)

    def comment(self, number: int, body: str) -> list[str]:
        """The bots' words in answer to a comment."""
        before = len(self.comments(number))
        self.post(f"{REPO}/issues/{number}/comments", {"body": body})
        return [each["body"] for each in self.comments(number)[before + 1 :]]

    def comments(self, number: int) -> list[Any]:
        found: list[Any] = self.get(f"{REPO}/issues/{number}/comments")
        return found

    def authorized(self, *labels: str) -> tuple[int, int]:
        """Number of a new pull request and id of its run."""
        sha = self.push()
        number = self.open_pull()["number"]
        if labels:
            self.label(number, *labels)
        self.comment(number, f"/ok to test {sha}")
        return number, self.runs()[0]["id"]

    def runs(self, **query: str) -> list[Any]:
        """The runs of pull requests, unless others are asked for."""
        found: list[Any] = self.get(f"{REPO}/actions/runs", params=query)["workflow_runs"]
        return [run for run in found if query.get("branch") or run["head_branch"] != "main"]

    def run(self, run_id: int) -> Any:
        return self.get(f"{REPO}/actions/runs/{run_id}")

    def jobs(self, run_id: int, **query: str) -> list[Any]:
        asked = {"per_page": "100", **query}
        found: list[Any] = self.get(f"{REPO}/actions/runs/{run_id}/jobs", params=asked)["jobs"]
        return found


@contextmanager
def copied(seeded: Path, folder: Path) -> Iterator[World]:
    """A world of a test's own, from repositories that were seeded once."""
    shutil.copytree(seeded, folder, dirs_exist_ok=True)
    made = World(folder)
    made.git("remote", "set-url", "origin", str(made.remote))
    yield made
    for client in made.clients.values():
        client.close()
    made.forge.close()
    # Whatever the test was about, the forms of the answers were right.
    if described.FILE.exists():
        for response in made.answered:
            if response.headers.get("Content-Type", "").startswith("application/json"):
                assert not problems(response), f"{response.request.method} {response.request.url}"
