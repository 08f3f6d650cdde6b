"""All records together: whether they are whole, and where each bump stands."""

import argparse
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from archives import BUMP, record

from runbook_lib.cli import audit as archive_commands
from runbook_lib.errors import RunbookError
from runbook_lib.records import archive
from runbook_lib.records.chain import Ledger, read_head, read_predicate
from runbook_lib.records.pages import index
from runbook_lib.records.statement import Identity
from runbook_lib.records.status import BumpStatus
from runbook_lib.records.verify import verify
from runbook_lib.system import provenance
from runbook_lib.system.clock import now, stamp


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    """An archive of two bumps, one with four records, of which one still runs."""
    place = tmp_path / "audit"
    check = {"name": "the tag", "status": "failed", "detail": "No such tag."}
    bump = record(place, "bump", "running")
    record(place, "01-pin", "done", "4 lines changed.", at=1, parent=bump)
    record(place, "04-run-ci", "waiting", "Waiting for CI.", at=2, parent=bump)
    record(place, "07-sync-check", "done", "In sync.", at=3)
    practised = Identity("o/r", "dev", "lts", "26.04-py3", practice=True)
    record(place, "bump", "failed", "No such tag.", at=9, bump=practised, checks=[check])
    index.write_index(place)
    return place


def folder(audit: Path, name: str) -> Path:
    (found,) = audit.glob(f"o-r/main/dev-26.04-py3/*-{name}-*")
    return found


# -- whole, or not -------------------------------------------------------------------------------------------------


def test_an_archive_as_it_was_written_is_whole(audit: Path) -> None:
    problems, counts = verify(audit)
    assert problems == []
    assert str(counts) == "2 bumps, 5 records, 1 running, 8 files"


@pytest.mark.parametrize("part", [".", "o-r", "o-r/main/dev-26.04-py3", "practice"])
def test_a_part_of_an_archive_can_be_verified_too(audit: Path, part: str) -> None:
    problems, counts = verify(audit / part)
    assert problems == []
    assert counts.bumps == (2 if part == "." else 1)


def test_nothing_is_whole(tmp_path: Path) -> None:
    assert verify(tmp_path)[0] == []


def test_what_is_made_from_the_records_belongs_to_the_archive(audit: Path) -> None:
    assert len(list(audit.rglob("story.html"))) == 2
    story = folder(audit, PIN).with_name("story.html")
    content = story.read_bytes()
    for changed in (b"anything", content[:-1], content + b" ", content.replace(b"o/r", b"o/s", 1)):
        story.write_bytes(changed)
        assert ["was changed since it was made" in problem for problem in verify(audit)[0]] == [True]
    story.unlink()
    index.write_index(audit)
    assert verify(audit)[0] == []
    shutil.move(story, audit / "elsewhere")
    story.symlink_to(audit / "elsewhere")
    assert ["story.html: does not belong" in problem for problem in verify(audit)[0]] == [True]


@pytest.mark.parametrize("process", [{}, None, "1"])
def test_a_record_whose_process_is_gone_does_not_run(tmp_path: Path, process: object) -> None:
    record(tmp_path, "bump", "running", live=False)
    assert str(verify(tmp_path)[1]) == "1 bumps, 1 records, 0 running, 1 killed, 0 files"
    edit(next(tmp_path.rglob("run.json")), lambda document: document["predicate"].update(process=process))
    assert str(verify(tmp_path)[1]) == "1 bumps, 1 records, 0 running, 1 killed, 0 files"


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads(path.read_bytes())
    change(data)
    path.write_text(json.dumps(data))


def replace_by_link(path: Path) -> None:
    moved = path.parents[5] / "elsewhere"
    shutil.move(path, moved)
    path.symlink_to(moved)


def swap(one: Path, other: Path) -> None:
    names = [path.name for path in (one, other)]
    one.rename(one.with_name("moved"))
    other.rename(one)
    one.with_name("moved").rename(other)
    assert sorted(path.name for path in (one, other)) == sorted(names)


