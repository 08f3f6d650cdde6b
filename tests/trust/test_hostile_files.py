"""A machine that others use too: what they have laid in the way, and what they may read."""

import contextlib
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bumping import git
from figures import Figures

from runbook_lib import files, practice
from runbook_lib.checkout import Checkout
from runbook_lib.edits import Edit
from runbook_lib.errors import RunbookError
from runbook_lib.executed import saver
from runbook_lib.holding import locked
from runbook_lib.kernel import Kernel
from runbook_lib.redact import Redactor
from runbook_lib.registry_cache import Cache

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
    files.write(path, "ours")


def create(path: Path) -> None:
    files.create(path, "ours")


def lock(path: Path) -> None:
    with locked(path, "bump"):
        pass


def save(path: Path) -> None:
    from nbformat import v4

    saver([path], Redactor({}))(v4.new_notebook())


@pytest.mark.parametrize("kind", IN_THE_WAY)
@pytest.mark.parametrize("act", [write, create, lock, save])
def test_nothing_is_written_through_what_lies_in_the_way(
    tmp_path: Path, act: Callable[[Path], object], kind: str, figures: Figures
) -> None:
    (tmp_path / "theirs").mkdir()
    victim, place = tmp_path / "theirs" / "file", tmp_path / "ours"
    lay(kind, place, victim)
    thread = threading.Thread(target=_quietly, args=(act, place), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it waits for a pipe"
    assert victim.read_text() == "mine"
    assert {path.name for path in (tmp_path / "theirs").rglob("*")} - {"elsewhere"} == {"file"}
    assert not list(tmp_path.glob(".*.tmp"))
    figures["hostile"] += 1


def _quietly(act: Callable[[Path], object], place: Path) -> None:
    with contextlib.suppress(RunbookError):
        act(place)


def test_a_pin_that_is_a_link_is_not_followed_out_of_the_checkout(tmp_path: Path, figures: Figures) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine\n")
    git(tmp_path, "init", "-q", str(tmp_path / "clone"))
    (tmp_path / "clone" / "pin").symlink_to(victim)
    checkout = Checkout.open(tmp_path / "clone")
    with contextlib.suppress(RunbookError):
        checkout.apply([Edit("pin", "mine\n", "ours\n")])
    assert victim.read_text() == "mine\n"
    figures["hostile"] += 1


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077], indirect=True, ids=oct)
def test_nobody_else_reads_what_is_not_public(
    tmp_path: Path, umask: int, monkeypatch: pytest.MonkeyPatch, figures: Figures
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmp").mkdir(mode=0o1777)
    monkeypatch.setenv("RUNBOOK_PRACTICE_HOME", str(tmp_path / "world"))
    with practice.start(), Kernel(dict(os.environ), tmp_path) as kernel:
        kernel.begin({}, tmp_path)
        # A long TMPDIR has no room for sockets: then the kernel's folder is elsewhere.
        for place in {tmp_path / "world", kernel._folder, *(tmp_path / "tmp").iterdir()}:
            assert stat.S_IMODE(place.stat().st_mode) & 0o077 == 0, place
            figures["hostile"] += 1
    Cache(tmp_path / "cache").keep("key", b"{}", {})
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) & 0o077 == 0
