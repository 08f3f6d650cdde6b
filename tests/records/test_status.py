"""When a bump is ready, from its records."""

from pathlib import Path
from typing import Any

import pytest
from archives import BUMP, READY, record

from runbook_lib.records import archive
from runbook_lib.records.statement import Identity
from runbook_lib.records.status import BEFORE_MERGE, NO_HOLD, BumpStatus

STEPS = ("00-preflight", "01-github-pin", "02-gitlab-pin", "03-open-pr", "04-run-ci", "05-golden-values",
         "06-broken-tests", "07-sync-check")  # fmt: skip
EDIT = {"effects": [{"effect": "edit", "target": "a.yml", "before": None, "after": "sha256:1"}]}
#: Notebook, whether it is a step of the last run of the whole runbook, and what else its record says.
Told = tuple[str, bool, dict[str, Any]]
ALL: tuple[Told, ...] = tuple((name, False, EDIT if name in STEPS[1:4] else {}) for name in STEPS)
WHOLE: Told = ("bump", False, READY)


def waits(following: str = "") -> dict[str, Any]:
    return {"state": "waiting", "outcome": {"sentence": "Waiting.", "next": following}}


def stands(tmp_path: Path, *runs: Told, repository: str = "o/r") -> BumpStatus:
    parent = None
    bump = Identity(repository, BUMP.base, BUMP.image_type, BUMP.tag, practice=False)
    for at, (notebook, child, fields) in enumerate(runs):
        given = {"state": "done", "sentence": f"Run {at}.", **fields}
        name = record(tmp_path, notebook, at=at, parent=parent if child else None, bump=bump, **given)
        parent = parent if child else name
    (found,) = archive.status(tmp_path)
    return found


#: What was run, and the run that makes the bump ready; None where it is not.
CASES: dict[str, tuple[tuple[Told, ...], str | None]] = {
    "nothing but a look at the pins": ((("07-sync-check", False, {}),), None),
    "pins without a pull request": ((*ALL[:3], ALL[-1]), None),
    "the whole runbook, which looked nothing up": ((("bump", False, {}),), None),
    "the whole runbook, and then an edit": ((WHOLE, ("01-github-pin", False, EDIT)), None),
    "every step, and then an edit": ((*ALL, ("01-github-pin", False, EDIT)), None),
    "every step, the pins not looked at after the pull request": ((*ALL[:2], ALL[-1], *ALL[2:-1]), None),
    "the whole runbook": ((WHOLE,), "bump"),
    "the whole runbook with steps that edited": ((WHOLE, *((name, True, it) for name, _, it in ALL)), "bump"),
    "the whole runbook, and then a step that found all done": ((WHOLE, ("01-github-pin", False, {})), "bump"),
    "the whole runbook, and then what is no step of it": ((WHOLE, ("build-image", False, EDIT)), "bump"),
    "the whole runbook with steps that edited, and then what is no step of it": (
        (WHOLE, *((name, True, it) for name, _, it in ALL), ("build-image", False, EDIT)),
        "bump",
    ),
    "the whole runbook, and then what failed beside it": (
        (WHOLE, ("build-image", False, {"state": "failed"})),
        "bump",
    ),
    "the whole runbook, and then what follows the merge": ((WHOLE, ("08-after-merge", False, EDIT)), "bump"),
    "every step by itself": (ALL, "07-sync-check"),
    "the whole runbook after an edit": ((ALL[1], WHOLE), "bump"),
    # the step that held the bump up was run by itself
    "the whole runbook waited, and the step is done": (
        (("bump", False, {"state": "waiting"}), *((name, True, it) for name, _, it in ALL), ("04-run-ci", False, {})),
        "04-run-ci",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_bump_is_ready_if_its_last_run_was(tmp_path: Path, name: str) -> None:
    runs, expected = CASES[name]
    found = stands(tmp_path, *runs)
    assert (found.state, found.step) == (("ready", expected) if expected else ("in progress", runs[-1][0]))


@pytest.mark.parametrize(
    ("repository", "steps", "expected"),
    [
        ("coreweave/ml-containers", (1, 3, 7), "ready"),  # neither GitLab nor copy-pr-bot, golden values, recipes
        ("coreweave/ml-containers", (1, 7), "in progress"),
        ("NVIDIA/Megatron-LM", (1, 3, 7), "in progress"),
        ("NVIDIA/Megatron-LM", (1, 2, 3, 4, 5, 6, 7), "ready"),
        ("o/r", (1, 3, 7), "in progress"),  # which steps apply there is not known
    ],
)
def test_only_the_steps_that_apply_must_be_done(
    tmp_path: Path, repository: str, steps: tuple[int, ...], expected: str
) -> None:
    assert stands(tmp_path, *(ALL[it] for it in steps), repository=repository).state == expected


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
    assert stands(tmp_path, *runs).next == expected


def test_a_bump_on_hold_is_blocked_by_the_hold_and_not_by_a_step(tmp_path: Path) -> None:
    check = {"name": f"{BEFORE_MERGE}{NO_HOLD}", "status": "skipped", "detail": "Do not merge: x: it diverges"}
    bump = stands(tmp_path, ("bump", False, waits() | {"checks": [check]}), ("04-run-ci", True, waits("Refresh.")))
    assert (bump.step, bump.state) == ("bump", "waiting")


def test_an_earlier_state_determines_the_next_step_of_a_bump(tmp_path: Path) -> None:
    assert stands(tmp_path, ("build-image", False, waits())).step == "build-image"


def test_a_step_that_waits_or_failed_holds_up_what_was_ready(tmp_path: Path) -> None:
    assert stands(tmp_path, WHOLE, ("04-run-ci", False, {"state": "waiting"})).state == "waiting"
    assert stands(tmp_path / "b", WHOLE, ("07-sync-check", False, {"state": "failed", **READY})).state == "failed"


@pytest.mark.parametrize(("state", "in_flight"), [("waiting", True), ("failed", True), ("previewed", False)])
def test_a_preview_is_not_in_flight(tmp_path: Path, state: str, in_flight: bool) -> None:
    assert stands(tmp_path, ("01-github-pin", False, {**EDIT, "state": state})).is_in_flight is in_flight