PIN, CI, SYNC, OPEN = "01-pin", "04-run-ci", "07-sync-check", "bump"
CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a byte of a file": (lambda a: flip(folder(a, PIN) / "executed.ipynb"), "was changed after the record was closed"),
    "a byte of the last record's file": (lambda a: flip(folder(a, SYNC) / "report.html"), "was changed after"),
    "a file removed": (lambda a: (folder(a, PIN) / "report.html").unlink(), "report.html: was removed"),
    "a file added": (lambda a: (folder(a, PIN) / "new").write_text("x"), "new: was added"),
    "a hidden file added": (lambda a: (folder(a, PIN) / ".new").write_text("x"), ".new: was added"),
    "a folder added": (lambda a: (folder(a, PIN) / "new").mkdir(), "new: was added"),
    "a file that became a link": (
        lambda a: replace_by_link(folder(a, PIN) / "report.html"),
        "something that is no file",
    ),
    "a statement that became a link": (lambda a: replace_by_link(folder(a, PIN) / "run.json"), "it is a link"),
    "a statement's state": (
        lambda a: edit(folder(a, CI) / "run.json", lambda d: d["predicate"].update(state="done")),
        "run.json: was changed",
    ),
    "the last statement's state": (
        lambda a: edit(folder(a, SYNC) / "run.json", lambda d: d["predicate"].update(state="failed")),
        "its sha256 is not the one that head names",
    ),
    "a closed record made running": (
        lambda a: edit(folder(a, SYNC) / "run.json", lambda d: d["predicate"].update(state="running")),
        "says that it runs, but head does not list it",
    ),
    "a running record made closed": (
        lambda a: edit(folder(a, OPEN) / "run.json", lambda d: d["predicate"].update(state="done")),
        "is closed, but head lists it as open",
    ),
    "a time in the future": (
        lambda a: edit(folder(a, PIN) / "run.json", lambda d: d["predicate"].update(ended="2999-01-01T00:00:00.000Z")),
        "is from the future",
    ),
    "an earlier end": (
        lambda a: edit(folder(a, PIN) / "run.json", lambda d: d["predicate"].update(ended="2026-01-01T00:00:00.000Z")),
        "times that contradict",
    ),
    "a statement emptied": (
        lambda a: (folder(a, PIN) / "run.json").write_text("{}"),
        "cannot be read as the statement",
    ),
    "a statement removed": (lambda a: (folder(a, PIN) / "run.json").unlink(), "has no run.json"),
    "a record removed": (lambda a: shutil.rmtree(folder(a, PIN)), "it was removed"),
    "the last record removed": (lambda a: shutil.rmtree(folder(a, SYNC)), "it was removed"),
    "a running record removed": (lambda a: shutil.rmtree(folder(a, OPEN)), "lists it as open: it was removed"),
    "a record renamed": (lambda a: folder(a, PIN).rename(folder(a, PIN).with_name("x-01-pin-y")), "was renamed"),
    "a record copied": (
        lambda a: shutil.copytree(folder(a, PIN), folder(a, PIN).with_name("20260401T000100Z-01-pin-copy")),
        "was renamed: it is the record",
    ),
    "two records swapped": (lambda a: swap(folder(a, PIN), folder(a, CI)), "was renamed"),
    "a folder of something else added": (
        lambda a: folder(a, PIN).with_name("new").mkdir(),
        "has no run.json: it is no record",
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
    "a folder above renamed": (lambda a: (a / "o-r").rename(a / "o-s"), "does not belong here"),
    "practice passed off as real": (
        lambda a: shutil.copytree(a / "practice" / "o-r" / "dev", a / "o-r" / "dev"),
        "it is a record of practice/o-r",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_any_change_is_found_and_named(audit: Path, name: str) -> None:
    change, words = CHANGES[name]
    change(audit)
    problems, _ = verify(audit)
    assert [problem for problem in problems if words in problem], problems
    assert all(problem.startswith(str(audit)) for problem in problems)


def test_each_byte_of_a_statement_counts(audit: Path) -> None:
    file = folder(audit, PIN) / "run.json"
    content = file.read_bytes()
    for position in range(0, len(content), 37):
        file.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        assert verify(audit)[0] != []
    file.write_bytes(content)
    assert verify(audit)[0] == []


# -- the dead ------------------------------------------------------------------------------------------------------


def test_a_run_whose_process_is_gone_is_closed_as_killed(tmp_path: Path) -> None:
    alive = record(tmp_path, "bump", "running")
    dead = record(tmp_path, "01-pin", "running", at=1, live=False)
    place = tmp_path.joinpath(*BUMP.parts)
    (place / dead / "contributions.jsonl").write_text('{"kind": "effect", "effect": "push", "at": "then"}\n{"kind"')
    assert [one.state for one in archive.status(tmp_path)] == ["killed"]
    with Ledger.locked(place) as ledger:
        assert archive.close_dead(ledger) == [dead]
        assert archive.close_dead(ledger) == []
    found = json.loads((place / dead / "run.json").read_bytes())["predicate"]
    assert (found["state"], found["effects"]) == ("killed", [{"effect": "push", "at": "then"}])
    assert "process was killed" in found["outcome"]["sentence"]
    assert "process was killed" in (place / dead / "report.html").read_text()
    assert read_head(place)[1] == [alive]
    assert [problem for problem in verify(tmp_path)[0] if "times that" not in problem] == []


# -- where bumps stand ---------------------------------------------------------------------------------------------


def stands(tmp_path: Path, *runs: tuple[str, str, str, bool]) -> BumpStatus:
    parent = None
    for at, (notebook, state, sentence, child) in enumerate(runs):
        name = record(tmp_path, notebook, state, sentence, at=at, parent=parent if child else None)
        parent = parent if child else name
    (found,) = archive.status(tmp_path)
    return found


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([("bump", "previewed", "Would.", False)], ("previewed", "bump", "Would.", 0)),
        # stopped by its inputs, such as a mistyped tag
        ([("bump", "failed", "No such tag.", False)], ("not begun", "bump", "No such tag.", 0)),
        (
            [("bump", "failed", "A step failed.", False), ("01-pin", "failed", "It differs.", True)],
            ("failed", "bump", "A step failed.", 0),
        ),
        (
            [("bump", "waiting", "Wait.", False), ("bump", "failed", "accept must read …", False)],
            ("waiting", "bump", "Wait.", 0),
        ),
        ([("01-pin", "done", "Changed.", False)], ("in progress", "01-pin", "Changed.", 0)),
        (
            [("bump", "waiting", "Wait.", False), ("01-pin", "done", "x", True), ("04-run-ci", "waiting", "CI.", True)],
            ("waiting", "04-run-ci", "CI.", 2),
        ),
        # a preview in between tells nothing about the bump
        ([("bump", "waiting", "Wait.", False), ("bump", "previewed", "x", False)], ("waiting", "bump", "Wait.", 0)),
        # running a step again does not shorten the wait
        (
            [("04-run-ci", "waiting", "CI.", False), ("04-run-ci", "waiting", "CI.", False)],
            ("waiting", "04-run-ci", "CI.", 0),
        ),
        (
            [("04-run-ci", "waiting", "CI 1.", False), ("04-run-ci", "waiting", "CI 2.", False)],
            ("waiting", "04-run-ci", "CI 2.", 1),
        ),
        # nor does what CI has done meanwhile
        (
            [("04-run-ci", "waiting", "CI 1 (0 of 4 jobs).", False), ("04-run-ci", "waiting", "CI 1 (3 of 4).", False)],
            ("waiting", "04-run-ci", "CI 1 (3 of 4).", 0),
        ),
        ([("04-run-ci", "cancelled", "Cancelled.", False)], ("cancelled", "04-run-ci", "Cancelled.", 0)),
    ],
)  # fmt: skip
def test_where_a_bump_stands(
    tmp_path: Path, runs: list[tuple[str, str, str, bool]], expected: tuple[str, str, str, int]
) -> None:
    found = stands(tmp_path, *runs)
    since = f"2026-04-01T00:{expected[3]:02}:30.000Z"  # each takes half a minute
    assert (found.state, found.step, found.sentence, found.since) == (*expected[:3], since)


