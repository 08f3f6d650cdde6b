"""The archive: records from their beginning to their commit, also of runs that were killed, and by several at once."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from archives import BUMP, edit, executed, record
from clones import git

from runbook_lib.errors import RunbookError
from runbook_lib.record import archive, run_file
from runbook_lib.record.status import status
from runbook_lib.record.store import RecordStore, verify
from runbook_lib.world.machine import provenance

#: What a run has told its record, up to its end.
PUSHED = {"effects": [{"kind": "push"}]}
ENDED = {**PUSHED, "state": "done", "outcome": {"sentence": "Pushed.", "next": {}}}


def begin(root: Path, told: Mapping[str, object] = MappingProxyType({}), **parameters: object) -> Path:
    folder = archive.begin(root, BUMP, "bump", parameters)
    edit(folder / "run.json", lambda run: run.update(told))
    return folder


def test_a_record_from_its_beginning_to_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "do-not-tell-anybody")
    root = tmp_path / "audit"
    folder = begin(root, PUSHED, note="do-not-tell-anybody")
    (folder / "table.csv").write_text("a\n1\n")
    assert (root.stat().st_mode & 0o777, folder.parent) == (0o700, root / "o-r/main/dev-26.04-py3")
    (open_run,) = archive.read_records(folder.parent).readable
    assert (open_run["state"], open_run["effects"]) == ("running", [{"kind": "push"}])
    edit(folder / "run.json", lambda run: run.update(ENDED))
    archive.close(folder)
    archive.commit(folder)
    notebook = executed(f"{folder}\ndo-not-tell-anybody")
    widget = {"output_type": "display_data", "metadata": {}, "data": {"application/vnd.jupyter.widget-view+json": {}}}
    notebook["cells"][0]["outputs"].append(widget)
    assert archive.attach(root, notebook) == folder
    run = run_file.read(folder)
    assert (run["version"], run["state"], run["outcome"]["sentence"]) == (1, "done", "Pushed.")
    assert list(run["files"]) == ["table.csv"]
    assert verify(root)[0] == []
    assert git(root, "status", "--porcelain") == ""
    assert git(root, "log", "--format=%s") == "bump: done\nbump: done"
    for file in (*folder.iterdir(), root / "index.html"):
        assert "do-not-tell-anybody" not in file.read_text()
    assert "widget" not in (folder / "executed.ipynb").read_text()


@pytest.mark.parametrize(
    ("told", "is_closed", "effects"), [({}, False, 0), (PUSHED, False, 1), (ENDED, False, 1), (ENDED, True, 1)]
)
def test_a_dead_run_is_closed_and_committed_by_the_next(
    tmp_path: Path, told: dict[str, Any], is_closed: bool, effects: int
) -> None:
    dead = begin(tmp_path, told)
    edit(dead / "run.json", lambda run: run["process"].update(started=0))
    state = "done" if told == ENDED else "interrupted"
    if is_closed:  # killed before its commit
        archive.close(dead)
    other = record(tmp_path, "bump", "running")
    assert [run["state"] for run in archive.read_records(dead.parent).readable] == [
        "running", state
    ]  # fmt: skip
    begin(tmp_path)
    run = run_file.read(dead)
    assert run["state"] == state
    assert len(run.get("effects", ())) == effects
    assert RecordStore(tmp_path).records(dead.parent) == {dead.name}
    problems, counts = verify(tmp_path)
    assert (problems, counts.running, counts.killed) == ([], 2, 0)
    assert run_file.read(dead.with_name(other))["state"] == "running"


def test_a_closed_record_stays_as_it_is(tmp_path: Path) -> None:
    folder = begin(tmp_path, ENDED)
    first = archive.close(folder)
    assert archive.close(folder) == json.loads((folder / "run.json").read_text())
    assert run_file.read(folder)["ended"] == first["ended"]


COMMITTER = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from archives import record
for at in range({first}, {first} + 6):
    record(Path({root!r}), "bump", "done", at=at)
"""


