"""The status of each bump, according to its records."""

import json
from pathlib import Path

import pytest
from archives import BUMP, record

from runbook_lib.record.status import BumpStatus, status


def status_after(tmp_path: Path, *runs: tuple[str, str, str, bool]) -> BumpStatus:
    told = []
    for at, (notebook, state, sentence, child) in enumerate(runs):
        outcome = {"sentence": sentence, "next": {}, "reason": sentence.partition(" (")[0]}
        if child:
            told[-1]["steps"].append({"name": notebook, "round": 1, "state": state, "outcome": outcome})
        else:
            told.append({"name": notebook, "state": state, "at": at, "outcome": outcome, "steps": []})
    for run in told:
        record(tmp_path, **run)
    (found,) = status(tmp_path)
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
            ("waiting", "04-run-ci", "CI.", 0),
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
        ([("04-run-ci", "interrupted", "Interrupted.", False)], ("interrupted", "04-run-ci", "Interrupted.", 0)),
    ],
)  # fmt: skip
def test_status_of_a_bump(
    tmp_path: Path, runs: list[tuple[str, str, str, bool]], expected: tuple[str, str, str, int]
) -> None:
    found = status_after(tmp_path, *runs)
    since = f"2026-04-01T00:{expected[3]:02}:30.000Z"  # each takes half a minute
    assert (found.state, found.step, found.sentence, found.since) == (*expected[:3], since)


@pytest.mark.parametrize(("steps", "step"), [([], "bump"), (["00-preflight", "01-github-pin"], "01-github-pin")])
def test_a_running_bump_names_its_current_step(tmp_path: Path, steps: list[str], step: str) -> None:
    name = record(tmp_path, "bump", "running")
    lines = [json.dumps({"kind": "step", "name": each, "round": 1}) for each in steps]
    (tmp_path.joinpath(*BUMP.parts) / name / "contributions.jsonl").write_text("\n".join(lines))
    (found,) = status(tmp_path)
    start = "2026-04-01T00:00:00.000Z"
    assert (found.state, found.step, found.since, found.active) == ("running", step, start, start)


@pytest.mark.parametrize("state", ["failed", "interrupted", "running", "previewed"])
def test_a_preview_does_not_change_the_status(tmp_path: Path, state: str) -> None:
    record(tmp_path, "bump", "waiting", "Wait.")
    record(tmp_path, "05-golden-values", state, "No run 77.", at=7, parameters={"mode": "preview"}, inputs={"run": 77})
    (found,) = status(tmp_path)
    assert (found.state, found.step, found.since) == ("waiting", "bump", "2026-04-01T00:00:30.000Z")


def test_status_of_an_interrupted_run_names_what_to_do(tmp_path: Path) -> None:
    found = status_after(tmp_path, ("bump", "interrupted", "Interrupted.", False))
    assert (found.next.notebook, "kept" in found.next.because) == ("bump", True)


def test_status_includes_the_contributions_of_an_open_record(tmp_path: Path) -> None:
    name = record(tmp_path, "bump", "running")
    line = {"kind": "link", "at": "then", "name": "pull request", "url": "https://x/1"}
    (tmp_path.joinpath(*BUMP.parts) / name / "contributions.jsonl").write_text(json.dumps(line))
    (found,) = status(tmp_path)
    assert found.links == {"pull request": "https://x/1"}


def test_status_links_pull_request_ci_run_and_issues(tmp_path: Path) -> None:
    record(tmp_path, "bump", "done", at=1, links={"pull request": "https://x/1", "CI run": "https://x/old"})
    issue = {"effect": "issue", "target": "#12", "before": None, "after": "It hangs", "url": "https://x/12"}
    record(tmp_path, "04-run-ci", "waiting", "CI.", at=5, links={"CI run": "https://x/new"}, effects=[issue])
    (found,) = status(tmp_path)
    assert found.links == {"pull request": "https://x/1", "CI run": "https://x/new", "issue #12": "https://x/12"}
    assert Path(found.folder) == tmp_path.joinpath(*BUMP.parts)