@pytest.mark.parametrize(
    ("child", "expected"),
    [
        ("done", ("running", "bump", "2026-04-01T00:00:00.000Z")),
        ("running", ("running", "01-pin", "2026-04-01T00:01:00.000Z")),
    ],
)
def test_a_running_bump_names_the_step_that_it_is_at(
    tmp_path: Path, child: str, expected: tuple[str, str, str]
) -> None:
    found = stands(tmp_path, ("bump", "running", "", False), ("01-pin", child, "", True))
    assert (found.state, found.step, found.since) == expected
    assert (found.last, found.active) == ("", "2026-04-01T00:01:00.000Z")


@pytest.mark.parametrize("state", ["failed", "cancelled", "running", "previewed"])
def test_a_preview_tells_nothing_however_it_ends(tmp_path: Path, state: str) -> None:
    record(tmp_path, "bump", "waiting", "Wait.")
    parameters = {"resolved": {"apply": False}}
    record(tmp_path, "05-golden-values", state, "No run 77.", at=7, parameters=parameters, inputs={"run": 77})
    (found,) = archive.status(tmp_path)
    assert (found.state, found.step, found.since) == ("waiting", "bump", "2026-04-01T00:00:30.000Z")


def test_paths_are_absolute_wherever_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path / "audit", "bump", "done")
    monkeypatch.chdir(tmp_path)
    (found,) = archive.status(Path("audit"))
    assert Path(found.record).parent == Path(found.story).parent == tmp_path.joinpath("audit", *BUMP.parts)


