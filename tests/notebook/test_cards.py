"""Decision cards from records, and the entries of the file that answers become."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from archives import BUMP, record

from runbook_lib.decisions import Decision, Seen
from runbook_lib.notebook import cards
from runbook_lib.record import decisions

FILE = "gpt/a/golden_values_dev_dgx_h100.json"
TEST = "gpt/a@dgx_h100"


def question(kind: str = "accept", subject: str = FILE, suggestion: str = "", **facts: Any) -> dict[str, Any]:
    return {"kind": kind, "subject": subject, "why": "because", "suggestion": suggestion, "facts": facts}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"kind": "accept", "subject": FILE, "why": "w"}, [("accept", "accept", FILE), ("hold", "hold", FILE)]),
        (
            question(test=TEST),
            [("accept", "accept", FILE), ("broken", "broken", TEST), ("rerun", "rerun", TEST), ("hold", "hold", FILE)],
        ),
        (
            question("broken", TEST, search="find"),
            [("broken", "broken", TEST), ("rerun", "rerun", TEST), ("hold", "hold", TEST), ("search", "hold", TEST)],
        ),
        (question("reenable", TEST), [("reenable", "reenable", TEST)]),
        (question("allow", "foreign-commit:a"), [(kind, kind, "foreign-commit:a") for kind in ("allow", "hold")]),
    ],
)
def test_a_card_offers_the_decisions_on_its_question(
    given: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    assert [(option.choice, option.kind, option.subject) for option in cards.Card(given).options] == expected


@pytest.mark.parametrize(
    ("answer", "danger", "problem"),
    [
        ({}, "divergence", ""),
        ({"choice": "nonsense"}, "", ""),
        ({"choice": "accept"}, "", "Give a reason"),
        ({"choice": "accept", "reason": "  "}, "", "Give a reason"),
        ({"choice": "accept", "reason": "fine"}, "", ""),
        ({"choice": "accept", "reason": "fine"}, "divergence", "Type divergence"),
        ({"choice": "accept", "reason": "fine", "typed": "lost"}, "divergence", "Type divergence"),
        ({"choice": "accept", "reason": "fine", "typed": " Divergence "}, "divergence", ""),
        ({"choice": "accept", "reason": "fine", "typed": "lost"}, "lost", ""),
        ({"choice": "hold", "reason": "fine"}, "divergence", ""),
    ],
)
def test_an_answer_is_complete_with_a_reason_and_the_word_of_its_danger(
    answer: dict[str, str], danger: str, problem: str
) -> None:
    card = cards.Card(question(danger=danger))
    assert cards.problem(card, answer).startswith(problem)
    assert bool(cards.problem(card, answer)) is bool(problem)


def test_an_answer_is_bound_to_what_its_card_shows(tmp_path: Path) -> None:
    asked = [
        question(test=TEST, key="k1", run=12, attempt=2, danger="divergence"),
        question("broken", "gpt/b@x", key="k2"),
        question("allow", "older-tag"),
    ]
    shown, file = list(map(cards.Card, asked)), tmp_path / "decisions.yaml"
    answers = {
        f"accept:{FILE}": {"choice": "accept", "reason": "slow  and right", "typed": "divergence"},
        "broken:gpt/b@x": {"choice": "broken", "reason": "hangs"},
        "gone": {"choice": "accept", "reason": "x"},
    }
    cards.save(file, shown, answers)
    assert [replace(each, by="", at="") for each in decisions.read(file).entries] == [
        Decision("accept", FILE, "slow and right", "divergence", seen=Seen("k1", 12, 2)),
        Decision("broken", "gpt/b@x", "hangs", seen=Seen("k2")),
    ]
    # Another choice of the same card replaces it; what is about something else is bound when that is met.
    cards.save(file, shown, {f"accept:{FILE}": {"choice": "broken", "reason": "wrong"}}, ["broken:gpt/b@x"])
    assert [(each.kind, each.subject, each.seen) for each in decisions.read(file).entries] == [("broken", TEST, None)]


def test_a_card_shows_the_triage_and_a_hold_because_of_the_same_values(tmp_path: Path) -> None:
    facts: dict[str, Any] = {"test": TEST, "key": "k1", "plot": "plot-1.svg", "numbers": "1 → 2", "before": "Before."}
    facts |= {"details": {"Class": "hang"}, "lines": ["2026-11-25T18:15:03.0657140Z first"], "log": "https://x/1"}
    record(tmp_path, "05-golden-values", "waiting", decisions=[question(**facts)], files={"plot-1.svg": "<svg/>"})
    folder = tmp_path.joinpath(*BUMP.parts)
    decisions.add(folder / "decisions.yaml", [Decision("hold", FILE, "look first", seen=Seen("k1"))])
    (card,) = cards.read(folder)
    assert cards.evidence(card).text.split("\n")[1:] == [
        "1 → 2", "- Judged: because", "- Before: Before.", "- Class: hang",
        "The lines of the log that matter: https://x/1", "first", "Decided: Hold: do not merge: “look first”",
    ]  # fmt: skip
    assert card.plot
    assert card.answer == {"choice": "hold", "reason": "look first", "typed": ""}
    record(tmp_path, "05-golden-values", "waiting", at=3, decisions=[question(test=TEST, key="k2", plot="../x")])
    (card,) = cards.read(folder)
    assert (card.answer, card.plot) == ({}, "")
    assert cards.read(tmp_path / "none") == ()
