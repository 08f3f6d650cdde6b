"""``runbook pins find`` on repositories with a history: who moves, what is skipped, and the file that it writes."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from clones import write

from runbook_lib.cli.__main__ import main
from runbook_lib.pins import pins_file
from runbook_lib.pins.repositories import FILE
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.pin_search import find

IMAGE = "nvcr.io/nvidia/pytorch"
DAY = 24 * 3600
START = 1_750_000_000


class History:
    """A repository whose commits are made one after the other, each on a given day."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str, day: float = 0) -> str:
        date = f"{START + int(day * DAY)} +0000"
        env = os.environ | {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        command = ["git", "-C", str(self.path), *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.strip()

    def commit(self, day: float, files: Mapping[str, str | None]) -> None:
        """Commit these files; a text without a line feed is a tag, written as a reference."""
        texts = {}
        for name, text in files.items():
            texts[name] = text if text is None or "\n" in text else f"FROM {IMAGE}:{text}\n"
        write(self.path, texts)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "x", day=day)

    def roles(self) -> dict[str, str]:
        """Return the role of each place of HEAD: the file for a single one, with its line for several."""
        pins = find(Checkout.open(self.path)).pins
        several = {pin.place.path for pin in pins if sum(pin.place.path == other.place.path for other in pins) > 1}
        return {
            f"{pin.place.path}:{pin.place.line}" if pin.place.path in several else pin.place.path: pin.role
            for pin in pins
        }

    def moving(self) -> set[str]:
        return {name for name, role in self.roles().items() if role.startswith("lockstep")}


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "repo")


def script(tag: str) -> str:
    return f"TAG={tag}\n# no {tag}\nrun {IMAGE}:$TAG\n"


def beside(tag: str) -> str:
    return f"FROM ${{HOST}}/nvidia/pytorch:{tag}@sha256:{tag[4] * 64}\n"


JAN, FEB, MARCH, APRIL, MAY = (f"26.0{month}-py3" for month in range(1, 6))
CUDA = "FROM nvcr.io/nvidia/cuda-dl-base:26.0{}-cuda13.1-devel-ubuntu24.04\n"


@pytest.mark.parametrize(
    ("commits", "moving"),
    [
        # Places that were bumped at different times.
        ([(0, {"a": JAN, "b": JAN}), (0, {"a": FEB}), (0, {"a": MARCH}), (0, {"a": APRIL}), (0, {"b": MAY})], "a b"),
        # What neither of the last two moves changed is informational.
        ([(0, {"a": JAN, "b": JAN}), (60, {"a": FEB, "b": FEB}), (90, {"a": MARCH}), (120, {"a": APRIL})], "a"),
        # A move is the commits of 14 days that bring a new tag.
        ([(0, {"a": JAN, "b": JAN}), (1, {"a": FEB}), (40, {"a": MARCH}), (53, {"b": MARCH})], "a b"),
        ([(0, {"a": JAN, "b": JAN}), (1, {"a": FEB}), (40, {"a": MARCH}), (55, {"b": MARCH})], "a"),
        # Documents move with a bump, and make none themselves, unless they alone name the image.
        ([(0, {"a": JAN, "x.md": JAN, "y.md": "25.01-py3", "examples/z": JAN}), (30, {"a": FEB}),
          (60, {"a": MARCH, "x.md": MARCH}), (61, {"examples/z": MARCH}), (90, {"y.md": "25.02-py3"}),
          (95, {"y.md": "25.03-py3"})], "a x.md"),
        ([(0, {"x.md": JAN, "y.md": JAN}), (30, {"x.md": FEB})], "x.md"),
        # A rollback moves the same places.
        ([(30 * day, {"a": tag, "b": tag}) for day, tag in enumerate((JAN, FEB, MARCH, FEB))], "a b"),
        # Images and types move on their own.
        ([(0, {"a": JAN, "a.lts": "25.01-py3", "c": CUDA.format(1), "d": CUDA.format(1)}),
          (30, {"a": FEB, "c": CUDA.format(2)}), (60, {"a.lts": "25.09-py3"}), (90, {"a": MARCH}), (120, {"a": APRIL})],
         "a a.lts c"),
        # Without a move the newest tag moves.
        ([(0, {"a": JAN, "b": "25.01-py3", "README": "26.06-py3"}), (1, {"c": JAN})], "a c"),
        # A tag alone moves like the others.
        ([(30 * day, {"a": tag, "run.sh": script(tag), "tag.txt": f"{tag}\n"}) for day, tag in enumerate((JAN, FEB))],
         "a run.sh:1 run.sh:2 tag.txt"),
        # So does one with others, a digest or a comma beside it.
        ([(30 * day, {"a": tag, "b": f"['{tag}', 'x', '{tag}'] 1.{day}\n", "c": beside(tag)})
          for day, tag in enumerate((JAN, FEB))], "a b:1 c"),
    ],
)  # fmt: skip
def test_what_bumps_moved_together_is_lockstep(
    history: History, commits: list[tuple[int, dict[str, str | None]]], moving: str
) -> None:
    for day, files in commits:
        history.commit(day, files)
    assert history.moving() == set(moving.split())


