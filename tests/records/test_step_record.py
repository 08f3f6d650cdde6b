"""The account that a notebook gives, and the chain that keeps it."""

import contextlib
import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.bump import Bump
from runbook_lib.checks import Check
from runbook_lib.errors import RunbookError
from runbook_lib.records import chain as ledger
from runbook_lib.records import step_record
from runbook_lib.records.chain import Ledger, read_predicate
from runbook_lib.records.pages import run as report
from runbook_lib.records.statement import CONTRIBUTIONS, Identity, collect, folder_name, statement, to_bytes
from runbook_lib.runner import command_line
from runbook_lib.steps import context
from runbook_lib.system import atomic_files, locks, provenance

PREVIEW = Bump.parse(tag="26.04-py3")
APPLY = Bump.parse(tag="26.04-py3", apply=True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUNBOOK_RECORD", str(tmp_path))
    return tmp_path


def fields(folder: Path) -> dict[str, Any]:
    return collect(step_record.contributions(folder)).fields


# -- the notebook's account ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bump", "account", "state"),
    [
        (PREVIEW, lambda _: None, "previewed"),
        (PREVIEW, lambda step: step.done("Would change 4 lines."), "previewed"),
        (APPLY, lambda _: None, "done"),
        (APPLY, lambda step: step.check(Check("pins", "passed", "agree")), "done"),
        (APPLY, lambda step: step.check(Check("pins", "skipped", "not looked at")), "done"),
        (APPLY, lambda step: step.check(Check("pins", "failed", "differ")), "failed"),
        (PREVIEW, lambda step: step.waiting("Waiting for CI."), "waiting"),
        (APPLY, lambda step: (step.waiting("Waiting for CI."), step.done("It came.")), "done"),
        (APPLY, lambda step: (step.waiting("Waiting."), step.check(Check("pins", "failed", "differ"))), "failed"),
    ],
)
def test_the_account_decides_the_outcome(
    folder: Path, bump: Bump, account: Callable[[step_record.StepRecord], object], state: str
) -> None:
    account(context.open_record("01-pin", bump, repository="o/r"))
    assert collect(step_record.contributions(folder)).state == state


def test_no_account_at_all_is_incomplete(folder: Path) -> None:
    assert collect(step_record.contributions(folder)).state == "incomplete"


def test_everything_that_was_contributed_is_there_at_once(folder: Path) -> None:
    step = context.open_record("01-pin", APPLY, repository="o/r")
    step.add_inputs(digest="sha256:1", platforms={"b", "a"})
    step.add_inputs(base_commit="c0ffee")
    step.effect("push", "fork/bump", None, "c0ffee", url="https://github.com/o/r")
    step.check(Check("pins", "passed", "all agree"), Check("tag", "skipped", "not reachable"))
    step.allowed("older-tag", "a roll-back")
    step.warn("One file lags.", "Another too.")
    step.link("PR", "https://github.com/o/r/pull/1")
    step.link("run", "")
    step.would("change 4 lines")
    step.would("push them", publish=True)
    step.decide("broken", "a/b@h100", "it hangs", "a hang")
    step.done("4 lines changed.", next="papermill 03-open-pr.ipynb")
    found = fields(folder)
    for entries in (found["effects"], found["checks"], found["exceptions"]):
        assert all(entry.pop("at").endswith("Z") for entry in entries)
    assert found == {
        "inputs": {"digest": "sha256:1", "platforms": ["a", "b"], "base_commit": "c0ffee"},
        "effects": [
            {
                "effect": "push",
                "target": "fork/bump",
                "before": None,
                "after": "c0ffee",
                "url": "https://github.com/o/r",
            }
        ],
        "checks": [
            {"name": "pins", "status": "passed", "detail": "all agree"},
            {"name": "tag", "status": "skipped", "detail": "not reachable"},
        ],
        "exceptions": [{"exception": "older-tag", "reason": "a roll-back"}],
        "warnings": ["One file lags.", "Another too."],
        "links": {"PR": "https://github.com/o/r/pull/1"},
        "planned": [{"sentence": "change 4 lines", "publish": False}, {"sentence": "push them", "publish": True}],
        "decisions": [{"parameter": "broken", "name": "a/b@h100", "why": "it hangs", "suggestion": "a hang"}],
        "outcome": {"sentence": "4 lines changed.", "next": "papermill 03-open-pr.ipynb"},
    }


LAUNCHED = {"id": "x", "state": "running", "bump": {}, "notebook": {}, "started": "", "launcher": {"folder": ""}}


