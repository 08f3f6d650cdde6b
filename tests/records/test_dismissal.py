"""Bumps that a person took off the board."""

from pathlib import Path

import pytest
from archives import record

from runbook_lib.cli.__main__ import main
from runbook_lib.records import archive
from runbook_lib.records.verify import verify


@pytest.mark.parametrize(("state", "in_flight"), [("waiting", True), ("failed", True), ("previewed", False)])
def test_a_preview_is_not_in_flight(tmp_path: Path, state: str, in_flight: bool) -> None:
    effects = [{"effect": "edit", "target": "a.yml", "before": None, "after": "sha256:1"}]
    record(tmp_path, "01-github-pin", state=state, effects=effects)
    (bump,) = archive.status(tmp_path)
    assert bump.is_in_flight is in_flight


def test_a_dismissed_bump_is_off_the_board_until_it_runs_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path, "01-github-pin", state="waiting", at=0)
    (bump,) = archive.status(tmp_path)
    assert main(["status", "--audit", str(tmp_path), "--dismiss", "26.99-py3"]) == 1
    assert main(["status", "--audit", str(tmp_path), "--dismiss", bump.tag]) == 0
    (dismissed,) = archive.status(tmp_path)
    assert (dismissed.dismissed, dismissed.is_in_flight) == (True, False)
    capsys.readouterr()
    main(["status", "--audit", str(tmp_path)])
    assert f"dev {bump.tag}" in capsys.readouterr().out.splitlines()[0]
    assert verify(tmp_path)[0] == []
    record(tmp_path, "01-github-pin", state="waiting", at=1)
    (again,) = archive.status(tmp_path)
    assert (again.dismissed, again.is_in_flight) == (False, True)


@pytest.mark.parametrize("content", ["", "[]", "{", "\0"])
def test_an_unreadable_file_dismisses_nothing(tmp_path: Path, content: str) -> None:
    record(tmp_path, "01-github-pin", state="waiting")
    (tmp_path / "dismissed.json").write_text(content)
    (bump,) = archive.status(tmp_path)
    assert not bump.dismissed
