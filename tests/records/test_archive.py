"""The archive: abandoned records, and the status of each bump."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from archives import BUMP, PIN, edit, record, two_bumps, words
from archives import record_folder as folder

from runbook_lib.records import archive, run_view
from runbook_lib.records.chain import Ledger, read_head, read_predicate
from runbook_lib.records.pages import index
from runbook_lib.records.status import BumpStatus
from runbook_lib.records.verify import verify
from runbook_lib.system import provenance


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    return two_bumps(tmp_path)


# -- abandoned records ------------------------------------------------------------------------------------------------


def test_closes_a_record_without_process_as_killed(tmp_path: Path) -> None:
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


# -- status -----------------------------------------------------------------------------------------------------------


def status_after(tmp_path: Path, *runs: tuple[str, str, str, bool]) -> BumpStatus:
    parent = None
    for at, (notebook, state, sentence, child) in enumerate(runs):
        outcome = {"sentence": sentence, "next": "", "reason": sentence.partition(" (")[0]}
        name = record(tmp_path, notebook, state, at=at, parent=parent if child else None, outcome=outcome)
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
def test_status_of_a_bump(
    tmp_path: Path, runs: list[tuple[str, str, str, bool]], expected: tuple[str, str, str, int]
) -> None:
    found = status_after(tmp_path, *runs)
    since = f"2026-04-01T00:{expected[3]:02}:30.000Z"  # each takes half a minute
    assert (found.state, found.step, found.sentence, found.since) == (*expected[:3], since)


@pytest.mark.parametrize(
    ("child", "expected"),
    [
        ("done", ("running", "bump", "2026-04-01T00:00:00.000Z")),
        ("running", ("running", "01-pin", "2026-04-01T00:01:00.000Z")),
    ],
)
def test_a_running_bump_names_its_current_step(tmp_path: Path, child: str, expected: tuple[str, str, str]) -> None:
    found = status_after(tmp_path, ("bump", "running", "", False), ("01-pin", child, "", True))
    assert (found.state, found.step, found.since) == expected
    assert (found.last, found.active) == ("", "2026-04-01T00:01:00.000Z")


@pytest.mark.parametrize("state", ["failed", "cancelled", "running", "previewed"])
def test_a_preview_does_not_change_the_status(tmp_path: Path, state: str) -> None:
    record(tmp_path, "bump", "waiting", "Wait.")
    parameters = {"resolved": {"mode": "preview"}}
    record(tmp_path, "05-golden-values", state, "No run 77.", at=7, parameters=parameters, inputs={"run": 77})
    (found,) = archive.status(tmp_path)
    assert (found.state, found.step, found.since) == ("waiting", "bump", "2026-04-01T00:00:30.000Z")


def test_status_of_a_cancelled_run_names_what_to_do(tmp_path: Path) -> None:
    found = status_after(tmp_path, ("bump", "cancelled", "Cancelled.", False))
    assert "Run the same command again" in found.next


def test_status_includes_the_contributions_of_an_open_record(tmp_path: Path) -> None:
    name = record(tmp_path, "bump", "running")
    line = {"kind": "link", "at": "then", "name": "pull request", "url": "https://x/1"}
    (tmp_path.joinpath(*BUMP.parts) / name / "contributions.jsonl").write_text(json.dumps(line))
    (found,) = archive.status(tmp_path)
    assert found.links == {"pull request": "https://x/1"}


def test_status_links_pull_request_ci_run_and_issues(tmp_path: Path) -> None:
    record(tmp_path, "bump", "done", at=1, links={"pull request": "https://x/1", "CI run": "https://x/old"})
    issue = {"effect": "issue", "target": "#12", "before": None, "after": "It hangs", "url": "https://x/12"}
    record(tmp_path, "04-run-ci", "waiting", "CI.", at=5, links={"CI run": "https://x/new"}, effects=[issue])
    (found,) = archive.status(tmp_path)
    assert found.started == "2026-04-01T00:01:00.000Z"
    assert found.links == {"pull request": "https://x/1", "CI run": "https://x/new", "issue #12": "https://x/12"}
    assert Path(found.story) == tmp_path.joinpath(*BUMP.parts, "story.html")


def test_links_are_not_followed(audit: Path, tmp_path: Path) -> None:
    os.symlink(audit, audit / "o-r" / "loop")
    (tmp_path / "outside").mkdir()
    (audit / "out").symlink_to(tmp_path / "outside")
    problems, counts = verify(audit)
    assert counts.bumps == 2
    # Nor is the link that replaced a bump.
    assert [problem.split(": ")[1][:18] for problem in problems] == ["is a symbolic link"] * 2
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


def test_the_record_of_a_killed_run_lists_what_its_steps_did(tmp_path: Path) -> None:
    effect = {"effect": "push", "target": "bump", "before": None, "after": "c0ffee", "at": "2026-04-01T00:01:10.000Z"}
    exception = {"exception": "older-tag", "reason": "a roll-back", "at": "2026-04-01T00:01:05.000Z"}
    bump = record(tmp_path, "bump", "running", live=False)
    record(tmp_path, "bump", "previewed", parent=bump, at=1, effects=[effect])  # the comparison with the shown plan
    inputs = {"digest": "sha256:1", "planned_commits": [{"parent": "a", "changes": "b"}]}
    first = record(
        tmp_path, "03-open-pr", "done", "Opened #7.", parent=bump, at=2, effects=[effect], exceptions=[exception],
        inputs=inputs, links={"PR": "https://forge/7"},
    )  # fmt: skip
    second = record(tmp_path, "04-run-ci", "running", parent=bump, at=3, live=False)
    with Ledger.locked(tmp_path.joinpath(*BUMP.parts)) as ledger:
        assert archive.close_dead(ledger) == [second, bump]
    folder = tmp_path.joinpath(*BUMP.parts, bump)
    run = read_predicate(folder)
    assert run["effects"] == [effect | {"step": "03-open-pr", "record": first}]
    assert (run["inputs"], run["links"]) == ({"digest": "sha256:1"}, {"PR": "https://forge/7"})
    assert [(made["decision"], made["reason"], made["at"]) for made in run["decisions"]] == [
        ("allowed older-tag", "a roll-back", exception["at"])
    ]
    assert [(step["record"], step["state"]) for step in run["steps"]] == [(first, "done"), (second, "killed")]
    page = (folder / "report.html").read_text()
    assert f'<a href="../{first}/report.html">03-open-pr</a>' in page
    assert "allowed older-tag" in words(page)
    assert "c0ffee" in words(page)
    view = run_view.newest(folder.parent)["bump"]
    assert view.decisions == ()  # none that is still open
    assert verify(tmp_path)[0] == []