@pytest.mark.parametrize(
    ("given", "notebook", "more", "told"),
    [
        (None, "bump", {}, "bump.ipynb -r tag 26.04-py3"),
        ({}, "00-preflight", {}, "00-preflight.ipynb -r tag 26.04-py3"),
        (
            {"repo": "/a clone", "apply": False, "tag": "26.10", "wait": True},
            "01-github-pin",
            {"apply": True},
            "01-github-pin.ipynb -r tag 26.10 -r repo '/a clone' -p apply True",
        ),
        ({"repo": "", "apply": False, "publish": True}, "bump", {"apply": True},
         "bump.ipynb -r tag 26.04-py3 -p publish True"),
    ],
)  # fmt: skip
def test_a_command_repeats_what_was_given(
    folder: Path, given: dict[str, object] | None, notebook: str, more: dict[str, object], told: str
) -> None:
    if given is not None:
        place = {"folder": str(provenance.ROOT / "runbooks")}
        run = {**LAUNCHED, "launcher": place, "parameters": {"given": given, "resolved": given}}
        (folder / "run.json").write_bytes(to_bytes(statement(run, {})))
    assert command_line.command(notebook, PREVIEW, **more) == f"environment/run papermill runbooks/{told}"


def test_a_line_that_a_killed_kernel_left_unfinished_is_passed_over(folder: Path) -> None:
    step = context.open_record("01-pin", APPLY, repository="o/r")
    step.done("First.")
    with (folder / CONTRIBUTIONS).open("ab") as file:
        file.write(b'{"kind": "done", "sentence": "Sec\xff')
    assert fields(folder)["outcome"]["sentence"] == "First."


KINDS = st.sampled_from(
    ["begin", "given", "link", "warning", "waiting", "done", "check", "effect", "exception", "other"]
)
NAMES = st.sampled_from(["at", "name", "status", "detail", "sentence", "next", "values", "url", "mode"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(st.builds(lambda kind, rest: {**rest, "kind": kind}, KINDS, st.dictionaries(NAMES, JSON)) | JSON))
def test_whatever_stands_there_a_record_can_be_closed_and_shown(entries: list[Any]) -> None:
    found = collect(json.dumps(entry) for entry in entries)
    base = {"state": found.state, "bump": Identity("o/r", "main", "dev", "", practice=False).as_json()}
    predicate = {**PREDICATE, **base, "ended": PREDICATE["started"], **found.fields}
    assert report.render(predicate, {"cells": []})


def test_tables_and_the_diff_are_kept_in_full_and_without_secrets(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pandas as pd

    monkeypatch.setenv("GITHUB_TOKEN", "0123456789abc")
    step = context.open_record("01-pin", APPLY, repository="o/r")
    step.table("golden values", [{"a": 1, "b": "x,y"}, {"a": "0123456789abc"}])
    step.table("../frame", pd.DataFrame({"n": [1, 2]}))
    step.diff("-old 0123456789abc\n+new\n")
    step.done("Used 0123456789abc.")
    assert (folder / "golden-values.csv").read_text() == 'a,b\n1,"x,y"\n***,\n'
    assert (folder / "frame.csv").read_text() == "n\n1\n2\n"
    assert (folder / "change.diff").read_text() == "-old ***\n+new\n"
    assert sorted(path.name for path in folder.iterdir()) == [
        "change.diff", CONTRIBUTIONS, "frame.csv", "golden-values.csv",
    ]  # fmt: skip
    assert not any(b"0123456789abc" in path.read_bytes() for path in folder.iterdir())


def test_no_diff_leaves_no_file(folder: Path) -> None:
    context.open_record("01-pin", APPLY, repository="o/r").diff("")
    assert not (folder / "change.diff").exists()


def test_in_jupyterlab_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "/x/01-pin.ipynb")
    monkeypatch.setenv("RUNBOOK_AUDIT", str(tmp_path / "audit"))
    step = context.open_record("01-pin", PREVIEW, repository="o/r")
    step.table("t", [{"a": 1}])
    step.diff("-a\n+b\n")
    step.check(Check("pins", "failed", "differ"))
    assert step.folder is None
    assert "no record" in step.show().text
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RunbookError, match=r"This check failed: pins \(differ\)\."):
        step.raise_if_failed()


def test_the_summary_says_all_that_counts(folder: Path) -> None:
    step = context.open_record("03-open-pr", APPLY, repository="o/r")
    step.check(Check("label", "passed", "is set"))
    step.warn("The base has moved.")
    step.waiting("Waiting for a maintainer.", next="ask @ada")
    view = step.show()
    for words in ("label", "✓ passed", "is set", "The base has moved.", "Waiting for a maintainer.", "Next: ask @ada"):
        assert words in view.text
        assert words in view.html
    assert str(folder) in view.text
    step.raise_if_failed()