def test_several_processes_commit_at_once(tmp_path: Path) -> None:
    codes = [
        COMMITTER.format(path=[str(Path(__file__).parents[1])], root=str(tmp_path), first=first)
        for first in (0, 100, 200)
    ]
    running = [subprocess.Popen([sys.executable, "-c", code]) for code in codes]
    assert [process.wait() for process in running] == [0, 0, 0]
    problems, counts = verify(tmp_path)
    assert (problems, counts.records) == ([], 18)
    assert git(tmp_path, "rev-list", "--count", "HEAD") == "18"
    assert git(tmp_path, "log", "--merges", "--oneline") == ""


SETTINGS = """
[core]
 hooksPath = {hooks}
 autocrlf = true
 fsmonitor = {hooks}/pre-commit
 attributesFile = {hooks}/attributes
 splitIndex = true
[filter "bad"]
 clean = false
 required = true
[commit]
 gpgSign = false
[user]
 useConfigOnly = true
"""


def test_settings_and_surrounding_repositories_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "attributes").write_text("* filter=bad text eol=crlf\n")
    for name in ("pre-commit", "reference-transaction", "post-index-change"):
        (hooks / name).write_text("#!/bin/sh\nexit 1\n")
        (hooks / name).chmod(0o755)
    (tmp_path / "gitconfig").write_text(SETTINGS.format(hooks=hooks))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    for name in [name for name in os.environ if name.startswith(("GIT_AUTHOR", "GIT_COMMITTER"))]:
        monkeypatch.delenv(name)
    clone = tmp_path / "clone"
    subprocess.run(["git", "init", "-q", clone], check=True)
    (clone / ".gitattributes").write_text("* filter=bad\n")
    monkeypatch.setenv("GIT_DIR", str(clone / ".git"))
    folder = begin(clone / "audit", ENDED)
    (folder / "lines").write_bytes(b"a\r\nb\n")
    archive.close(folder)
    archive.commit(folder)
    assert verify(clone / "audit")[0] == []
    assert list((clone / ".git/objects").glob("??")) == []
    assert provenance.user() in RecordStore(clone / "audit").git("log", "--format=%an <%ae>")


def test_no_commit_in_a_repository_that_is_no_archive(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    with pytest.raises(RunbookError, match="root of another git repository"):
        begin(tmp_path)
    assert not (tmp_path / "o-r").exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda run: run.clear(),
        lambda run: run.update(version=2),
        lambda run: run.update(id="other"),
        lambda run: run.update(started="yesterday"),
        lambda run: run.update(started="2026-04-01T16:00:00"),
        lambda run: run.update(notebook=None),
        lambda run: run.update(bump=[]),
        lambda run: run.update(outcome={"next": {}}),
        lambda run: run.update(outcome={"sentence": None, "next": {}}),
        lambda run: run.update(outcome={"sentence": "", "next": {"command": "x"}}),
        lambda run: run.update(steps=[{}]),
        lambda run: run.update(steps=None),
        lambda run: run.update(effects=[{"effect": "issue"}]),
        lambda run: run.update(decisions=None),
    ],
)  # fmt: skip
def test_a_damaged_record_stops_nobody(tmp_path: Path, damage: Callable[[dict[str, Any]], object]) -> None:
    name = record(tmp_path, "bump", "done")
    file = tmp_path.joinpath(*BUMP.parts) / name / "run.json"
    edit(file, damage)
    assert archive.read_records(file.parents[1]).unreadable == [name]
    archive.write_index(tmp_path)
    assert status(tmp_path) == []
    begin(tmp_path)
    assert verify(tmp_path)[0] != []


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b"[" * 100_000, b"\xff"])
def test_any_content_of_run_json_is_an_error_with_its_path(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(RunbookError, match=r"run\.json cannot be read"):
        run_file.read(tmp_path)


def test_the_default_archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert archive.default() == provenance.ROOT / "audit"
    monkeypatch.setenv("RUNBOOK_AUDIT", str(tmp_path))
    assert archive.default() == tmp_path
