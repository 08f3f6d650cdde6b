"""``runbook status`` and ``runbook audit verify``."""

import json
import re
from datetime import datetime
from pathlib import Path

import pytest
from archives import CI, PIN, executed, record, two_bumps
from archives import record_folder as folder

from runbook_lib.cli.__main__ import main
from runbook_lib.record.run_file import Identity
from runbook_lib.world.machine import clock

pytestmark = pytest.mark.usefixtures("archive")


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    return two_bumps(tmp_path)


def test_status_lists_bumps_as_text_and_json(audit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 0
    told = capsys.readouterr().out
    assert "o/r main dev 26.04-py3: waiting" in told
    assert "  04-run-ci: Waiting for CI.\n  since 2026-04-01 00:02 UTC" in told
    assert "o/r dev lts 26.04-py3 (practice): failed\n  bump: No such tag." in told
    assert main(["status", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["bumps"]
    assert [(one["state"], one["practice"]) for one in listed] == [("failed", True), ("waiting", False)]
    assert all(Path(one["record"]).is_dir() and Path(one["folder"]).is_dir() for one in listed)


def test_status_lists_bumps_that_never_started_separately(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 0
    assert "environment/run papermill runbooks/bump.ipynb -r tag" in capsys.readouterr().out
    assert not (tmp_path / "audit").exists()
    for tag, state, sentence in (("26.4-py3", "failed", "26.4-py3 is no tag."), ("", "previewed", "No tag was given.")):
        record(tmp_path / "audit", "bump", state, sentence, bump=Identity("o/r", "main", "dev", tag, practice=False))
    assert main(["status"]) == 0
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
    assert main(["status"]) == 0
    told = capsys.readouterr()
    for bump in ("26.03", "26.04"):
        assert f"o-r/main/dev-{bump}-py3: 1 record cannot be read" in told.err
    assert damaged.name in told.err
    assert "`runbook audit verify`" in told.err
    assert ".runbook" not in told.err


def test_audit_verify_reports_problems_and_exits_with_1(audit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "verify", str(audit)]) == 0
    (told,) = capsys.readouterr().out.splitlines()
    assert told == f"{audit} is intact. Checked 4 records, 12 files, 1 running."
    (folder(audit, PIN) / "executed.ipynb").write_text("x")
    assert main(["audit", "verify", str(audit), "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 2
    assert main(["audit", "verify", str(audit)]) == 1
    told = capsys.readouterr()
    assert "is not intact: 2 problems" in told.out
    assert told.err.startswith(str(folder(audit, PIN) / "executed.ipynb: was changed"))
    for none in (audit / "none", audit / "o-r"):
        assert main(["audit", "verify", str(none), "--json"]) == 2
        assert json.loads(capsys.readouterr().out)["error"]["message"].startswith("There is no archive")


def test_status_shows_the_age_of_a_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path / "audit", "bump", "waiting", "Waiting for CI.")
    for time, age in {"01T00:00": "just now", "01T03:01": "3 hours ago", "04T01:00": "3 days ago"}.items():
        monkeypatch.setattr(clock, "now", lambda time=time: datetime.fromisoformat(f"2026-04-{time}:31+00:00"))
        assert main(["status"]) == 0
        assert f"since 2026-04-01 00:00 UTC ({age})" in capsys.readouterr().out


def test_audit_add_attaches_an_executed_notebook(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = record(tmp_path / "audit", "bump", "done", notebook=False)
    out = tmp_path / "out.ipynb"
    out.write_text(json.dumps(executed(name)))
    assert main(["audit", "add", str(out)]) == 0
    assert (folder(tmp_path / "audit", "bump") / "report.html").is_file()
    capsys.readouterr()
    for content in ("", "[]", json.dumps(executed("none"))):
        out.write_text(content)
        assert main(["audit", "add", str(out)]) == 2
        assert re.search(r"cannot be read as a notebook|names no record", capsys.readouterr().err)
