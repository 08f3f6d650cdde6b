"""Files that are replaced in one step, and disks that fail."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from runbook_lib.errors import RunbookError
from runbook_lib.system import atomic_files


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "The disk is full"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "audit=FOLDER"),
        (errno.EIO, os.strerror(errno.EIO)),
    ],
)
def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    file = tmp_path / "run.json"
    atomic_files.write(file, "old")
    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(RunbookError, match=words) as raised:
        atomic_files.write(file, "new")
    assert str(file) in str(raised.value)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small file system")
def test_reports_a_full_disk(tmp_path: Path) -> None:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", tmp_path], check=False)
    if mounted.returncode != 0:
        pytest.skip("this container may not mount")
    try:
        with pytest.raises(RunbookError, match="The disk is full"):
            atomic_files.write(tmp_path / "big", "x" * 100_000)
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", tmp_path], check=True)
