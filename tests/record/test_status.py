"""The status of each bump, according to its records, and when it is ready."""

from pathlib import Path
from typing import Any

import pytest
from archives import BUMP, READY, record

from runbook_lib.record.status import BumpStatus, status

STEPS = ("00-preflight", "01-github-pin", "02-gitlab-pin", "03-open-pr", "04-run-ci", "05-golden-values",
         "06-broken-tests", "07-sync-check")  # fmt: skip
EDIT = {"effects": [{"kind": "edit", "target": "a.yml", "before": None, "after": "sha256:1"}]}
FAILED = {**EDIT, "state": "failed"}
#: Notebook, whether it is a step of the last run of the whole runbook, and what else its record says.
Told = tuple[str, bool, dict[str, Any]]
ALL: tuple[Told, ...] = tuple((name, False, EDIT if name in STEPS[1:4] else {}) for name in STEPS)
WHOLE: Told = ("bump", False, READY)


def waits(following: str = "") -> dict[str, Any]:
    return {"state": "waiting", "outcome": {"sentence": "Waiting.", "next": {"because": following}}}


def stands(tmp_path: Path, *runs: Told) -> BumpStatus:
    recorded: list[dict[str, Any]] = []
    for at, (name, child, fields) in enumerate(runs):
        run = {"name": name, "state": "done", "effects": [], "outcome": {"sentence": "", "next": {}}, **fields}
        if child:
            recorded[-1]["steps"].append({"round": 1, **run})
        else:
            recorded.append({"at": at, "steps": [], **run})
    for run in recorded:
        record(tmp_path, **run)
    (found,) = status(tmp_path)
    return found


#: What was run, and the run that makes the bump ready; None where it is not.
CASES: dict[str, tuple[tuple[Told, ...], str | None]] = {
    "the whole runbook, which looked nothing up": ((("bump", False, {}),), None),
    "the whole runbook, and then an edit": ((WHOLE, ("01-github-pin", False, EDIT)), None),
    "the whole runbook": ((WHOLE,), "bump"),
    "the whole runbook with steps that edited": ((WHOLE, *((name, True, it) for name, _, it in ALL)), "bump"),
    "the whole runbook, and then a step that found all done": ((WHOLE, ("01-github-pin", False, {})), "bump"),
    "the whole runbook, and then what failed beside it": ((WHOLE, ("build-image", False, FAILED)), "bump"),
    "the whole runbook, and then what follows the merge": ((WHOLE, ("08-after-merge", False, EDIT)), "bump"),
    "a requirement that blocks": ((("bump", False, {"inputs": {"requirements": [{"blocks": True}]}}),), None),
    "a requirement that may block": ((("bump", False, {"inputs": {"requirements": [{}]}}),), None),
    "every step by itself": (ALL, None),
    "the whole runbook after an edit": ((ALL[1], WHOLE), "bump"),
    # the step that held the bump up was run by itself
    "the whole runbook waited, and the step is done": (
        (("bump", False, {"state": "waiting"}), *((name, True, it) for name, _, it in ALL), ("04-run-ci", False, {})),
        None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_bump_is_ready_if_its_last_run_was(tmp_path: Path, name: str) -> None:
    runs, expected = CASES[name]
    found = stands(tmp_path, *runs)
    assert (found.state, found.step) == (("ready", expected) if expected else ("in progress", runs[-1][0]))


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ((("bump", False, waits("Decide.")), ("04-run-ci", True, waits("Refresh."))), "Decide."),
        ((("bump", False, waits()), ("04-run-ci", True, waits("Refresh."))), "Refresh."),
        (  # a step that ran by itself since is the last word
            (("bump", False, waits("Decide.")), ("04-run-ci", False, waits("Refresh."))),
            "Refresh.",
        ),
    ],
)
def test_a_waiting_runbook_names_the_next_action(tmp_path: Path, runs: tuple[Told, ...], expected: str) -> None:
    assert stands(tmp_path, *runs).next.because == expected


def test_a_bump_on_hold_is_blocked_by_the_hold_and_not_by_a_step(tmp_path: Path) -> None:
    held = {"inputs": {"requirements": [{"kind": "hold", "state": "missing", "evidence": "x: it diverges"}]}}
    bump = stands(tmp_path, ("bump", False, waits() | held), ("04-run-ci", True, waits("Refresh.")))
    assert (bump.step, bump.state) == ("bump", "waiting")


