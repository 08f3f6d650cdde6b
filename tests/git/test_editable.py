"""Checkouts whose files cannot be edited as they are committed: found beforehand, and ended by the command shown."""

import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from bumping import git

from runbook_lib.errors import Refused
from runbook_lib.git import editable
from runbook_lib.git.checkout import Checkout
from runbook_lib.text.edits import Edit

PATHS = ["docker/pin", "docker/a b'c"]
TEXT = "image: nvcr.io/nvidia/pytorch:26.02-py3\nmore: 1 $Id$\n"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    place = tmp_path / "clone"
    git(tmp_path, "init", "-q", str(place))
    (place / "docker").mkdir()
    (place / "docker" / "Case").write_text("other")
    for path in PATHS:
        (place / path).write_text(TEXT)
    git(place, "add", "-A")
    git(place, "commit", "-qm", "One")
    return place


def again(place: Path) -> None:
    """Check the files out anew."""
    for path in PATHS:
        (place / path).unlink()
    git(place, "restore", "--", *PATHS)


def autocrlf(place: Path) -> None:
    git(place, "config", "core.autocrlf", "true")
    again(place)


def attribute(text: str) -> Callable[[Path], None]:
    def lay(place: Path) -> None:
        (place / ".gitattributes").write_text(f"docker/* {text}\n")
        git(place, "add", ".gitattributes")
        git(place, "commit", "-qm", "Attributes")
        again(place)

    return lay


def filtered(place: Path) -> None:
    git(place, "config", "filter.x.clean", "tr a-z A-Z | tr A-Z a-z")
    git(place, "config", "filter.x.smudge", "sed s/image/IMAGE/")
    git(place, "config", "filter.x.clean", "sed s/IMAGE/image/")
    attribute("filter=x")(place)


def sparse(place: Path) -> None:
    git(place, "sparse-checkout", "set", "elsewhere")


def mark(name: str) -> Callable[[Path], None]:
    return lambda place: git(place, "update-index", f"--{name}", "--", *PATHS) and None


def locked(place: Path) -> None:
    (place / ".git" / "index.lock").write_text("")


def conflict(*command: str) -> Callable[[Path], None]:
    def lay(place: Path) -> None:
        git(place, "switch", "-qc", "side")
        (place / "docker" / "Case").write_text("side")
        git(place, "commit", "-qam", "Side")
        git(place, "switch", "-q", "main")
        (place / "docker" / "Case").write_text("main")
        git(place, "commit", "-qam", "Main")
        assert subprocess.run(["git", "-C", str(place), *command, "side"], capture_output=True).returncode

    return lay


STATES: Mapping[str, Callable[[Path], None]] = {
    "autocrlf": autocrlf, "eol": attribute("text eol=crlf"), "UTF-16": attribute("working-tree-encoding=UTF-16LE"),
    "ident": attribute("ident"), "filter": filtered, "sparse": sparse, "assume-unchanged": mark("assume-unchanged"),
    "skip-worktree": mark("skip-worktree"), "lock": locked, "merge": conflict("merge"), "rebase": conflict("rebase"),
    "cherry-pick": conflict("cherry-pick"),
}  # fmt: skip


@pytest.mark.parametrize("name", STATES)
def test_a_state_is_found_and_its_command_ends_it(clone: Path, name: str) -> None:
    STATES[name](clone)
    checkout = Checkout.open(clone)
    (sentence,) = editable.problems(checkout, PATHS)
    with pytest.raises(Refused):
        editable.require(checkout, PATHS)
    command = re.split(r": (?=git |rm |printf )", sentence)[-1]
    subprocess.run(command, shell=True, check=True, cwd="/")
    assert list(editable.problems(checkout, PATHS)) == []
    checkout.apply([Edit(path, TEXT, TEXT.replace("26.02", "26.04")) for path in PATHS])
    assert checkout.uncommitted(PATHS) == sorted(PATHS)
    commit = checkout.commit(PATHS, "Moved")
    assert checkout.read(PATHS, commit) == dict.fromkeys(PATHS, TEXT.replace("26.02", "26.04"))


def test_ordinary_checkouts_have_no_problem(clone: Path) -> None:
    checkout = Checkout.open(clone)
    assert list(editable.problems(checkout, [*PATHS, "docker/new"])) == []
    (clone / PATHS[0]).write_text("something else")  # which others report
    assert list(editable.problems(checkout, PATHS)) == []
    git(clone, "config", "core.autocrlf", "input")
    assert list(editable.problems(checkout, PATHS)) == []


def test_a_link_is_found(clone: Path) -> None:
    (clone / PATHS[0]).unlink()
    (clone / PATHS[0]).symlink_to("Case")
    assert "symbolic link" in " ".join(editable.problems(Checkout.open(clone), PATHS))
