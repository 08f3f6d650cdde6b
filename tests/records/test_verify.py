"""Verification of an archive: each change is reported with the file that it is in."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from archives import BUMP, CI, OPEN, PIN, SYNC, edit, flip, record, two_bumps
from archives import record_folder as folder

from runbook_lib.records import archive
from runbook_lib.records.chain import Ledger, read_predicate
from runbook_lib.records.pages import index
from runbook_lib.records.verify import verify


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    return two_bumps(tmp_path)


def test_finds_no_problem_in_an_unchanged_archive(audit: Path) -> None:
    problems, counts = verify(audit)
    assert problems == []
    assert str(counts) == "2 bumps, 5 records, 1 running, 8 files"


@pytest.mark.parametrize("part", [".", "o-r", "o-r/main/dev-26.04-py3", "practice"])
def test_verifies_a_part_of_an_archive(audit: Path, part: str) -> None:
    problems, counts = verify(audit / part)
    assert problems == []
    assert counts.bumps == (2 if part == "." else 1)


def test_finds_no_problem_in_an_empty_folder(tmp_path: Path) -> None:
    assert verify(tmp_path)[0] == []


def test_checks_the_seal_of_a_story(audit: Path) -> None:
    assert len(list(audit.rglob("story.html"))) == 2
    story = folder(audit, PIN).with_name("story.html")
    content = story.read_bytes()
    for changed in (b"anything", content[:-1], content + b" ", content.replace(b"o/r", b"o/s", 1)):
        story.write_bytes(changed)
        assert ["was changed since it was created" in problem for problem in verify(audit)[0]] == [True]
    story.unlink()
    index.write_index(audit)
    assert verify(audit)[0] == []
    shutil.move(story, audit / "elsewhere")
    story.symlink_to(audit / "elsewhere")
    assert ["story.html: does not belong" in problem for problem in verify(audit)[0]] == [True]


@pytest.mark.parametrize("process", [{}, None, "1"])
def test_counts_a_record_without_process_as_killed(tmp_path: Path, process: object) -> None:
    record(tmp_path, "bump", "running", live=False)
    assert str(verify(tmp_path)[1]) == "1 bump, 1 record, 0 running, 1 killed, 0 files"
    edit(next(tmp_path.rglob("run.json")), lambda document: document["predicate"].update(process=process))
    assert str(verify(tmp_path)[1]) == "1 bump, 1 record, 0 running, 1 killed, 0 files"


def test_checkpoints_of_jupyter_are_named_but_no_problem(audit: Path) -> None:
    record_checkpoints = folder(audit, PIN) / ".ipynb_checkpoints"
    for checkpoints in (record_checkpoints, record_checkpoints.parent.with_name(".ipynb_checkpoints")):
        checkpoints.mkdir()
        (checkpoints / "report-checkpoint.html").write_text("x")
    problems, counts = verify(audit)
    assert problems == []
    assert [remark.partition(":")[0] for remark in counts.remarks] == [
        str(record_checkpoints.parent.with_name(".ipynb_checkpoints")), str(record_checkpoints)
    ]  # fmt: skip
    assert "records" in str(counts)
    assert "remarks" not in str(counts)
    assert not any(bump.warning for bump in archive.status(audit))
    shutil.rmtree(record_checkpoints)
    record_checkpoints.write_text("not a folder")
    assert ["was added" in problem for problem in verify(audit)[0]] == [True]


def replace_by_link(path: Path) -> None:
    moved = path.parents[5] / "elsewhere"
    shutil.move(path, moved)
    path.symlink_to(moved)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a byte of a file": (
        lambda a: flip(folder(a, PIN) / "executed.ipynb"),
        "was changed after the record was closed",
    ),
    "a file removed": (lambda a: (folder(a, PIN) / "report.html").unlink(), "report.html: was removed"),
    "a file added": (lambda a: (folder(a, PIN) / "new").write_text("x"), "new: was added"),
    "a file that became a link": (
        lambda a: replace_by_link(folder(a, PIN) / "report.html"),
        "is not a file",
    ),
    "a statement that became a link": (lambda a: replace_by_link(folder(a, PIN) / "run.json"), "it is a link"),
    "a statement's state": (
        lambda a: edit(folder(a, CI) / "run.json", lambda d: d["predicate"].update(state="done")),
        "run.json: was changed",
    ),
    "the last statement's state": (
        lambda a: edit(folder(a, SYNC) / "run.json", lambda d: d["predicate"].update(state="failed")),
        "its sha256 differs from the one in head",
    ),
    "a closed record made running": (
        lambda a: edit(folder(a, SYNC) / "run.json", lambda d: d["predicate"].update(state="running")),
        "claims to be running, but head does not list it",
    ),
    "a running record made closed": (
        lambda a: edit(folder(a, OPEN) / "run.json", lambda d: d["predicate"].update(state="done")),
        "is closed, but head lists it as open",
    ),
    "a statement removed": (lambda a: (folder(a, PIN) / "run.json").unlink(), "has no run.json"),
    "a record removed": (lambda a: shutil.rmtree(folder(a, PIN)), "it was removed"),
    "a running record removed": (lambda a: shutil.rmtree(folder(a, OPEN)), "lists it as open: it was removed"),
    "a record renamed": (
        lambda a: folder(a, PIN).rename(folder(a, PIN).with_name("x-01-pin-y")),
        "was renamed",
    ),
    "a record copied": (
        lambda a: shutil.copytree(folder(a, PIN), folder(a, PIN).with_name("20260401T000100Z-01-pin-copy")),
        "was renamed: it is the record",
    ),
    "a folder of something else added": (
        lambda a: folder(a, PIN).with_name("new").mkdir(),
        "has no run.json",
    ),
    "a file beside the records": (lambda a: folder(a, PIN).with_name("new").write_text("x"), "does not belong"),
    "head emptied": (lambda a: folder(a, PIN).with_name("head").write_text(""), "is damaged"),
    "head removed": (lambda a: folder(a, PIN).with_name("head").unlink(), "is not in the chain"),
    "head put back": (
        lambda a: edit(
            folder(a, PIN).with_name("head"),
            lambda d: d.update(last=json.loads((folder(a, SYNC) / "run.json").read_bytes())["predicate"]["previous"]),
        ),
        "is not in the chain",
    ),
    "the bump's folder renamed": (
        lambda a: folder(a, PIN).parent.rename(folder(a, PIN).parent.with_name("dev-26.05-py3")),
        "does not belong here: it is a record of o-r/main/dev-26.04-py3",
    ),
    "practice passed off as real": (
        lambda a: shutil.copytree(a / "practice" / "o-r" / "dev", a / "o-r" / "dev"),
        "it is a record of practice/o-r",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_reports_any_change_with_its_file(audit: Path, name: str) -> None:
    change, words = CHANGES[name]
    change(audit)
    problems, _ = verify(audit)
    assert [problem for problem in problems if words in problem], problems
    assert all(problem.startswith(str(audit)) for problem in problems)


def test_verification_and_status_write_nothing(audit: Path) -> None:
    def tree() -> dict[Path, float]:
        return {path: path.stat().st_mtime for path in audit.rglob("*")}

    before = tree()
    verify(audit)
    archive.status(audit)
    assert tree() == before


def test_a_link_is_not_part_of_a_record(tmp_path: Path) -> None:
    name = record(tmp_path, PIN, "running")
    place = tmp_path.joinpath(*BUMP.parts)
    (tmp_path / "outside").write_text("may change at any time")
    (place / name / "notes").symlink_to(tmp_path / "outside")
    with Ledger.locked(place) as ledger:
        ledger.close(name, {**read_predicate(ledger.folder / name), "state": "done"})
    subjects = json.loads((place / name / "run.json").read_bytes())["subject"]
    assert [subject["name"] for subject in subjects] == ["executed.ipynb", "report.html"]
    assert [problem for problem in verify(tmp_path)[0] if "notes: was added" in problem]
