"""Files that are replaced in one step, locks, and files of a checkout."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.world.machine import files

ROOT = Path(__file__).resolve().parents[3]
HOLD = """
import sys
from pathlib import Path
from runbook_lib.world.machine.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "The disk is full"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "RUNBOOK_AUDIT=FOLDER"),
        (errno.EIO, os.strerror(errno.EIO)),
    ],
)
def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    file = tmp_path / "run.json"
    files.write(file, "old")
    for place, name in ((Path, "replace"), (os, "fsync")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, fail)
            with pytest.raises(RunbookError, match=words) as raised:
                files.write(file, "new")
        assert str(file) in str(raised.value)
        assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_drafts_of_killed_processes_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".runbook-abc.tmp").write_text("half")
    (tmp_path / ".mine.tmp").write_text("")
    files.remove_drafts(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".mine.tmp"]


@contextmanager
def held(file: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds the lock."""
    command = [sys.executable, "-c", HOLD, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.communicate("\n")


def test_a_lock_is_waited_for_and_then_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "REPORT_AFTER", 0.0)
    monkeypatch.setattr(files, "LIMIT", 0.05)
    file, said = tmp_path / "lock", list[str]()
    with (
        held(file),
        pytest.raises(RunbookError, match=rf"{file} has been locked by another command .* `fuser {file}`"),
        files.locked(file, said.append),
    ):
        pass
    assert [text.startswith("Waiting for another command") for text in said] == [True]
    with files.locked(file):
        pass


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    with held(tmp_path / "lock") as process:
        process.send_signal(signal.SIGKILL)
    with files.locked(tmp_path / "lock"):
        pass


def test_a_lock_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunbookError, match="could not be written"), files.locked(tmp_path / "file" / "lock"):
        pass


def test_files_of_a_checkout_are_read_within_it(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    root = tmp_path / "clone"
    (root / "folder").mkdir(parents=True)
    (root / "folder" / "file").write_text("content")
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("secret")
    (root / "link").symlink_to("folder/file")
    (root / "away").symlink_to("..")
    (root / "loop").symlink_to("loop")
    (tmp_path / "alias").symlink_to(root)
    others = ("link", "loop", "away/outside", "../outside", str(tmp_path / "outside"), ".git/config", ".GIT/config")
    for place in (root, tmp_path / "alias"):
        assert files.read_inside(place, "folder/file") == b"content"
        for path in ("folder", "nothing", "folder/file/below", "a" * 300, "nul\0"):
            assert files.read_inside(place, path) is None
        for path in others:
            with pytest.raises(CannotTell, match="symbolic link"):
                files.read_inside(place, path)


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.truncate(files.LARGEST + 1)
    for read in (lambda: files.read_inside(tmp_path, "file"), lambda: files.read_named(tmp_path / "file")):
        with pytest.raises(CannotTell, match="larger than 64 MB"):
            read()