def test_a_run_that_failed_says_what_to_do(tmp_path: Path) -> None:
    found = stands(tmp_path, ("bump", "cancelled", "Cancelled.", False))
    assert "Run the same command again" in found.next


def test_an_open_record_counts_with_what_it_did_so_far(tmp_path: Path) -> None:
    name = record(tmp_path, "bump", "running")
    line = {"kind": "link", "at": "then", "name": "pull request", "url": "https://x/1"}
    (tmp_path.joinpath(*BUMP.parts) / name / "contributions.jsonl").write_text(json.dumps(line))
    (found,) = archive.status(tmp_path)
    assert found.links == {"pull request": "https://x/1"}


def test_where_a_bump_stands_links_what_belongs_to_it(tmp_path: Path) -> None:
    record(tmp_path, "bump", "done", at=1, links={"pull request": "https://x/1", "CI run": "https://x/old"})
    issue = {"effect": "issue", "target": "#12", "before": None, "after": "It hangs", "url": "https://x/12"}
    record(tmp_path, "04-run-ci", "waiting", "CI.", at=5, links={"CI run": "https://x/new"}, effects=[issue])
    (found,) = archive.status(tmp_path)
    assert found.started == "2026-04-01T00:01:00.000Z"
    assert found.links == {"pull request": "https://x/1", "CI run": "https://x/new", "issue #12": "https://x/12"}
    assert Path(found.story) == tmp_path.joinpath(*BUMP.parts, "story.html")


def test_status_tells_people_and_machines(audit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert archive_commands.command_status(argparse.Namespace(audit=str(audit), json=False)) == 0
    told = capsys.readouterr().out
    assert "o/r main dev 26.04-py3: waiting" in told
    assert "  04-run-ci: Waiting for CI.\n  since 2026-04-01T00:02:30.000Z" in told
    assert "o/r dev lts 26.04-py3 (practice): failed\n  bump: No such tag." in told
    assert archive_commands.command_status(argparse.Namespace(audit=str(audit), json=True)) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(one["state"], one["practice"]) for one in listed] == [("failed", True), ("waiting", False)]
    assert all(Path(one["record"]).is_dir() and Path(one["story"]).is_file() for one in listed)


