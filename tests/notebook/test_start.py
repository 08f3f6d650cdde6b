"""The board: the one next action of each bump."""

from pathlib import Path

import pytest
from archives import READY, record, words

from runbook_lib.notebook import start
from runbook_lib.pins.bump import Bump
from runbook_lib.record import archive, status

pytestmark = pytest.mark.usefixtures("archive")
CHECK = {"name": "x", "status": "passed", "detail": ""}


def shown() -> str:
    return start.board(status.status(archive.default())).html


@pytest.mark.parametrize(
    ("state", "following", "expected"),
    [
        ("running", {}, "Nothing. It is running"),
        ("failed", {}, "Fix what failed. Completed work is detected and kept. Press Preview"),
        ("waiting", {}, "Choose 26.04-py3 in the form below"),
        (
            "waiting",
            {"because": "To follow CI:", "notebook": "bump", "parameters": {"tag": "26.04-py3", "wait": True}},
            "To follow CI: Choose Tag: 26.04-py3, Wait for CI: True. Press Preview, then Apply.",
        ),
    ],
)
def test_the_next_action_is_told_in_the_words_of_the_form(
    tmp_path: Path, state: str, following: dict[str, object], expected: str
) -> None:
    outcome = {"sentence": "Why.", "next": following}
    record(tmp_path / "audit", "bump", state, checks=[CHECK], outcome=outcome)
    assert f"Next: {expected}" in " ".join(words(shown()).split())


def test_a_bump_that_is_ready_leads_to_the_last_notebook(tmp_path: Path) -> None:
    record(tmp_path / "audit", "07-sync-check", "done", "In sync.", checks=[CHECK])
    record(tmp_path / "audit", "bump", "done", "Ready to merge.", at=1, **READY)
    assert "1 ready to merge" in shown()
    assert 'href="08-after-merge.ipynb"' in shown()


def test_the_outcome_names_the_bumps_in_flight(tmp_path: Path) -> None:
    record(tmp_path / "audit", "04-run-ci", "waiting", "Why.", checks=[CHECK])
    bumps = status.status(tmp_path / "audit")
    for found, expected in ((bumps, "In flight: o/r main dev 26.04-py3 is waiting."), (None, "The board above")):
        assert start.plan(found, Bump.parse()).done.sentence.startswith(expected)
