"""The page of all bumps: one row each, that can be sifted, and opens anywhere."""

import base64
import hashlib
import json
import os
import re
from pathlib import Path

import pytest
from archives import BUMP, READY, elements, record, words

from runbook_lib.errors import RunbookError
from runbook_lib.records.pages import index
from runbook_lib.records.statement import Identity
from runbook_lib.records.verify import verify
from runbook_lib.system import provenance


def page(archive: Path) -> str:
    index.write_index(archive)
    return (archive / "index.html").read_text()


def rows(text: str) -> list[dict[str, str]]:
    return [attributes for tag, attributes in elements(text) if tag == "li"]


def test_empty_archive(tmp_path: Path) -> None:
    assert "0 bumps." in words(page(tmp_path))


def test_one_row_per_bump_newest_first(tmp_path: Path) -> None:
    parent = record(tmp_path, "bump", "waiting", "Waits for CI.", at=1)
    record(tmp_path, "04-run-ci", "waiting", "Waiting for *CI*.", at=2, parent=parent, links={"PR": "https://ci/1"})
    practised = Identity("o/s", "dev", "lts", "26.03-py3", practice=True)
    record(tmp_path, "bump", "done", "Ready.", at=9, bump=practised, **READY)
    record(tmp_path, "bump", "failed", "No such tag.", at=5, bump=Identity("o/r", "main", "dev", "x", practice=False))
    text = page(tmp_path)
    assert [(row["data-state"], row["data-repository"], row["data-world"]) for row in rows(text)] == [
        ("ready", "o/s", "practice"), ("not begun", "o/r", "real"), ("waiting", "o/r", "real"),
    ]  # fmt: skip
    told = words(text)
    assert "3 bumps: 1 ready, 1 not begun, 1 waiting." in told
    assert (
        "26.04-py3 (dev) on main o/r … waiting 04-run-ci: Waiting for CI. waiting since 2026-04-01 00:02:30 UTC" in told
    )
    assert "90.0 s from the first run to the last · 2 records PR · report of 04-run-ci" in told
    assert "26.03-py3 (lts) on dev o/s · practice: nothing left the machine ✓ ready" in told
    assert "As of 2026-04-01 00:09:30 UTC" in told
    assert "<em>CI</em>" in text


def test_page_loads_nothing_and_runs_only_its_own_script(tmp_path: Path) -> None:
    record(tmp_path, "01-pin", "done")
    text = page(tmp_path)
    loading = {"src", "srcset", "action", "background", "data", "poster"}
    assert not [attributes for _, attributes in elements(text) if loading & attributes.keys()]
    assert not [tag for tag, _ in elements(text) if tag in ("link", "img", "iframe", "object", "form")]
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; ")
    assert f"script-src 'sha256-{digest}'" in policy
    assert "@import" not in text
    assert "url(" not in text


def test_unreadable_records_are_named(tmp_path: Path) -> None:
    name = record(tmp_path, "01-pin", "done", "Pinned.")
    record(tmp_path, "04-run-ci", "done", at=3)
    (tmp_path.joinpath(*BUMP.parts) / name / "run.json").write_text("{")
    assert f"Warning: 1 record cannot be read, so this status may be incomplete ({name})." in words(page(tmp_path))


# -- stories -------------------------------------------------------------------------------------------------------


def story(archive: Path, bump: Identity = BUMP) -> Path:
    return archive.joinpath(*bump.parts, "story.html")


def test_only_stories_of_changed_bumps_are_written_again(tmp_path: Path) -> None:
    other = Identity("o/s", "main", "dev", "26.04-py3", practice=False)
    stories = [story(tmp_path, bump) for bump in (BUMP, other)]
    record(tmp_path, "bump", "waiting", "Waits.")
    record(tmp_path, "bump", "waiting", "Waits.", bump=other)

    def written() -> list[bool]:
        for path in stories:
            os.utime(path, (0, 0))
        index.write_index(tmp_path)
        return [path.stat().st_mtime > 0 for path in stories]

    index.write_index(tmp_path)
    assert written() == [False, False]
    record(tmp_path, "04-run-ci", "done", "CI passed.", at=1)
    assert written() == [True, False]
    assert "CI passed." in stories[0].read_text()
    stories[1].write_text("of another version")
    assert written() == [False, True]
    stories[1].unlink()
    index.write_index(tmp_path)
    assert "Waits." in stories[1].read_text()
    assert verify(tmp_path)[0] == []


def test_run_of_a_dead_process_is_shown_as_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path, "bump", "running")
    assert "▸ running" in words(page(tmp_path))
    assert "▸ running" in words(story(tmp_path).read_text())
    monkeypatch.setattr(provenance, "is_alive", lambda _process: False)
    assert "✗ killed" in words(page(tmp_path))
    assert "✗ killed" in words(story(tmp_path).read_text())


def test_story_includes_messages_of_a_run_in_progress(tmp_path: Path) -> None:
    name = record(tmp_path, "bump", "running")
    index.write_index(tmp_path)
    line = {"kind": "warning", "at": "then", "sentence": "The disk is full."}
    (tmp_path.joinpath(*BUMP.parts) / name / "contributions.jsonl").write_text(json.dumps(line))
    index.write_index(tmp_path)
    assert "The disk is full." in story(tmp_path).read_text()


def test_story_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    record(tmp_path, "bump", "done")
    story(tmp_path).mkdir()
    with pytest.raises(RunbookError, match=r"story\.html could not be written"):
        index.write_index(tmp_path)