def test_a_step_that_waits_or_failed_holds_up_what_was_ready(tmp_path: Path) -> None:
    assert stands(tmp_path, WHOLE, ("04-run-ci", False, {"state": "waiting"})).state == "waiting"
    assert stands(tmp_path / "b", WHOLE, ("07-sync-check", False, {"state": "failed", **READY})).state == "failed"


@pytest.mark.parametrize(("state", "in_flight"), [("waiting", True), ("failed", True), ("previewed", False)])
def test_a_preview_is_not_in_flight(tmp_path: Path, state: str, in_flight: bool) -> None:
    assert stands(tmp_path, ("01-github-pin", False, {**EDIT, "state": state})).is_in_flight is in_flight


def told(state: str, sentence: str) -> dict[str, Any]:
    return {"state": state, "outcome": {"sentence": sentence, "next": {}}}


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([("bump", False, told("previewed", "Would."))], ("previewed", "bump", "Would.")),
        # stopped by its inputs, such as a mistyped tag
        ([("bump", False, told("failed", "No such tag."))], ("not begun", "bump", "No such tag.")),
        (
            [("bump", False, told("failed", "A step failed.")), ("01-pin", True, told("failed", "It differs."))],
            ("failed", "bump", "A step failed."),
        ),
        (
            [("bump", False, told("waiting", "Wait.")), ("bump", False, told("failed", "accept must read …"))],
            ("waiting", "bump", "Wait."),
        ),
        ([("01-pin", False, told("done", "Changed."))], ("in progress", "01-pin", "Changed.")),
        (
            [
                ("bump", False, told("waiting", "Wait.")),
                ("01-pin", True, told("done", "x")),
                ("04-run-ci", True, told("waiting", "CI.")),
            ],
            ("waiting", "04-run-ci", "CI."),
        ),
        # neither running a step again nor what CI has done meanwhile shortens the wait
        (
            [("04-run-ci", False, told("waiting", "0 of 4 jobs.")), ("04-run-ci", False, told("waiting", "3 of 4."))],
            ("waiting", "04-run-ci", "3 of 4."),
        ),
        ([("04-run-ci", False, told("interrupted", "Killed."))], ("interrupted", "04-run-ci", "Killed.")),
    ],
)
def test_status_of_a_bump(tmp_path: Path, runs: list[Told], expected: tuple[str, str, str]) -> None:
    found = stands(tmp_path, *runs)
    assert (found.state, found.step, found.sentence) == expected
    assert found.since == "2026-04-01T00:00:30.000Z"  # the first run took half a minute


@pytest.mark.parametrize(("steps", "step"), [([], "bump"), (["00-preflight", "01-github-pin"], "01-github-pin")])
def test_a_running_bump_names_its_current_step(tmp_path: Path, steps: list[str], step: str) -> None:
    states = ["done"] * (len(steps) - 1) + ["running"]
    told = [{"name": name, "state": state} for name, state in zip(steps, states, strict=False)]
    record(tmp_path, "bump", "running", steps=told)
    (found,) = status(tmp_path)
    start = "2026-04-01T00:00:00.000Z"
    assert (found.state, found.step, found.since) == ("running", step, start)


@pytest.mark.parametrize("state", ["failed", "interrupted", "running", "previewed"])
def test_a_preview_does_not_change_the_status(tmp_path: Path, state: str) -> None:
    record(tmp_path, "bump", "waiting", "Wait.")
    record(tmp_path, "05-golden-values", state, "No run 77.", at=7, parameters={"mode": "preview"}, inputs={"run": 77})
    (found,) = status(tmp_path)
    assert (found.state, found.step, found.since) == ("waiting", "bump", "2026-04-01T00:00:30.000Z")


def test_status_links_pull_request_ci_run_and_issues(tmp_path: Path) -> None:
    record(tmp_path, "bump", "done", at=1, links={"pull request": "https://x/1", "CI run": "https://x/old"})
    issue = {"kind": "issue", "target": "#12", "before": None, "after": "It hangs", "url": "https://x/12"}
    record(tmp_path, "04-run-ci", "waiting", "CI.", at=5, links={"CI run": "https://x/new"}, effects=[issue])
    (found,) = status(tmp_path)
    assert found.links == {"pull request": "https://x/1", "CI run": "https://x/new", "issue #12": "https://x/12"}
    assert Path(found.folder) == tmp_path.joinpath(*BUMP.parts)
