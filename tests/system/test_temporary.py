"""Temporary folders: what a killed run leaves is removed by the next one, and nothing else ever is."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runbook_lib.system import provenance, temporary
from runbook_lib.system.temporary import OWNER, TemporaryFolder

ROOT = Path(__file__).resolve().parents[2]
HOLD = """
import sys
from runbook_lib.system.temporary import TemporaryFolder
with TemporaryFolder(sys.argv[1]) as folder:
    (folder / "sub").mkdir()
    (folder / "sub" / "file").write_text("secret")
    (folder / "outside").symlink_to(sys.argv[2])
    print(folder, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder for temporary files that others use too."""
    folder = tmp_path / "tmp"
    folder.mkdir(mode=0o1777)
    return folder


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A person's own folder, which nothing may touch."""
    folder = tmp_path / "thesis"
    folder.mkdir(mode=0o700)
    (folder / "chapter").write_text("mine")
    return folder


def run(place: Path, victim: Path) -> "tuple[subprocess.Popen[str], Path]":
    """A process with a temporary folder, and the folder."""
    command = [sys.executable, "-c", HOLD, str(place), str(victim)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def end(process: "subprocess.Popen[str]", number: int) -> None:
    process.send_signal(number)
    process.communicate()


def left(place: Path, *, owner: object, name: str = "runbook-left") -> Path:
    """A folder as a killed run leaves it, with this file that names its process."""
    folder = place / name
    folder.mkdir(mode=0o700)
    (folder / "file").write_text("secret")
    (folder / OWNER).write_text(owner if isinstance(owner, str) else json.dumps(owner))
    return folder


def ended() -> dict[str, object]:
    """A process of this machine that has ended."""
    return {"machine": temporary._machine(), "process": {**provenance.process(), "started": 1.0}}


def test_it_is_private_and_ends_with_its_content(place: Path) -> None:
    with TemporaryFolder(str(place)) as folder:
        assert folder.stat().st_mode & 0o077 == 0
        (folder / "sub").mkdir()
        (folder / "sub/file").write_text("")
    assert list(place.iterdir()) == []


def test_the_next_run_removes_what_a_killed_one_left(place: Path, victim: Path) -> None:
    process, folder = run(place, victim)
    temporary.remove_abandoned(place)
    assert (folder / "sub/file").exists(), "a living run has lost its folder"
    process.send_signal(signal.SIGSTOP)
    temporary.remove_abandoned(place)
    assert (folder / "sub/file").exists(), "a run that was only stopped has lost its folder"
    end(process, signal.SIGKILL)
    assert folder.exists()
    with TemporaryFolder(str(place)) as next_one:
        assert list(place.iterdir()) == [next_one]
    assert (victim / "chapter").read_text() == "mine"


def test_the_number_of_its_process_may_be_in_use_again(place: Path) -> None:
    folder = left(place, owner=ended())  # the number is this process's own
    temporary.remove_abandoned(place)
    assert not folder.exists()


def living(_: Path) -> object:
    return {"machine": temporary._machine(), "process": provenance.process()}


def elsewhere(_: Path) -> object:
    return {"machine": "another-host 1f0c", "process": {"pid": 1, "started": 1.0, "host": "another-host"}}


def before_a_restart(_: Path) -> object:
    return ended() | {"machine": f"{temporary._machine().split()[0]} another-boot"}


def nonsense(_: Path) -> object:
    return "{"


def deep(_: Path) -> object:
    return "[" * 4096


def another_shape(_: Path) -> object:
    return ended() | {"process": "1"}


OWNERS: list[Callable[[Path], object]] = [living, elsewhere, before_a_restart, nonsense, deep, another_shape]


@pytest.mark.parametrize("owner", OWNERS, ids=lambda it: it.__name__)
def test_a_folder_that_may_be_in_use_is_left_alone(place: Path, owner: Callable[[Path], object]) -> None:
    folder = left(place, owner=owner(place))
    temporary.remove_abandoned(place)
    assert (folder / "file").read_text() == "secret"


def test_a_folder_whose_file_is_locked_is_left_alone_whoever_it_names(place: Path) -> None:
    """Such as one of a container, whose processes have other numbers."""
    folder = left(place, owner=ended())
    with (folder / OWNER).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        temporary.remove_abandoned(place)
        assert (folder / "file").exists()
    temporary.remove_abandoned(place)
    assert not folder.exists()


def test_nothing_is_removed_through_links(place: Path, victim: Path) -> None:
    (victim / OWNER).write_text(json.dumps(ended()))
    (place / "runbook-link").symlink_to(victim)
    inside = left(place, owner=ended(), name="runbook-inside")
    (inside / "link").symlink_to(victim)
    (inside / "sub").mkdir()
    (inside / "sub/link").symlink_to(victim / "chapter")
    owned = left(place, owner=ended(), name="runbook-owner-link")
    (owned / OWNER).rename(place / "owner")
    (owned / OWNER).symlink_to(place / "owner")
    pipe = left(place, owner=ended(), name="runbook-pipe")
    (pipe / OWNER).unlink()
    os.mkfifo(pipe / OWNER)
    temporary.remove_abandoned(place)
    assert sorted(path.name for path in victim.iterdir()) == ["chapter", OWNER]
    assert (owned / "file").exists()
    assert (pipe / "file").exists()
    assert not inside.exists()


def test_folders_that_others_can_enter_or_own_are_not_ours(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = left(place, owner=ended(), name="runbook-shared")
    shared.chmod(0o777)
    foreign = left(place, owner=ended(), name="runbook-foreign")
    nobody = os.geteuid() + 1
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: nobody)
        temporary.remove_abandoned(place)
    assert foreign.exists()
    temporary.remove_abandoned(place)
    assert (shared.exists(), foreign.exists()) == (True, False)


def test_a_folder_that_no_process_has_marked(place: Path) -> None:
    """It was killed before it could, or it is about to; or the folder is somebody else's."""
    names = ("runbook-new", "runbook-old", "runbook-full", "other-old")
    for name in names:
        (place / name).mkdir(mode=0o700)
    (place / "runbook-full" / "file").write_text("")
    for name in names[1:]:
        os.utime(place / name, (time.time() - 7200,) * 2)
    temporary.remove_abandoned(place)
    assert sorted(path.name for path in place.iterdir()) == ["other-old", "runbook-full", "runbook-new"]


def test_the_search_is_bounded_in_time(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left(place, owner=ended())
    monkeypatch.setattr(temporary, "LIMIT", -1.0)
    temporary.remove_abandoned(place)
    assert (place / "runbook-left").exists()


def test_it_works_without_locks(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with TemporaryFolder(str(place)) as folder:
        assert list(folder.iterdir()) == []
    assert list(place.iterdir()) == []
