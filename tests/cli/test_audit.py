"""``runbook status`` and ``runbook audit verify``."""

import argparse
import json
from datetime import datetime
from pathlib import Path

import pytest
from archives import CI, PIN, flip, record, two_bumps
from archives import record_folder as folder

from runbook_lib.cli import audit as archive_commands
from runbook_lib.errors import RunbookError
from runbook_lib.record.run_file import Identity
from runbook_lib.system import clock


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    return two_bumps(tmp_path)


def test_status_lists_bumps_as_text_and_json(audit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert archive_commands.command_status(argparse.Namespace(audit=str(audit), json=False)) == 0
    told = capsys.readouterr().out
    assert "o/r main dev 26.04-py3: waiting" in told
    assert "  04-run-ci: Waiting for CI.\n  since 2026-04-01 00:02 UTC" in told
    assert "o/r dev lts 26.04-py3 (practice): failed\n  bump: No such tag." in told
    assert archive_commands.command_status(argparse.Namespace(audit=str(audit), json=True)) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(one["state"], one["practice"]) for one in listed] == [("failed", True), ("waiting", False)]
    assert all(Path(one["record"]).is_dir() and Path(one["folder"]).is_dir() for one in listed)


def test_status_lists_bumps_that_never_started_separately(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    assert "changed nothing:\n" in told
    assert "  o/r main dev 26.4-py3: not begun. 26.4-py3 is no tag.\n" in told
    assert "  o/r main dev no tag: previewed. No tag was given.\n" in told


def test_status_names_a_record_that_cannot_be_read(audit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = folder(audit, CI)
    (damaged / "run.json").write_text("{")
    for name in ("o-r/main/dev-26.03-py3/20260301T000000Z-bump-1", "o-r/main/dev-26.04-py3/.runbook-x.tmp"):
        (audit / name).mkdir(parents=True)
        (audit / name / "run.json").write_text("")
    assert archive_commands.command_status(argparse.Namespace(audit=str(audit), json=False)) == 0
    told = capsys.readouterr()
    assert "o/r main dev 26.04-py3: 1 record cannot be read" in told.err
    assert damaged.name in told.err
    assert "o-r main dev 26.03-py3: unreadable\n  None of its records can be read.\n  next: " in told.out
    assert "`runbook audit verify`" in told.err
    assert ".runbook" not in told.err


def test_status_without_an_archive_explains_how_to_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNBOOK_AUDIT", str(tmp_path / "none"))
    assert archive_commands.command_status(argparse.Namespace(audit="", json=False)) == 0
    assert "environment/run papermill runbooks/bump.ipynb -r tag" in capsys.readouterr().out
    for as_json in (False, True):  # one that a person named must be there
        with pytest.raises(RunbookError, match=f"There is no archive {tmp_path / 'none'}"):
            archive_commands.command_status(argparse.Namespace(audit=str(tmp_path / "none"), json=as_json))
    assert not (tmp_path / "none").exists()


def test_audit_verify_reports_problems_and_exits_with_1(audit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = argparse.Namespace(action="verify", dir=str(audit))
    assert archive_commands.command_verify(options) == 0
    (told,) = capsys.readouterr().out.splitlines()
    assert told == f"{audit} is intact. Checked 4 records, 12 files, 1 running."
    flip(folder(audit, PIN) / "executed.ipynb")
    assert archive_commands.command_verify(options) == 1
    told = capsys.readouterr()
    assert "is not intact: 2 problems" in told.out
    assert told.err.startswith(str(folder(audit, PIN) / "executed.ipynb: was changed"))
    for none in (audit / "none", audit / "o-r"):
        with pytest.raises(RunbookError, match="There is no archive"):
            archive_commands.command_verify(argparse.Namespace(dir=str(none)))


@pytest.mark.parametrize(
    ("time", "age"),
    [("2026-04-01T00:01:00", "just now"), ("2026-04-01T03:00:31", "3 hours ago"), ("2026-04-04T01", "3 days ago")],
)
def test_status_shows_the_age_of_a_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, time: str, age: str
) -> None:
    record(tmp_path, "bump", "waiting", "Waiting for CI.")
    monkeypatch.setattr(clock, "now", lambda: datetime.fromisoformat(f"{time}+00:00"))
    assert archive_commands.command_status(argparse.Namespace(audit=str(tmp_path), json=False)) == 0
    assert f"since 2026-04-01 00:00 UTC ({age})" in capsys.readouterr().out


def test_audit_add_attaches_an_executed_notebook(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = record(tmp_path, "bump", "done", notebook=False)
    out = tmp_path / "out.ipynb"
    notebook = {"cells": [], "metadata": {"runbook": {"record": name}}, "nbformat": 4, "nbformat_minor": 5}
    out.write_text(json.dumps(notebook))
    options = argparse.Namespace(notebook=str(out), audit=str(tmp_path))
    assert archive_commands.command_add(options) == 0
    assert (folder(tmp_path, "bump") / "report.html").is_file()
    for content in ("", "[]", json.dumps(notebook | {"metadata": {}})):
        out.write_text(content)
        with pytest.raises(RunbookError, match=r"cannot be read as a notebook|names no record"):
            archive_commands.command_add(options)
