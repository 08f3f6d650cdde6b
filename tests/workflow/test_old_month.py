"""The lines that still name the month from which the pins were moved, in real repositories."""

import subprocess
from pathlib import Path

import pytest

from runbook_lib.cli.__main__ import main
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins import pins_file
from runbook_lib.pins.pins_file import Repository
from runbook_lib.text.edits import Edit
from runbook_lib.workflow import old_month

IMAGE = "nvcr.io/nvidia/pytorch"
PINS = f"""\
version: 1
image: {IMAGE}
pins:
  - {{path: Dockerfile, find: {{text: 'FROM {{image}}'}}, kind: lockstep}}
  - {{path: lts.txt, find: {{file: whole}}, kind: lockstep, type: lts}}
  - {{path: old.txt, find: {{file: whole}}, kind: frozen}}
"""


def git(place: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(place), *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(place: Path, texts: dict[str, str]) -> None:
    for path, text in texts.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)
    git(place, "add", "-A")
    git(place, "commit", "-qm", "x")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    place = tmp_path / "clone"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    frozen = {"lts.txt": f"{IMAGE}:25.09-py3\n", "old.txt": f"{IMAGE}:26.02-py3\n"}
    commit(place, {".base-image-pins.yaml": PINS, "Dockerfile": f"FROM {IMAGE}:26.02-py3\n"} | frozen)
    return place


@pytest.fixture
def repository() -> Repository:
    return pins_file.parse(PINS, "me/x")


def places(found: old_month.OldMonths) -> list[str]:
    return [line.place for line in found.lines]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", False),
        ("Use 26.04.\n", False),
        ("Version 126.02, 26.025, 1.26.02 or 26.02.1\n", False),  # other numbers
        ("Use 26.02.\n", True),
        ("squashed: pytorch26.02-py3-small\n", True),
        ("CONTAINER=26.02-py3\n", True),
        ("see rel-26.02/index.html\r\n", True),
    ],
)
def test_a_line_is_listed_if_it_names_the_month(clone: Path, repository: Repository, text: str, named: bool) -> None:
    commit(clone, {"Dockerfile": f"FROM {IMAGE}:26.04-py3\n", "docs/a b.md": f"# x\n{text}"})
    for ref in (None, "main"):
        found = old_month.find(Checkout.open(clone), ref, ["26.02-py3"], repository.sites)
        assert places(found) == (["docs/a b.md:2"] if named else [])
        assert bool(found.count) == named


def test_a_month_that_a_pin_still_names_is_not_old(clone: Path, repository: Repository) -> None:
    commit(clone, {"a.md": "26.02 and 25.09\n"})
    nothing = old_month.find(Checkout.open(clone), None, ["26.02-py3", "25.09-py3"], repository.sites)
    assert (nothing.names, nothing.count) == ((), "")


def test_planned_edits_are_searched_as_they_will_be(clone: Path, repository: Repository) -> None:
    before = f"# 26.02\nFROM {IMAGE}:26.02-py3\n"
    commit(clone, {"Dockerfile": before})
    edit = Edit("Dockerfile", before, before.replace("pytorch:26.02", "pytorch:26.04"))
    found = old_month.find(Checkout.open(clone), "main", ["26.02-py3"], repository.sites, [edit])
    assert places(found) == ["Dockerfile:1"]
    assert "Dockerfile:1" in found.sentence


def test_the_former_tag_is_that_of_the_last_move(clone: Path, repository: Repository) -> None:
    checkout = Checkout.open(clone)
    assert old_month.former_tags(checkout, "main", repository.sites) == frozenset()
    for month in ("26.03", "26.04"):
        commit(clone, {"Dockerfile": f"FROM {IMAGE}:{month}-py3\n"})
    commit(clone, {"Dockerfile": f"# a comment\nFROM {IMAGE}:26.04-py3\n"})
    for ref in (None, "main"):
        assert old_month.former_tags(checkout, ref, repository.sites) == {"26.03-py3"}


def test_check_fails_on_old_lines_only_if_strict(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit(clone, {"Dockerfile": f"FROM {IMAGE}:26.04-py3\n"})
    assert main(["check", str(clone), "--strict"]) == 0
    commit(clone, {"run.sh": "docker pull mirror/pytorch:26.02-py3\n"})
    assert main(["check", str(clone)]) == 0
    capsys.readouterr()
    assert main(["check", str(clone), "--strict"]) == 1
    assert "run.sh:1" in capsys.readouterr().out


def test_a_shallow_clone_is_reported(clone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit(clone, {"Dockerfile": f"FROM {IMAGE}:26.04-py3\n", "run.sh": "26.02\n"})
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{clone}", str(shallow))
    assert main(["check", str(shallow), "--strict"]) == 0
    assert "--unshallow" in capsys.readouterr().out


def test_a_folder_without_its_objects_is_an_error(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit(clone, {"Dockerfile": f"FROM {IMAGE}:26.04-py3\n", "run.sh": "26.02\n"})
    blob = git(clone, "rev-parse", "HEAD:run.sh")
    (clone / ".git/objects" / blob[:2] / blob[2:]).unlink()
    assert main(["check", str(clone), "--strict", "--ref", "main"]) == 2
    assert "could not be searched" in capsys.readouterr().out