def test_a_place_is_followed_through_other_changes_of_its_file(history: History) -> None:
    """Lines are added, moved, reworded and reformatted, equal lines are told apart, and files are renamed."""
    rows = f"- NAME: one\n  IMAGE: {IMAGE}:26.0{{}}-py3\n- NAME: two\n  IMAGE: {IMAGE}:25.01-py3\n"
    place = "x\n" * 9 + f"FROM {IMAGE}:26.0{{}}-py3\n"
    history.commit(0, {"ci.yml": rows.format(1), "old": place.format(1)})
    history.commit(30, {"ci.yml": rows.format(2), "old": place.format(2)})
    history.commit(31, {"ci.yml": "# a\n# b\n" + rows.format(2)})
    history.commit(32, {"old": None, "new/Dockerfile": place.format(2)})
    history.commit(33, {"new/Dockerfile": "x\n" * 8 + f"y\nARG BASE={IMAGE}:26.02-py3\n"})
    history.commit(34, {"ci.yml": ("# a\n# b\n" + rows.format(2)).replace("  IM", "   IM")})
    assert history.roles() == {
        "ci.yml:4": "lockstep dev", "ci.yml:6": "informational", "new/Dockerfile": "lockstep dev",
    }  # fmt: skip


def test_merges_count_as_one_commit_of_the_first_parent(history: History) -> None:
    history.commit(0, {"a": "26.01-py3", "b": "26.01-py3"})
    history.git("switch", "-q", "-c", "side")
    history.commit(1, {"a": "26.02-py3"})
    history.commit(2, {"b": "26.02-py3"})
    history.git("switch", "-q", "main")
    history.commit(3, {"c": "x\n"})
    history.git("merge", "-q", "--no-ff", "-m", "m", "side", day=40)
    pins = find(Checkout.open(history.path)).pins
    assert {(pin.place.path, len(pin.arrivals), pin.arrivals[0].time) for pin in pins} == {
        ("a", 2, START + 40 * DAY), ("b", 2, START + 40 * DAY),
    }  # fmt: skip


def test_settings_of_git_change_nothing(history: History) -> None:
    history.commit(0, {"a": JAN, "b": "x\n" * 3 + f"{IMAGE}:{JAN}\n" + "x\n" * 3})
    history.commit(30, {"a": FEB, "b": "y\n" * 3 + f"{IMAGE}:{FEB}\n" + "z\n" * 3})
    for setting in (
        "log.showRoot=false", "log.showSignature=true", "diff.interHunkContext=9", "diff.noprefix=true",
        "color.ui=always", "diff.renames=copies", "diff.context=5", "core.quotePath=true", "grep.lineNumber=true",
        "diff.external=false", "submodule.recurse=true", "diff.mnemonicPrefix=true",
    ):  # fmt: skip
        history.git("config", *setting.split("="))
    assert history.moving() == {"a", "b"}


def test_the_written_file_gives_the_same_pins(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    for day, tag in enumerate(["26.01-py3", "26.02-py3"]):
        history.commit(30 * day, {"a": tag, "b": "25.01-py3", "README.md": f"Use {IMAGE}:YY.MM-py3 for {IMAGE}.\n"})
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
    history.commit(0, {"a": "26.01-py3", "b": f"docker pull {IMAGE}\n"})
    assert main(["pins", "find", "--json", str(history.path)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [(pin["path"], pin["line"], pin["tag"], pin["role"]) for pin in result["pins"]] == [
        ("a", 1, "26.01-py3", "lockstep dev")
    ]
    assert [(place["path"], place["skip_reason"]) for place in result["skipped"]] == [("b", "it names no tag")]
    assert pins_file.parse(result["text"], "x/y").sites.image == IMAGE
    assert result["written"] is None


def test_a_bare_clone_is_searched_and_a_shallow_one_noted(
    history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history.commit(0, {"a": "26.01-py3"})
    history.commit(1, {"a": "26.02-py3"})
    for name, options in (("full", []), ("shallow", ["--depth", "1"])):
        clone = tmp_path / name
        history.git("clone", "-q", "--bare", *options, f"file://{history.path}", str(clone))
        assert main(["pins", "find", str(clone)]) == 0
        assert ("The clone is shallow" in capsys.readouterr().out) == (name == "shallow")
        assert main(["pins", "find", "--write", str(clone)]) == 2
        assert "the clone is bare" in capsys.readouterr().err


def test_nothing_is_written_without_a_pin_or_over_built_in_ones(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    history.commit(0, {"a": "x\n"})
    assert main(["pins", "find", str(history.path)]) == 1
    assert main(["pins", "find", "--write", str(history.path)]) == 2
    assert "no pin was found" in capsys.readouterr().err
    history.git("remote", "add", "origin", "https://github.com/x/Megatron-LM.git")
    history.commit(1, {"a": "26.01-py3"})
    assert main(["pins", "find", "--write", str(history.path)]) == 2
    assert "the pins of NVIDIA/Megatron-LM are built in" in capsys.readouterr().err
    assert not (history.path / FILE).exists()


def test_a_file_of_any_name_is_found(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    names, others = ["a b", "é", "-x", ":(top)y"], ["a*", "n\nl", 'q"q']  # of which git or a pins file cannot write
    for day, tag in ((0, JAN), (30, FEB)):
        history.commit(day, dict.fromkeys([*names, *others, "z"], tag))
    assert main(["pins", "find", str(history.path)]) == 0
    printed = capsys.readouterr().out
    assert all(f"lockstep dev   {name}:1 " in printed for name in [*names, "z"])
    assert all(name.replace("\n", "\\n") in printed for name in others)


def test_a_clone_that_lacks_a_file_is_searched_without_it(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    history.commit(0, {"a": "26.01-py3", "film": "lost\n"})
    lost = history.git("rev-parse", "HEAD:film")
    (history.path / ".git/objects" / lost[:2] / lost[2:]).unlink()
    assert main(["pins", "find", str(history.path)]) == 0
    printed = capsys.readouterr().out
    assert "lockstep dev   a:1 " in printed
    assert "Some files could not be searched: " in printed
