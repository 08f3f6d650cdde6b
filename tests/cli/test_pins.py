"""``runbook pins find`` on repositories with a history: who moves, what is skipped, and the file that it writes."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from runbook_lib.cli.__main__ import main
from runbook_lib.cli.pins import find
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins import pins_file
from runbook_lib.pins.repositories import FILE

IMAGE = "nvcr.io/nvidia/pytorch"
DAY = 24 * 3600
START = 1_750_000_000


class History:
    """A repository whose commits are made one after the other, each on a given day."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.git("init", "-q", "-b", "main", ".", at=path.mkdir() or path)

    def git(self, *arguments: str, at: Path | None = None, day: float = 0) -> str:
        date = f"{START + int(day * DAY)} +0000"
        env = os.environ | {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        done = subprocess.run(
            ["git", "-C", str(at or self.path), "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
            env=env, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    def commit(self, day: float, **files: str | None) -> str:
        """Commit files by name (``_`` for a slash, ``__`` for a dot); a tag is written as a reference."""
        for name, text in files.items():
            self.write(name.replace("__", ".").replace("_", "/"), text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "x", day=day)
        return self.git("rev-parse", "HEAD")

    def write(self, name: str, text: str | None) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            path.unlink()
        else:
            path.write_text(text if "\n" in text else f"FROM {IMAGE}:{text}\n", newline="")

    def roles(self) -> dict[str, str]:
        """Return the role of each place of HEAD: the file for a single one, with its line for several."""
        pins = find(Checkout.open(self.path)).pins
        several = {pin.place.path for pin in pins if sum(pin.place.path == other.place.path for other in pins) > 1}
        return {
            f"{pin.place.path}:{pin.place.line}" if pin.place.path in several else pin.place.path: pin.role
            for pin in pins
        }


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "repo")


def moving(history: History) -> set[str]:
    return {name for name, role in history.roles().items() if role.startswith("lockstep")}


def test_places_that_were_bumped_at_different_times_all_move(history: History) -> None:
    history.commit(0, a="26.01-py3", b="26.01-py3")
    for month in (2, 3, 4):
        history.commit(0, a=f"26.0{month}-py3")
    history.commit(0, b="26.05-py3")
    assert moving(history) == {"a", "b"}


def test_what_neither_of_the_last_two_moves_changed_is_informational(history: History) -> None:
    history.commit(0, a="26.01-py3", b="26.01-py3", c="26.01-py3")
    for month in (2, 3, 4):
        history.commit(30 * month, a=f"26.0{month}-py3", **({"b": "26.02-py3"} if month == 2 else {}))
    assert history.roles() == {"a": "lockstep dev", "b": "informational", "c": "informational"}


@pytest.mark.parametrize(("days", "expected"), [(13, {"a", "b"}), (15, {"a"})])
def test_a_move_is_the_commits_of_14_days_that_bring_a_new_tag(history: History, days: int, expected: set[str]) -> None:
    history.commit(0, a="26.01-py3", b="26.01-py3")
    history.commit(1, a="26.02-py3")
    history.commit(40, a="26.03-py3")
    history.commit(40 + days, b="26.03-py3")
    assert moving(history) == expected


def test_documents_move_with_a_bump_and_make_none_themselves(history: History) -> None:
    history.commit(0, a="26.01-py3", x__md="26.01-py3", y__md="25.01-py3", examples_z="26.01-py3")
    history.commit(30, a="26.02-py3")
    history.commit(60, a="26.03-py3", x__md="26.03-py3")
    history.commit(61, examples_z="26.03-py3")
    history.commit(90, y__md="25.02-py3")
    history.commit(95, y__md="25.03-py3")
    assert moving(history) == {"a", "x.md"}


def test_an_image_in_documents_alone_moves_with_them(history: History) -> None:
    history.commit(0, x__md="26.01-py3", y__md="26.01-py3")
    history.commit(30, x__md="26.02-py3")
    assert moving(history) == {"x.md"}


def test_a_rollback_moves_the_same_places(history: History) -> None:
    for day, tag in enumerate(["26.01-py3", "26.02-py3", "26.03-py3", "26.02-py3"]):
        history.commit(30 * day, a=tag, b=tag)
    assert moving(history) == {"a", "b"}


def test_images_and_types_move_on_their_own(history: History) -> None:
    cuda = "FROM nvcr.io/nvidia/cuda-dl-base:26.0{}-cuda13.1-devel-ubuntu24.04\n"
    history.commit(0, a="26.01-py3", a__lts="25.01-py3", c=cuda.format(1), d=cuda.format(1))
    history.commit(30, a="26.02-py3", c=cuda.format(2))
    history.commit(60, a__lts="25.09-py3")
    history.commit(90, a="26.03-py3")
    history.commit(120, a="26.04-py3")
    assert history.roles() == {
        "a": "lockstep dev", "a.lts": "lockstep lts", "c": "lockstep dev", "d": "informational",
    }  # fmt: skip


def test_a_place_is_followed_through_other_changes_of_its_file(history: History) -> None:
    """Lines are added, moved, reworded and reformatted, equal lines are told apart, and files are renamed."""
    rows = "- NAME: one\n  IMAGE: {i}:{}\n- NAME: two\n  IMAGE: {i}:{}\n"
    history.commit(
        0, ci__yml=rows.format("26.01-py3", "25.01-py3", i=IMAGE), old="x\n" * 9 + f"FROM {IMAGE}:26.01-py3\n"
    )
    history.commit(
        30, ci__yml=rows.format("26.02-py3", "25.01-py3", i=IMAGE), old="x\n" * 9 + f"FROM {IMAGE}:26.02-py3\n"
    )
    history.commit(31, ci__yml="# a\n# b\n" + rows.format("26.02-py3", "25.01-py3", i=IMAGE))
    history.commit(32, old=None, new_Dockerfile="x\n" * 9 + f"FROM {IMAGE}:26.02-py3\n")
    history.commit(33, new_Dockerfile="x\n" * 8 + f"y\nARG BASE={IMAGE}:26.02-py3\n")
    history.commit(34, ci__yml=("# a\n# b\n" + rows.format("26.02-py3", "25.01-py3", i=IMAGE)).replace("  IM", "   IM"))
    assert history.roles() == {
        "ci.yml:4": "lockstep dev", "ci.yml:6": "informational", "new/Dockerfile": "lockstep dev",
    }  # fmt: skip


def test_without_a_move_the_newest_tag_moves(history: History) -> None:
    history.commit(0, a="26.01-py3", b="25.01-py3", README="26.06-py3")
    history.commit(1, c="26.01-py3")
    assert history.roles() == {
        "a": "lockstep dev", "c": "lockstep dev", "b": "informational", "README": "informational",
    }  # fmt: skip


def test_a_tag_alone_moves_like_the_others(history: History) -> None:
    for day, tag in enumerate(["26.01-py3", "26.02-py3"]):
        script = f"TAG={tag}\n# no {tag}\nrun {IMAGE}:$TAG\n"
        history.commit(30 * day, a=tag, run__sh=script, tag__txt=f"{tag}\n")
    assert moving(history) == {"a", "run.sh:1", "run.sh:2", "tag.txt"}


def test_merges_count_as_one_commit_of_the_first_parent(history: History) -> None:
    history.commit(0, a="26.01-py3", b="26.01-py3")
    history.git("switch", "-q", "-c", "side")
    history.commit(1, a="26.02-py3")
    history.commit(2, b="26.02-py3")
    history.git("switch", "-q", "main")
    history.commit(3, c="x\n")
    history.git("merge", "-q", "--no-ff", "-m", "m", "side", day=40)
    pins = find(Checkout.open(history.path)).pins
    assert {(pin.place.path, len(pin.arrivals), pin.arrivals[0].time) for pin in pins} == {
        ("a", 2, START + 40 * DAY), ("b", 2, START + 40 * DAY),
    }  # fmt: skip


def test_settings_of_git_change_nothing(history: History) -> None:
    history.commit(0, a="26.01-py3", b="x\n" * 3 + f"{IMAGE}:26.01-py3\n" + "x\n" * 3)
    history.commit(30, a="26.02-py3", b="y\n" * 3 + f"{IMAGE}:26.02-py3\n" + "z\n" * 3)
    for setting in (
        "log.showRoot=false", "log.showSignature=true", "diff.interHunkContext=9", "diff.noprefix=true",
        "color.ui=always", "diff.renames=copies", "diff.context=5", "core.quotePath=true", "grep.lineNumber=true",
        "diff.external=false", "submodule.recurse=true", "diff.mnemonicPrefix=true",
    ):  # fmt: skip
        history.git("config", *setting.split("="))
    assert moving(history) == {"a", "b"}


def test_the_written_file_gives_the_same_pins(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    for day, tag in enumerate(["26.01-py3", "26.02-py3"]):
        history.commit(30 * day, a=tag, b="25.01-py3", README__md=f"Use {IMAGE}:YY.MM-py3 for {IMAGE}.\n")
    assert main(["pins", "find", "--write", str(history.path)]) == 0
    printed = capsys.readouterr().out
    assert "lockstep dev   a:1 nvcr.io/nvidia/pytorch:26.02-py3 (moved by " in printed
    assert "informational  b:1 nvcr.io/nvidia/pytorch:25.01-py3 (never moved)" in printed
    assert "skipped        README.md:1 nvcr.io/nvidia/pytorch:YY.MM-py3 ('YY.MM-py3' is not a tag" in printed
    assert "1 lockstep, 1 informational, 2 skipped." in printed
    repository = pins_file.parse((history.path / FILE).read_text(), "x/y")
    assert [(site.path, site.kind) for site in repository.sites.pins] == [("a", "lockstep"), ("b", "informational")]
    assert main(["check", str(history.path)]) == 0
    assert main(["pins", "find", "--write", str(history.path)]) == 2
    assert "it exists and is never overwritten" in capsys.readouterr().err


def test_json_has_the_pins_the_skipped_places_and_the_file(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    history.commit(0, a="26.01-py3", b=f"docker pull {IMAGE}\n")
    assert main(["pins", "find", "--json", str(history.path)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [(pin["path"], pin["line"], pin["tag"], pin["role"]) for pin in result["pins"]] == [
        ("a", 1, "26.01-py3", "lockstep dev")
    ]
    assert [(place["path"], place["skip_reason"]) for place in result["skipped"]] == [("b", "it names no tag")]
    assert pins_file.parse(result["text"], "x/y").sites.image == IMAGE
    assert result["written"] is None


@pytest.mark.parametrize("shallow", [True, False])
def test_a_bare_clone_is_searched_and_a_shallow_one_noted(
    history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str], shallow: bool
) -> None:
    history.commit(0, a="26.01-py3")
    history.commit(1, a="26.02-py3")
    clone = tmp_path / "clone.git"
    options = ["--depth", "1"] if shallow else []
    history.git("clone", "-q", "--bare", *options, f"file://{history.path}", str(clone))
    assert main(["pins", "find", str(clone)]) == 0
    assert ("The clone is shallow" in capsys.readouterr().out) == shallow
    assert main(["pins", "find", "--write", str(clone)]) == 2
    assert "the clone is bare" in capsys.readouterr().err


def test_nothing_is_written_without_a_pin_or_over_built_in_ones(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    history.commit(0, a="x\n")
    assert main(["pins", "find", str(history.path)]) == 1
    assert main(["pins", "find", "--write", str(history.path)]) == 2
    assert "no pin was found" in capsys.readouterr().err
    history.git("remote", "add", "origin", "https://github.com/x/Megatron-LM.git")
    history.commit(1, a="26.01-py3")
    assert main(["pins", "find", "--write", str(history.path)]) == 2
    assert "the pins of NVIDIA/Megatron-LM are built in" in capsys.readouterr().err
    assert not (history.path / FILE).exists()


@pytest.mark.parametrize("name", ["a b", "é", "-x", ":(top)y", "a*", "n\nl", 'q"q'])
def test_a_file_of_any_name_is_found(history: History, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    history.write(name, "26.01-py3")
    history.commit(0, z="26.01-py3")
    history.write(name, "26.02-py3")
    history.commit(30, z="26.02-py3")
    assert main(["pins", "find", str(history.path)]) == 0
    printed = capsys.readouterr().out
    if name not in ("n\nl", 'q"q', "a*"):
        assert f"lockstep dev   {name}:1 " in printed
    else:  # git or a pins file has no way to write it
        assert "z:1" in printed
        assert name.replace("\n", "\\n") in printed
