"""The life of the practice environment, from the first start to the reset."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runbook_lib import practice
from runbook_lib.clients.registry.client import Registry
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.images.reference import ImageRef
from runbook_lib.practice import content as template
from runbook_lib.practice import world

ROOT = Path(__file__).resolve().parents[2]


def git(*args: str, env: dict[str, str] | None = None) -> str:
    return subprocess.run(["git", *args], check=True, capture_output=True, text=True, env=env).stdout.strip()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "state/practice"


@pytest.fixture(autouse=True)
def _practice_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`enter` and the command find the world of the test, and leave nothing behind in this process."""
    monkeypatch.setenv("RUNBOOK_PRACTICE_HOME", str(home))
    yield
    practice.enter("/")


class Launcher:
    """Another process that starts the world, says what it got, and holds it until it is told to end."""

    CODE = """
import json, sys
from runbook_lib import practice
world = practice.start()
print(json.dumps([world.running_elsewhere, world.env]), flush=True)
sys.stdin.readline()
world.close()
"""

    def __init__(self, before: str = "") -> None:
        command = [sys.executable, "-c", before + self.CODE]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def ready(self) -> tuple[bool, dict[str, str]]:
        assert self.process.stdout is not None
        elsewhere, env = json.loads(self.process.stdout.readline())
        return elsewhere, env

    def end(self, kill: bool = False) -> int:
        if kill:
            self.process.kill()
        self.process.communicate("\n", timeout=100)
        return self.process.returncode


# A new world


def test_a_new_world_is_a_clean_checkout_with_its_remote(home: Path) -> None:
    with practice.start() as new:
        assert not new.running_elsewhere
        assert new.checkout == home / "Megatron-LM"
        assert new.advice == ""
        inside = ("-C", str(new.checkout))
        assert git(*inside, "status", "--porcelain", "--branch") == "## main...origin/main"
        assert git(*inside, "remote", "get-url", "origin") == str(home / "remote.git")
        assert git(*inside, "ls-files") == "\n".join(template.main())
        assert sorted(git(*inside, "branch", "-r", "--format=%(refname:short)").split())[1:] == [
            "origin/core_r0.1.0",
            "origin/dev",
            "origin/main",
        ]
        assert home.stat().st_mode & 0o777 == 0o700


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RUNBOOK_PRACTICE_HOME")
    assert practice.default_home() == Path.home() / ".local/state/base-image-runbook/practice"
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/ignored")
    assert practice.default_home() == Path.home() / ".local/state/base-image-runbook/practice"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert practice.default_home() == tmp_path / "base-image-runbook/practice"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUNBOOK_PRACTICE_HOME", "here")
    assert practice.default_home() == tmp_path / "here"


# A world that exists


def test_work_survives_the_end_of_the_launcher(home: Path) -> None:
    with practice.start() as first:
        git("-C", str(first.checkout), "switch", "--quiet", "-c", "mine")
        (first.checkout / "new.txt").write_text("mine")
    with practice.start() as second:
        assert git("-C", str(second.checkout), "status", "--porcelain", "--branch") == "## mine\n?? new.txt"


def test_a_second_launcher_joins_the_first(home: Path) -> None:
    first = practice.start()
    second = practice.start()
    assert second.running_elsewhere
    assert second.env == first.env
    assert second.launcher.pid == os.getpid()
    second.close()
    assert world.responds(first.launcher.forge)
    first.close()
    first.close()
    with practice.start() as third:  # the port may belong to another program by now
        assert not third.running_elsewhere


def test_the_lock_of_a_dead_launcher_is_free(home: Path) -> None:
    launcher = Launcher()
    _, env = launcher.ready()
    assert launcher.end(kill=True) == -signal.SIGKILL
    with practice.start() as next_one:
        assert not next_one.running_elsewhere
        assert next_one.env == env


def test_a_world_whose_creator_was_killed_is_created_again(home: Path) -> None:
    die = """
import os, signal
from runbook_lib.practice import seed
whole = seed.create
def create(remote, checkout, gitlab):
    whole(remote, checkout, gitlab)
    (checkout / "README.md").unlink()
    os.kill(os.getpid(), signal.SIGKILL)
seed.create = create
"""
    assert Launcher(die).end() == -signal.SIGKILL
    assert (home / "Megatron-LM").exists()
    with practice.start() as new:
        assert git("-C", str(new.checkout), "status", "--porcelain") == ""


# What is refused