def test_status_sets_apart_what_nobody_began(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(
        tmp_path,
        "bump",
        "failed",
        "26.4-py3 is no tag.",
        bump=Identity("o/r", "main", "dev", "26.4-py3", practice=False),
    )
    record(tmp_path, "bump", "previewed", "No tag was given.", bump=Identity("o/r", "main", "dev", "", practice=False))
    assert archive_commands.command_status(argparse.Namespace(audit=str(tmp_path), json=False)) == 0
    told = capsys.readouterr().out
    assert told.startswith("There is no bump in ")
    assert "anything being changed:\n" in told
    assert "  o/r main dev 26.4-py3: not begun. 26.4-py3 is no tag.\n" in told
    assert "  o/r main dev no tag: previewed. No tag was given.\n" in told


def test_status_names_a_record_that_cannot_be_read(audit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = folder(audit, CI)
    (damaged / "run.json").write_text("{")
    for name in ("o-r/main/dev-26.03-py3/20260301T000000Z-bump-1", "o-r/main/dev-26.04-py3/.opening-x"):
        (audit / name).mkdir(parents=True)
        (audit / name / "run.json").write_text("")
    assert archive_commands.command_status(argparse.Namespace(audit=str(audit), json=False)) == 0
    told = capsys.readouterr()
    assert "o/r main dev 26.04-py3: 1 record cannot be read" in told.err
    assert damaged.name in told.err
    assert "o-r main dev 26.03-py3: unreadable\n  None of its records can be read.\n  next: " in told.out
    assert "`runbook audit verify`" in told.err
    assert "opening" not in told.err


def test_the_bump_that_was_worked_on_last_comes_first(tmp_path: Path) -> None:
    for at, tag in enumerate(("26.05-py3", "26.03-py3", "26.04-py3")):
        record(tmp_path, "bump", "done", at=at, bump=Identity("o/r", "main", "dev", tag, practice=False))
    assert [one.tag for one in archive.status(tmp_path)] == ["26.04-py3", "26.03-py3", "26.05-py3"]


def test_status_of_no_archive_says_how_to_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNBOOK_AUDIT", str(tmp_path / "none"))
    assert archive_commands.command_status(argparse.Namespace(audit="", json=False)) == 0
    assert "environment/run papermill runbooks/bump.ipynb -r tag" in capsys.readouterr().out
    for as_json in (False, True):  # one that a person named must be there
        with pytest.raises(RunbookError, match=f"There is no archive {tmp_path / 'none'}"):
            archive_commands.command_status(argparse.Namespace(audit=str(tmp_path / "none"), json=as_json))
    assert not (tmp_path / "none").exists()


def test_audit_verify_says_so_and_ends_with_it(audit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = argparse.Namespace(action="verify", dir=str(audit), allowed_signers="")
    assert archive_commands.command_audit(options) == 0
    told, guarded = capsys.readouterr().out.splitlines()
    assert told == f"{audit} is whole. Looked at 2 bumps, 5 records, 1 running, 8 files."
    assert guarded.startswith("No git history guards it: ")
    flip(folder(audit, PIN) / "executed.ipynb")
    assert archive_commands.command_audit(options) == 1
    told = capsys.readouterr()
    assert "is not whole: 1 problem. Looked at" in told.out
    assert told.err.startswith(str(folder(audit, PIN) / "executed.ipynb: was changed"))
    with pytest.raises(RunbookError, match="There is no archive"):
        archive_commands.command_audit(argparse.Namespace(dir=str(audit / "none"), allowed_signers=""))


def test_looking_changes_nothing(audit: Path) -> None:
    def tree() -> dict[Path, float]:
        return {path: path.stat().st_mtime for path in audit.rglob("*")}

    before = tree()
    verify(audit)
    archive.status(audit)
    assert tree() == before


def test_a_link_that_a_run_left_is_not_vouched_for(tmp_path: Path) -> None:
    name = record(tmp_path, PIN, "running")
    place = tmp_path.joinpath(*BUMP.parts)
    (tmp_path / "outside").write_text("may change at any time")
    (place / name / "notes").symlink_to(tmp_path / "outside")
    with Ledger.locked(place) as ledger:
        ledger.close(name, {**read_predicate(ledger.folder / name), "state": "done"})
    subjects = json.loads((place / name / "run.json").read_bytes())["subject"]
    assert [subject["name"] for subject in subjects] == ["executed.ipynb", "report.html"]
    assert [problem for problem in verify(tmp_path)[0] if "notes: was added" in problem]


def test_links_are_not_followed(audit: Path, tmp_path: Path) -> None:
    os.symlink(audit, audit / "o-r" / "loop")
    (tmp_path / "outside").mkdir()
    (audit / "out").symlink_to(tmp_path / "outside")
    problems, counts = verify(audit)
    assert counts.bumps == 2
    assert [problem.split(": ")[1][:9] for problem in problems] == ["is a link"] * 2  # nor what a bump was replaced by
    assert len(archive.status(audit)) == 2


# -- what is damaged --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        lambda predicate: predicate.clear(),
        lambda predicate: predicate.update(started="yesterday"),
        lambda predicate: predicate.update(ended=7),
        lambda predicate: predicate.update(notebook=None),
        lambda predicate: predicate.update(notebook={"name": 1}),
        lambda predicate: predicate.update(bump=[]),
        lambda predicate: predicate.update(state="running", process=None),
        lambda predicate: predicate.update(effects=[1]),
        lambda predicate: predicate.update(checks=7),
        lambda predicate: predicate.update(outcome="done", links=["x"]),
    ],
)
def test_damaged_records_do_not_stop_the_index_or_the_status(
    audit: Path, damage: Callable[[dict[str, Any]], object]
) -> None:
    edit(folder(audit, PIN) / "run.json", lambda document: damage(document["predicate"]))
    index.write_index(audit)
    assert len(archive.status(audit)) == 2
    assert verify(audit)[0] != []


def test_the_default_archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert archive.default(tmp_path / "x" / "runbooks" / "a.ipynb") == tmp_path / "x" / "audit"
    assert archive.default() == provenance.ROOT / "audit"
    monkeypatch.setenv("RUNBOOK_AUDIT", str(tmp_path))
    assert archive.default() == archive.default(Path("a.ipynb")) == tmp_path


def test_how_long_ago() -> None:
    assert archive_commands._ago(stamp(now())).endswith("(just now)")
    assert "days ago" in archive_commands._ago("2020-01-01T00:00:00.000Z")


def test_an_audit_that_found_no_record_proves_nothing(tmp_path: Path) -> None:
    from argparse import Namespace

    with pytest.raises(RunbookError, match="No record was found"):
        archive_commands.command_audit(Namespace(dir=str(tmp_path), allowed_signers=""))
