"""The user's command hears of a bump that starts to wait for a person, becomes ready or fails: once for each."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from archives import BUMP, READY, record

from runbook_lib.notebook import recording
from runbook_lib.world.machine.notify import notify

INPUTS = {"inputs": {"tag": "26.04-py3"}}
FOR_CI = {"outcome": {"sentence": "waiting for CI run 5 (3 of 7 jobs done)", "next": {}, "for_ci": True}}
PREVIEW = {"mode": "preview"}


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command that appends what it hears to this file."""
    file = tmp_path / "heard.jsonl"
    program = f"import sys; open({str(file)!r}, 'a').write(sys.stdin.read())"
    monkeypatch.setenv("RUNBOOK_NOTIFY", shlex.join([sys.executable, "-c", program]))
    file.touch()
    return file


def events(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([("bump", "running", "", {})], []),
        ([("bump", "previewed", "Would do it.", PREVIEW)], []),
        ([("bump", "waiting", "", INPUTS | FOR_CI)], []),
        ([("investigate-ci", "done", "Found it.", INPUTS)], []),
        ([("bump", "waiting", "waiting for a person: red", INPUTS)], ["waiting"]),
        ([("bump", "waiting", "waiting for a person: red", INPUTS)] * 3, ["waiting"]),
        ([("bump", "waiting", "a person", INPUTS), ("bump", "previewed", "", PREVIEW)], ["waiting"]),
        (
            [
                ("bump", "waiting", "waiting for a person: red", INPUTS),
                ("bump", "waiting", "", INPUTS | FOR_CI),
                ("bump", "waiting", "waiting for a person: red", INPUTS),
                ("bump", "failed", "No such tag.", INPUTS),
                ("bump", "failed", "No such tag.", INPUTS),
                ("bump", "done", "Ready to merge.", READY),
                ("bump", "done", "Ready to merge.", READY),
            ],
            ["waiting", "waiting", "failed", "ready"],
        ),
    ],
)
def test_a_change_of_state_is_heard_once(
    tmp_path: Path, heard: Path, runs: list[tuple[str, str, str, dict[str, Any]]], expected: list[str]
) -> None:
    for minute, (notebook, state, sentence, fields) in enumerate(runs):
        name = record(tmp_path / "audit", notebook, state, sentence, at=minute, **fields)
        assert recording.notify_of_change(tmp_path.joinpath("audit", *BUMP.parts, name)) == ""
    assert [event["event"] for event in events(heard)] == expected
    for event in events(heard):
        assert event["version"] == 1
        assert event["bump"]["tag"] == "26.04-py3"


def test_secrets_do_not_leave(heard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "correct-horse-battery")
    assert not notify("failed", {"tag": "x"}, "Refused correct-horse-battery", "", {"a": "b ghp_" + "a" * 36})
    (event,) = events(heard)
    assert event["sentence"] == "Refused ***"
    assert "ghp_" not in event["links"]["a"]


@pytest.mark.parametrize(
    ("command", "warning"),
    [("", ""), ("  ", ""), ("true", ""), ("false", "exit status 1"), ("'", "could not be run"), ("/none", "could not")],
)
def test_a_failing_command_is_a_warning(command: str, warning: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNBOOK_NOTIFY", command)
    assert warning in notify("ready", {}, "Ready.", "", {})
    assert bool(notify("ready", {}, "Ready.", "", {})) == bool(warning)
