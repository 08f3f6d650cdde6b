"""The chain of a bump's records, also when commands are killed or run at the same time."""

import contextlib
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runbook_lib.errors import RunbookError
from runbook_lib.records.chain import Ledger, read_head, read_predicate, sha256
from runbook_lib.system import provenance


def opened(tmp_path: Path, name: str) -> Path:
    with Ledger.locked(tmp_path) as ledger:
        return ledger.open(name, {**PREDICATE, "id": name})


def closed(tmp_path: Path, name: str) -> Path:
    folder = opened(tmp_path, name)
    with Ledger.locked(tmp_path) as ledger:
        ledger.close(name, {**read_predicate(folder), "state": "done"})
    return folder


PREDICATE = {"id": "", "state": "running", "bump": {}, "notebook": {"name": "a"}, "started": "2026-04-01T00:00:00Z"}


def test_each_record_names_its_predecessor(tmp_path: Path) -> None:
    first, second = opened(tmp_path, "1"), opened(tmp_path, "2")
    assert read_head(tmp_path) == (None, ["1", "2"])
    for folder in (second, first):
        (folder / "executed.ipynb").write_text(folder.name)
        with Ledger.locked(tmp_path) as ledger:
            ledger.close(folder.name, {**read_predicate(folder), "state": "done"})
    assert read_predicate(second)["previous"] is None
    assert read_predicate(first)["previous"] == {"record": "2", "sha256": sha256(second / "run.json")}
    assert read_head(tmp_path) == ({"record": "1", "sha256": sha256(first / "run.json")}, [])
    subjects = json.loads((first / "run.json").read_bytes())["subject"]
    assert subjects == [{"name": "executed.ipynb", "digest": {"sha256": sha256(first / "executed.ipynb")}}]


def test_refuses_to_close_a_closed_record(tmp_path: Path) -> None:
    folder = closed(tmp_path, "1")
    before = (folder / "run.json").read_bytes()
    with Ledger.locked(tmp_path) as ledger, pytest.raises(RunbookError, match="already closed"):
        ledger.close("1", {**read_predicate(folder), "state": "failed"})
    assert (folder / "run.json").read_bytes() == before


def test_closed_records_are_read_only(tmp_path: Path) -> None:
    folder = opened(tmp_path, "1")
    for name in ("executed.ipynb", "report.html"):
        (folder / name).write_text(name)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("another's")
    (folder / "link").symlink_to(elsewhere)
    with Ledger.locked(tmp_path) as ledger:
        ledger.close("1", {**read_predicate(folder), "state": "done"})
    modes = {file.name: stat.S_IMODE(file.lstat().st_mode) for file in folder.iterdir()}
    assert {name: oct(mode) for name, mode in modes.items() if name != "link"} == {
        "executed.ipynb": "0o400", "report.html": "0o400", "run.json": "0o400",
    }  # fmt: skip
    assert elsewhere.stat().st_mode & 0o200


class Killed(BaseException):
    """Stands for a SIGKILL at this point."""


def kill_at(monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
    """Stop at the nth renaming from now on: everything before it has happened, nothing after it."""
    count = iter(range(1000))
    for name in ("replace", "rename"):
        original = getattr(Path, name)

        def renaming(self: Path, target: Path, original: Any = original) -> Path:
            if next(count) == nth:
                raise Killed
            result: Path = original(self, target)
            return result

        monkeypatch.setattr(Path, name, renaming)


@pytest.mark.parametrize("nth", range(6))
def test_completes_what_a_killed_command_left_unfinished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    closed(tmp_path, "0")
    with monkeypatch.context() as patch, contextlib.suppress(Killed):
        kill_at(patch, nth)
        closed(tmp_path, "1")
    with Ledger.locked(tmp_path) as ledger:
        last, open_ids = ledger.last, list(ledger.open_ids)
        present = sorted(path.name for path in tmp_path.iterdir())
    assert last is not None
    states = {path.parent.name: read_predicate(path.parent)["state"] for path in tmp_path.glob("*/run.json")}
    assert open_ids == [name for name, state in states.items() if state == "running"]
    assert last["record"] == ("1" if states.get("1") == "done" else "0")
    assert last["sha256"] == sha256(tmp_path / last["record"] / "run.json")
    assert present == sorted([".lock", "head", *states])


def test_two_processes_keep_one_chain(tmp_path: Path) -> None:
    code = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}
from pathlib import Path
from test_chain import closed
for n in range(10):
    closed(Path({str(tmp_path)!r}), sys.argv[1] + str(n))
"""
    env = {**os.environ, "PYTHONPATH": str(provenance.ROOT)}
    running = [subprocess.Popen([sys.executable, "-c", code, name], env=env) for name in "ab"]
    assert [process.wait() for process in running] == [0, 0]
    link, open_ids = read_head(tmp_path)
    chain = []
    while link is not None:
        assert link["sha256"] == sha256(tmp_path / link["record"] / "run.json")
        chain.append(link["record"])
        link = read_predicate(tmp_path / link["record"])["previous"]
    assert (sorted(chain), open_ids) == (sorted(f"{name}{n}" for name in "ab" for n in range(10)), [])


def test_only_their_owner_can_enter_the_folders_of_an_archive(tmp_path: Path) -> None:
    bump = tmp_path / "audit" / "o-r" / "main" / "dev-26.04-py3"
    with Ledger.locked(bump) as ledger:
        record = ledger.open("1", {**PREDICATE, "id": "1"})
    for folder in (record, *record.parents[:4]):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder


def test_refuses_a_damaged_head(tmp_path: Path) -> None:
    (tmp_path / "head").write_text("{")
    with pytest.raises(RunbookError, match="is damaged"), Ledger.locked(tmp_path):
        pass
