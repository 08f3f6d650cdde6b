"""A checkout that somebody else filled: no file outside of it is read or written, and nothing in it is waited for."""

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from bumping import git

from runbook_lib.cli.__main__ import main
from runbook_lib.compute.slurm.site import read_site
from runbook_lib.errors import RunbookError
from runbook_lib.pins.repositories import FILE
from runbook_lib.text.edits import Edit
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.git.commits import create_commit, move_branch, tree_with

PIN = "docker/image"
PINS_FILE = f"""
version: 1
image: nvcr.io/nvidia/pytorch
pins:
  - path: {PIN}
    find: {{file: whole}}
"""
#: Nothing is waited for.
pytestmark = pytest.mark.timeout(300)
#: No form tells that this is a secret, so only not reading it keeps it from being shown.
OUTSIDE = "the-text-of-another-file"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with one pin, beside a file that is none of its own."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "image").write_text(f"{OUTSIDE}\n")
    place = tmp_path / "clone"
    git(tmp_path, "init", "-q", str(place))
    (place / "docker").mkdir()
    (place / PIN).write_text("nvcr.io/nvidia/pytorch:26.02-py3\n")
    (place / FILE).write_text(PINS_FILE)
    git(place, "add", "-A")
    git(place, "commit", "-qm", "A pin")
    git(place, "remote", "add", "origin", "https://forge.example/someone/something")
    return place


def lay(clone: Path, name: str) -> None:
    """Put something into the place of the pin's file, or of its folder."""
    file, target = clone / PIN, LINKS[name].format(clone=clone)
    if not target:  # a terabyte of nothing
        with file.open("r+b") as stream:
            stream.truncate(2**40)
        return
    for place in (clone / ".git" / "image", clone / "other", clone / "elsewhere" / "image"):
        place.parent.mkdir(exist_ok=True)
        place.write_text(f"{OUTSIDE}\n")
    (clone / "first").symlink_to("../outside")
    if name.startswith("folder"):
        shutil.rmtree(file.parent)
        file.parent.symlink_to(target)
    else:
        file.unlink()
        file.symlink_to(target)


#: What lies where the pin should, as the target of a link.
LINKS: Mapping[str, str] = {
    "absolute": "{clone}/../outside/image",
    "relative": "../../outside/image",
    "a link to a link": "../first/image",
    "to a process": "/proc/self/environ",
    "without an end": "/dev/zero",
    "to itself": "image",
    "to nothing": "nowhere\nor there",
    "whose text would be a pin": "nvcr.io/nvidia/pytorch:26.02-py3",
    "a file of git": "../.git/image",
    "a file within": "../other",
    "folder, absolute": "{clone}/../outside",
    "folder of git": ".git",
    "folder within": "elsewhere",
    "a terabyte of nothing": "",
}
NAME = pytest.mark.parametrize("name", LINKS)


@NAME
def test_check_reads_no_pin_outside(clone: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    lay(clone, name)
    named = str(clone / PIN)
    for options in ((), ("--json",), ("--pins", named)):
        assert main(["check", str(clone), *options]) == 2
        shown = "".join(capsys.readouterr())
        assert OUTSIDE not in shown
        assert "PATH=" not in shown  # of the process's environment
        assert PIN.partition("/")[0] in shown  # what was refused is named
        assert "Traceback" not in shown
    with pytest.raises(RunbookError) as told:
        read_site(named)
    assert OUTSIDE not in str(told.value)


@pytest.mark.parametrize("name", [name for name, target in LINKS.items() if target])
def test_a_commit_is_read_as_the_work_tree(clone: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    lay(clone, name)
    git(clone, "add", "-A")
    git(clone, "commit", "-qm", "A link")
    for place in (clone, Path(git(clone, "clone", "-q", "--bare", str(clone), str(clone) + ".git") or f"{clone}.git")):
        assert main(["check", str(place), "--ref", "HEAD"]) == 2
        shown = capsys.readouterr()
        assert OUTSIDE not in shown.out + shown.err
        assert "symbolic link" in shown.err


@NAME
def test_nothing_is_written_through_a_link(clone: Path, name: str) -> None:
    victims = [*(clone.parent / "outside").iterdir(), *(clone / ".git").glob("*"), clone / FILE]
    before = {it: it.read_bytes() for it in victims if it.is_file() and it.name != "index"}
    draft = clone.parent / "outside" / ".runbook-left.tmp"  # as a killed run would leave it
    draft.write_text("")
    lay(clone, name)
    checkout = Checkout.open(clone)
    for text in ("nvcr.io/nvidia/pytorch:26.02-py3\n", f"{OUTSIDE}\n", None):
        for path in (PIN, ".git/hooks/pre-commit", "../outside/image", "docker/new"):
            _applied(checkout, Edit(path, text, "ours\n"))
    assert {it: it.read_bytes() for it in before} == before
    assert draft.exists()
    assert not (clone.parent / "outside" / "new").exists()
    assert not (clone / ".git" / "hooks" / "pre-commit").exists()


def _applied(checkout: Checkout, edit: Edit) -> None:
    """Commit the edit on the branch that is checked out, so that the work tree follows."""
    with contextlib.suppress(RunbookError):
        head = checkout.resolve("HEAD")
        commit = create_commit(checkout, tree_with(checkout, head, [edit]), [head], "ours")
        move_branch(checkout, str(checkout.current_branch()), commit, head)


@pytest.mark.parametrize("target", ["docker/pins", "../outside/image", "/proc/self/environ", "nowhere"])
def test_a_pins_file_that_is_a_link_is_not_taken_for_none(
    clone: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (clone / "docker" / "pins").write_text(PINS_FILE)
    (clone / FILE).unlink()
    (clone / FILE).symlink_to(target)
    git(clone, "add", "-A")
    git(clone, "commit", "-qm", "A link")
    for options in ((), ("--ref", "HEAD")):
        assert main(["check", str(clone), *options]) == 2
        shown = capsys.readouterr()
        assert "symbolic link" in shown.err
        assert OUTSIDE not in shown.err