def test_failed_checks_are_all_named() -> None:
    step = step_record.StepRecord("01-pin", APPLY, "o/r", None)
    step.check(Check("a", "failed", "1"), Check("b", "passed", "2"), Check("c", "failed", "3"))
    with pytest.raises(RunbookError, match=r"These 2 checks failed: a \(1\); c \(3\)\."):
        step.raise_if_failed()


@given(st.text(), st.text())
def test_any_text_comes_back(sentence: str, name: str) -> None:
    step = step_record.StepRecord("01-pin", APPLY, "o/r", None)
    step.link(name, "u" + sentence)
    step.done(sentence)
    found = collect(step._lines).fields
    assert found["outcome"]["sentence"] == step_record.Redactor(os.environ).text(sentence)
    assert len(found["links"]) == 1


# -- a kernel that nobody of ours started --------------------------------------------------------------------------

ELSEWHERE = """
import os, signal, sys
from runbook_lib.bump import Bump
from runbook_lib.steps import context
step = context.open_record("01-pin", Bump.parse(tag="26.04-py3", apply=True), repository="o/r")
step.done("Did it.")
if len(sys.argv) > 1:
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("killed", [False, True])
def test_a_run_from_elsewhere_leaves_an_incomplete_record(tmp_path: Path, killed: bool) -> None:
    from runbook_lib.records import archive

    env = {**os.environ, "RUNBOOK_AUDIT": str(tmp_path), "PYTHONPATH": str(provenance.ROOT)}
    subprocess.run([sys.executable, "-c", ELSEWHERE, *(["killed"] * killed)], env=env, check=not killed)
    (folder,) = tmp_path.glob("o-r/main/dev-26.04-py3/*-01-pin-*")
    assert read_predicate(folder)["state"] == ("running" if killed else "incomplete")
    with Ledger.locked(folder.parent) as book:
        assert archive.close_dead(book) == [folder.name] * killed
        assert book.open_ids == []
    found = read_predicate(folder)
    assert found["state"] == "incomplete"
    assert found["outcome"]["sentence"].startswith("Did it. It was not started by this environment's papermill")


# -- the chain -----------------------------------------------------------------------------------------------------


def opened(tmp_path: Path, name: str) -> Path:
    with Ledger.locked(tmp_path) as book:
        return book.open(name, {**PREDICATE, "id": name})


def closed(tmp_path: Path, name: str) -> Path:
    folder = opened(tmp_path, name)
    with Ledger.locked(tmp_path) as book:
        book.close(name, {**read_predicate(folder), "state": "done"})
    return folder


PREDICATE = {"id": "", "state": "running", "bump": {}, "notebook": {"name": "a"}, "started": "2026-04-01T00:00:00Z"}


def test_each_record_names_the_one_closed_before_it(tmp_path: Path) -> None:
    first, second = opened(tmp_path, "1"), opened(tmp_path, "2")
    assert ledger.read_head(tmp_path) == (None, ["1", "2"])
    for folder in (second, first):
        (folder / "executed.ipynb").write_text(folder.name)
        with Ledger.locked(tmp_path) as book:
            book.close(folder.name, {**read_predicate(folder), "state": "done"})
    assert read_predicate(second)["previous"] is None
    assert read_predicate(first)["previous"] == {"record": "2", "sha256": ledger.sha256(second / "run.json")}
    assert ledger.read_head(tmp_path) == ({"record": "1", "sha256": ledger.sha256(first / "run.json")}, [])
    subjects = json.loads((first / "run.json").read_bytes())["subject"]
    assert subjects == [{"name": "executed.ipynb", "digest": {"sha256": ledger.sha256(first / "executed.ipynb")}}]


def test_a_closed_record_is_not_closed_again(tmp_path: Path) -> None:
    folder = closed(tmp_path, "1")
    before = (folder / "run.json").read_bytes()
    with Ledger.locked(tmp_path) as book, pytest.raises(RunbookError, match="already closed"):
        book.close("1", {**read_predicate(folder), "state": "failed"})
    assert (folder / "run.json").read_bytes() == before


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
def test_a_command_killed_at_any_point_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    closed(tmp_path, "0")
    with monkeypatch.context() as patch, contextlib.suppress(Killed):
        kill_at(patch, nth)
        closed(tmp_path, "1")
    with Ledger.locked(tmp_path) as book:
        last, open_ids = book.last, list(book.open_ids)
        present = sorted(path.name for path in tmp_path.iterdir())
    assert last is not None
    states = {path.parent.name: read_predicate(path.parent)["state"] for path in tmp_path.glob("*/run.json")}
    assert open_ids == [name for name, state in states.items() if state == "running"]
    assert last["record"] == ("1" if states.get("1") == "done" else "0")
    assert last["sha256"] == ledger.sha256(tmp_path / last["record"] / "run.json")
    assert present == sorted([".lock", "head", *states])


def test_two_at_once_keep_one_chain(tmp_path: Path) -> None:
    code = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}
from pathlib import Path
from test_step_record import closed
for n in range(10):
    closed(Path({str(tmp_path)!r}), sys.argv[1] + str(n))
"""
    env = {**os.environ, "PYTHONPATH": str(provenance.ROOT)}
    running = [subprocess.Popen([sys.executable, "-c", code, name], env=env) for name in "ab"]
    assert [process.wait() for process in running] == [0, 0]
    link, open_ids = ledger.read_head(tmp_path)
    chain = []
    while link is not None:
        assert link["sha256"] == ledger.sha256(tmp_path / link["record"] / "run.json")
        chain.append(link["record"])
        link = read_predicate(tmp_path / link["record"])["previous"]
    assert (sorted(chain), open_ids) == (sorted(f"{name}{n}" for name in "ab" for n in range(10)), [])


