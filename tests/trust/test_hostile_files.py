"""A machine that others use too: what they have laid in the way, and what they may read."""

import contextlib
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from archives import two_bumps
from bumping import git
from small_runbooks import ROOT, papermill

from runbook_lib import practice
from runbook_lib.errors import RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.records import archive
from runbook_lib.records.pages.index import write_index
from runbook_lib.runner.kernel import Kernel
from runbook_lib.runner.notebook import saver
from runbook_lib.system import atomic_files
from runbook_lib.system.locks import locked
from runbook_lib.text.edits import Edit
from runbook_lib.text.redact import Redactor

#: Where a run leaves something, by the variable that names the place.
VARIABLES = {"RUNBOOK_AUDIT": "audit", "RUNBOOK_CACHE": "cache", "RUNBOOK_PRACTICE_HOME": "practice"}
#: What somebody may have laid where a file of ours belongs.
IN_THE_WAY = ("link", "dead link", "link to a folder", "pipe", "hard link", "folder")


@pytest.fixture
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def lay(kind: str, place: Path, victim: Path) -> None:
    """Something in the way at ``place``; the victim's file must stay as it is."""
    victim.write_text("mine")
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    elif kind == "hard link":
        os.link(victim, place)
    elif kind == "link to a folder":
        (victim.parent / "elsewhere").mkdir()
        place.symlink_to(victim.parent / "elsewhere")
    else:
        place.symlink_to(victim if kind == "link" else victim.with_name("not-there"))


def write(path: Path) -> None:
    atomic_files.write(path, "ours")


def create(path: Path) -> None:
    atomic_files.create(path, "ours")


def lock(path: Path) -> None:
    with locked(path, "bump"):
        pass


def save(path: Path) -> None:
    from nbformat import v4

    saver([path], Redactor({}))(v4.new_notebook())


@pytest.mark.parametrize("kind", IN_THE_WAY)
@pytest.mark.parametrize("act", [write, create, lock, save])
def test_nothing_is_written_through_what_lies_in_the_way(
    tmp_path: Path, act: Callable[[Path], object], kind: str
) -> None:
    (tmp_path / "theirs").mkdir()
    victim, place = tmp_path / "theirs" / "file", tmp_path / "ours"
    lay(kind, place, victim)
    thread = threading.Thread(target=_quietly, args=(act, place), daemon=True)
    thread.start()
    thread.join(120)
    assert not thread.is_alive(), "it waits for a pipe"
    assert victim.read_text() == "mine"
    assert {path.name for path in (tmp_path / "theirs").rglob("*")} - {"elsewhere"} == {"file"}
    assert not list(tmp_path.glob(".*.tmp"))


def _quietly(act: Callable[[Path], object], place: Path) -> None:
    with contextlib.suppress(RunbookError):
        act(place)


def test_a_pin_that_is_a_link_is_not_followed_out_of_the_checkout(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine\n")
    git(tmp_path, "init", "-q", str(tmp_path / "clone"))
    (tmp_path / "clone" / "pin").symlink_to(victim)
    checkout = Checkout.open(tmp_path / "clone")
    with pytest.raises(RunbookError):
        checkout.apply([Edit("pin", "mine\n", "ours\n")])
    assert victim.read_text() == "mine\n"
    assert (tmp_path / "clone" / "pin").is_symlink()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077], indirect=True, ids=oct)
def test_nobody_else_reads_what_is_not_public(tmp_path: Path, umask: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmp").mkdir(mode=0o1777)
    monkeypatch.setenv("RUNBOOK_PRACTICE_HOME", str(tmp_path / "world"))
    with practice.start(), Kernel(dict(os.environ), tmp_path) as kernel:
        kernel.begin({}, tmp_path)
        # A long TMPDIR has no room for sockets: then the kernel's folder is elsewhere.
        for place in {tmp_path / "world", kernel._folder, *(tmp_path / "tmp").iterdir()}:
            assert stat.S_IMODE(place.stat().st_mode) & 0o077 == 0, place


def open_to_others(*places: Path) -> list[Path]:
    """What others may read, write or enter, below these places; a checkout's files have the modes that git gave."""
    found = []
    for place in places:
        for path in (place, *place.rglob("*")):
            inside = any(parent.suffix == ".git" or (parent / ".git").exists() for parent in path.parents)
            if not path.is_symlink() and not inside and path.stat().st_mode & 0o077:
                found.append(path)
    return found


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077], indirect=True, ids=oct)
def test_a_runs_files_are_private_to_its_owner(tmp_path: Path, umask: int, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {name: tmp_path / "home" / name for name in ("audit", "cache", "practice", "out")}
    variables = {name: str(places[it]) for name, it in VARIABLES.items()}
    output = places["out"] / "made" / "01.ipynb"
    for _ in range(2):  # a second run goes on in the same folders
        status, out, err = papermill(
            ROOT / "runbooks/01-github-pin.ipynb", output, "-p", "tag", "26.04-py3", "-p", "apply", "True",
            cwd=tmp_path, **variables,
        )  # fmt: skip
        assert status == 0, out + err
    made = [path for place in places.values() for path in (place, *place.rglob("*"))]
    assert {"run.json", "report.html", "index.html", "head", ".lock", ".index.lock", output.name, "forge.sqlite"} <= {
        path.name for path in made
    }
    assert open_to_others(tmp_path / "home") == []
    checkout = places["practice"] / "Megatron-LM"
    pin = next(checkout.glob("docker/.ngc_version.dev"))
    assert pin.stat().st_mode & 0o777 == 0o666 & ~umask, "an edited file of a checkout has lost its mode"


def test_a_folder_with_other_things_keeps_its_mode_but_not_the_archive_in_it(tmp_path: Path) -> None:
    """Somebody may name their home, or a folder of a team."""
    audit = two_bumps(tmp_path)
    (audit / "notes").write_text("")
    audit.chmod(0o755)
    write_index(audit)
    assert audit.stat().st_mode & 0o777 == 0o755
    for bump in archive.bump_folders(audit):
        assert open_to_others(bump) == []


def test_a_lock_of_somebody_else_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder where all may write another user could keep it for ever; what root left in ours they may remove."""
    place = tmp_path / "lock"
    place.write_text("")
    stranger = os.geteuid() + 1
    real = os.fstat

    def strange(handle: int) -> os.stat_result:
        found = real(handle)
        return os.stat_result((*found[:4], stranger, *found[5:10])) if stat.S_ISREG(found.st_mode) else found

    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", strange)
        with pytest.raises(RunbookError, match="belongs to another user"):
            lock(place)
    lock(place)


def test_a_lock_that_was_open_to_others_is_closed_and_its_hard_link_is_not(tmp_path: Path) -> None:
    place, victim = tmp_path / "lock", tmp_path / "page"
    place.write_text("")
    place.chmod(0o666)
    lock(place)
    assert place.stat().st_mode & 0o777 == 0o600
    place.unlink()
    victim.write_text("mine")
    victim.chmod(0o644)
    os.link(victim, place)
    _quietly(lock, place)
    assert (victim.stat().st_mode & 0o777, victim.read_text()) == (0o644, "mine")
