"""The life of the practice environment: created once, opened by every command, two at once."""

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bumping import git

from runbook_lib.cli.__main__ import main
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.practice import seed as template
from runbook_lib.practice.store import CI_SECONDS
from runbook_lib.practice.world import COMMAND, default_home, open_world

ROOT = Path(__file__).resolve().parents[2]
USE = """
import sys
from runbook_lib.practice.world import open_world
forge = open_world().forge()
for number in range(20):
    forge.file_issue(f"{sys.argv[1]} {number}", "body")
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state/practice"
    monkeypatch.setenv("RUNBOOK_PRACTICE_HOME", str(folder))
    return folder


def test_a_new_world_is_a_clean_checkout_with_its_remote(home: Path) -> None:
    new = open_world()
    assert new.checkout == home / "Megatron-LM"
    assert git(new.checkout, "status", "--porcelain", "--branch") == "## main...origin/main"
    assert git(new.checkout, "remote", "get-url", "origin") == str(home / "remote.git")
    assert git(new.checkout, "ls-files") == "\n".join(template.main())
    branches = git(new.checkout, "branch", "-r", "--format=%(refname:short)").split()
    assert sorted(branches)[1:] == ["origin/core_r0.1.0", "origin/dev", "origin/main"]
    assert home.stat().st_mode & 0o777 == 0o700


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RUNBOOK_PRACTICE_HOME")
    assert default_home() == Path.home() / ".local/state/base-image-runbook/practice"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_home() == tmp_path / "base-image-runbook/practice"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUNBOOK_PRACTICE_HOME", "here")
    assert default_home() == tmp_path / "here"


def test_two_processes_create_it_once_and_write_at_the_same_time(home: Path) -> None:
    both = [subprocess.Popen([sys.executable, "-c", USE, name], cwd=ROOT) for name in ("one", "two")]
    assert [process.wait(100) for process in both] == [0, 0]
    issues = open_world().forge().list_issues()
    assert len({issue.number for issue in issues}) == 41  # with the first issue of the world
    assert {issue.title for issue in issues} >= {f"{name} {number}" for name in ("one", "two") for number in range(20)}


def test_a_world_whose_creator_was_killed_is_created_again(home: Path) -> None:
    die = """
import os, signal
from runbook_lib.practice import seed
from runbook_lib.practice.world import open_world
whole = seed.create
def create(remote, checkout, gitlab):
    whole(remote, checkout, gitlab)
    (checkout / "README.md").unlink()
    os.kill(os.getpid(), signal.SIGKILL)
seed.create = create
open_world()
"""
    assert subprocess.run([sys.executable, "-c", die], cwd=ROOT, check=False).returncode == -signal.SIGKILL
    assert (home / "Megatron-LM").exists()
    assert git(open_world().checkout, "status", "--porcelain") == ""


def test_what_a_killed_process_had_written_is_there(home: Path) -> None:
    die = "import os, signal\nfrom runbook_lib.practice.world import open_world\nforge = open_world().forge()\n"
    die += "forge.file_issue('kept', '')\nwith forge.store.transaction():\n    forge.file_issue('undone', '')\n"
    die += "    os.kill(os.getpid(), signal.SIGKILL)\n"
    assert subprocess.run([sys.executable, "-c", die], cwd=ROOT, check=False).returncode == -signal.SIGKILL
    assert [issue.title for issue in open_world().forge().list_issues()][1:] == ["kept"]


def test_the_clock_moves_on_with_sleep_and_with_each_command() -> None:
    world = open_world()
    begun = world.monotonic()
    world.sleep(3600)
    assert world.monotonic() == begun + 3600
    world.begin_command()
    assert world.monotonic() == begun + 3600 + COMMAND
    assert COMMAND > CI_SECONDS  # who comes back finds a run of CI that has ended


def test_a_folder_with_other_content_is_left_alone(home: Path) -> None:
    (home / "Megatron-LM").mkdir(parents=True)
    with pytest.raises(Refused, match="RUNBOOK_PRACTICE_HOME"):
        open_world()
    assert [path.name for path in home.iterdir()] == ["Megatron-LM"]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("Megatron-LM", None, r"Megatron-LM.* Delete that folder"),
        ("forge.sqlite", "not a database, " * 100, r"cannot be read: .*\. Delete that folder"),
        ("practice-world.txt", "version 1", r"different version .* Delete that folder"),
    ],
)
def test_a_world_that_is_incomplete_unreadable_or_old_is_reported(
    home: Path, file: str, text: str | None, message: str
) -> None:
    shutil.rmtree(open_world().checkout) if text is None else open_world()
    if text is not None:
        for part in home.glob(f"{file}*"):
            part.unlink()
        (home / file).write_text(text)
    with pytest.raises(RunbookError, match=message):
        open_world()


def test_a_world_that_cannot_be_created_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunbookError, match="RUNBOOK_PRACTICE_HOME"):
        open_world(tmp_path / "file/below")
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(RunbookError, match="git was not found"):
        open_world()


def test_why_reads_the_run_that_a_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    run = open_world().forge().runs(event="merge_group")[0]
    assert main(["why", run.url]) == 0
    assert "moe/gpt3_moe_mcore_tp2_ep4_memory" in capsys.readouterr().out
    assert main(["why", run.url.replace("practice/Megatron-LM", "other/repository")]) == 2
    assert "belongs to other/repository" in capsys.readouterr().err


def test_the_pages_that_urls_name_are_written_and_copied(tmp_path: Path) -> None:
    world = open_world()
    forge = world.forge()
    git(world.checkout, "push", "-q", "origin", "origin/main:refs/heads/x")
    git(world.checkout, "commit", "-q", "--allow-empty", "-m", "<b>bold</b>")
    git(world.checkout, "push", "-q", "-f", "origin", "HEAD:refs/heads/x")
    pull = forge.open_pull("<i>title</i>", "practice:x", "main", "<script>alert(1)</script>")
    forge.comment(pull.number, f"/ok to test {pull.head_sha}")
    world.begin_command()
    (run,) = forge.runs(head_sha=pull.head_sha)
    ran = [job for job in forge.jobs(run.id) if job.conclusion != "skipped"]
    world.write_pages(tmp_path)
    for url in (pull.url, run.url, *(job.url for job in ran), forge.issue(8).url):
        text = Path(url.removeprefix("file://")).read_text()
        assert "PRACTICE" in text
        assert not re.search("<(script|i|b)>", text)
    copied = list((tmp_path / "practice").rglob("*.html"))
    assert len(copied) == len(list(world.pages.rglob("*.html"))) >= len(ran) + 3