def test_a_folder_with_other_content_is_left_alone(home: Path) -> None:
    home.mkdir(parents=True)
    (home / "thesis.txt").write_text("mine")
    with pytest.raises(Refused, match="RUNBOOK_PRACTICE_HOME"):
        practice.start()
    with pytest.raises(Refused, match="RUNBOOK_PRACTICE_HOME"):
        practice.reset()
    assert [path.name for path in home.iterdir()] == ["thesis.txt"]
    (home / "practice-world.lock").write_text("")
    with pytest.raises(Refused, match="RUNBOOK_PRACTICE_HOME"):
        practice.start()
    with pytest.raises(Refused, match="RUNBOOK_PRACTICE_HOME"):
        practice.reset()
    assert (home / "thesis.txt").read_text() == "mine"


def test_an_incomplete_world_is_reported(home: Path) -> None:
    practice.start().close()
    shutil.rmtree(home / "Megatron-LM")
    with pytest.raises(RunbookError, match=r"Megatron-LM missing .* Run `runbook practice reset`"):
        practice.start()
    assert practice.reset()
    practice.start().close()


def test_a_state_file_that_is_not_a_database_is_reported(home: Path) -> None:
    practice.start().close()
    for file in home.glob("forge.sqlite*"):
        file.unlink()
    (home / "forge.sqlite").write_text("not a database, " * 100)
    with pytest.raises(RunbookError, match=r"cannot be read: .*\. Run `runbook practice reset`"):
        practice.start()
    assert practice.reset()


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunbookError, match=r"RUNBOOK_PRACTICE_HOME"):
        practice.start(tmp_path / "file/below")


def test_without_git_it_is_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(RunbookError, match="git is not on PATH"):
        practice.start()


# Reset


def test_reset_removes_the_world_and_its_folder(home: Path) -> None:
    assert practice.reset() is False
    with practice.start() as made, Registry.connect(ImageRef.parse("nvcr.io/nvidia/pytorch"), made.env) as registry:
        assert registry.tags()
    assert practice.reset() is True
    assert not home.exists()
    assert practice.reset() is False


def test_reset_refuses_while_the_world_is_in_use(home: Path) -> None:
    launcher = Launcher()
    launcher.ready()
    with pytest.raises(Refused, match=f"is in use by process {launcher.process.pid}"):
        practice.reset()
    assert (home / "Megatron-LM/README.md").exists()
    launcher.end()
    assert practice.reset()


def test_reset_leaves_what_a_person_put_there(home: Path, tmp_path: Path) -> None:
    practice.start().close()
    real = tmp_path / "real"
    (home / "Megatron-LM").rename(real)
    (home / "Megatron-LM").symlink_to(real)
    (home / "notes.txt").write_text("mine")
    assert practice.reset()
    assert [path.name for path in home.iterdir()] == ["notes.txt"]
    assert (real / "README.md").exists()


# What the notebooks call


def test_a_repository_of_ones_own_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dict(os.environ)
    monkeypatch.chdir(tmp_path)
    assert practice.enter("/a/repo") == "/a/repo"
    assert practice.enter("clone") == str(tmp_path / "clone")
    assert practice.enter("~/clone") == str(Path.home() / "clone")
    assert dict(os.environ) == before
    assert list(tmp_path.iterdir()) == []


def test_no_repository_is_the_practice_world(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGC_API_KEY", "real")
    monkeypatch.setenv("GITHUB_TOKEN", "real")
    before = dict(os.environ)
    assert practice.enter("") == str(home / "Megatron-LM")
    inside = dict(os.environ)
    assert inside["RUNBOOK_PRACTICE"] == str(home / "Megatron-LM")
    assert (inside["NGC_API_KEY"], inside["GITHUB_TOKEN"]) == ("", "practice-token")
    assert practice.enter("") == str(home / "Megatron-LM")
    assert dict(os.environ) == inside
    assert practice.enter("/a/repo") == "/a/repo"
    assert dict(os.environ) == before


def test_a_user_of_a_world_that_ended_starts_it_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = Launcher()
    _, env = launcher.ready()
    assert practice.enter("") == env["RUNBOOK_PRACTICE"]
    assert os.environ["GITHUB_API_URL"] == env["GITHUB_API_URL"]
    launcher.end()
    monkeypatch.setenv("RUNBOOK_PRACTICE_HOME", "/nonexistent")
    assert practice.enter("") == env["RUNBOOK_PRACTICE"]
    assert world.responds(os.environ["GITHUB_API_URL"])
    assert world.responds(os.environ["RUNBOOK_REGISTRY"])
    practice.enter("/a/repo")
    assert "GITHUB_API_URL" not in os.environ