def test_a_lock_that_is_not_given_up_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "LIMIT", 0.05)
    with (
        Ledger.locked(tmp_path),
        pytest.raises(RunbookError, match=r"locked by (process [0-9]+ \(|another command)"),
        Ledger.locked(tmp_path),
    ):
        pass


def test_a_damaged_head_stops_everything(tmp_path: Path) -> None:
    (tmp_path / "head").write_text("{")
    with pytest.raises(RunbookError, match="is damaged"), Ledger.locked(tmp_path):
        pass


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("main", "main"),
        ("core_r0.14.0", "core_r0.14.0"),
        ("dev-26.04-py3", "dev-26.04-py3"),
        ("feature/x", "feature%2Fx"),
        ("..", "%2E."),
        (".git", "%2Egit"),
        ("", "none"),
        ("a\nb", "a%0Ab"),
        ("ü", "%C3%BC"),
        ("x" * 300, "x" * 100),
    ],
)
def test_any_name_makes_one_safe_folder(name: str, folder: str) -> None:
    assert folder_name(name) == folder


def test_records_of_practice_are_kept_apart() -> None:
    bump = ("o/r", "main", "dev", "")
    assert Identity(*bump, practice=False).parts == ("o-r", "main", "dev-none")
    assert Identity(*bump, practice=True).parts == ("practice", "o-r", "main", "dev-none")


# -- writing and its failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "The disk is full"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "audit=FOLDER"),
        (errno.EIO, "The system says"),
    ],
)
def test_a_failed_write_is_told_and_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    file = tmp_path / "run.json"
    atomic_files.write(file, "old")
    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(RunbookError, match=words) as raised:
        atomic_files.write(file, "new")
    assert str(file) in str(raised.value)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small file system")
def test_a_full_disk_is_told(tmp_path: Path) -> None:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", tmp_path], check=False)
    if mounted.returncode != 0:
        pytest.skip("this container may not mount")
    try:
        with pytest.raises(RunbookError, match="The disk is full"):
            atomic_files.write(tmp_path / "big", "x" * 100_000)
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_a_record_that_is_gone_is_told(folder: Path) -> None:
    step = context.open_record("01-pin", APPLY, repository="o/r")
    os.environ["RUNBOOK_RECORD"] = str(folder / "gone")
    with pytest.raises(RunbookError, match="could not be written"):
        context.open_record("01-pin", APPLY, repository="o/r")
    step.done("The first goes on.")


# -- who -----------------------------------------------------------------------------------------------------------


def test_a_process_is_told_from_a_later_one_with_its_number() -> None:
    me = provenance.process()
    assert provenance.is_alive(me)
    assert not provenance.is_alive({**me, "started": me["started"] - 60})
    assert provenance.is_alive({**me, "started": 0, "host": "elsewhere"})
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert not provenance.is_alive({**me, "pid": child.pid})


def test_a_ci_run_names_its_actor(tmp_path: Path) -> None:
    env = {
        "GITHUB_ACTIONS": "true", "GITHUB_ACTOR": "ada", "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": "o/r", "GITHUB_RUN_ID": "7", "CI": "true",
    }  # fmt: skip
    assert provenance.who(env)["ci"] == {
        "service": "GITHUB_ACTIONS",
        "actor": "ada",
        "url": "https://github.com/o/r/actions/runs/7",
    }
    assert provenance.who({})["ci"] is None
    assert provenance.who({}, tmp_path)["git"] == "Ada Tester <ada@example.org>"
