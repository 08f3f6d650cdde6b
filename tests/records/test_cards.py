"""Decision cards from records, and the parameters that answers become."""

from pathlib import Path
from typing import Any

import pytest
from archives import BUMP, record

from runbook_lib.records import cards

FILE = "gpt/a/golden_values_dev_dgx_h100.json"
TEST = "gpt/a@dgx_h100"
ALL = (*cards.PARAMETERS, "decisions")


def decision(parameter: str = "accept", name: str = FILE, suggestion: str = "", **facts: Any) -> dict[str, Any]:
    return {"parameter": parameter, "name": name, "why": "because", "suggestion": suggestion, "facts": facts}


def choices(card: cards.Card) -> list[tuple[str, str, str]]:
    return [(option.choice, option.parameter, option.name) for option in card.options]


@pytest.mark.parametrize(
    ("given", "parameters", "expected"),
    [
        (decision(), [], None),
        (decision(), ["broken"], None),
        ({"parameter": "accept", "name": FILE, "why": "w"}, ["accept"], [("accept", "accept", FILE)]),
        (decision(), ALL, [("accept", "accept", FILE), ("hold", "hold", FILE)]),
        (
            decision(test=TEST),
            ALL,
            [("accept", "accept", FILE), ("broken", "broken", TEST), ("rerun", "rerun", TEST), ("hold", "hold", FILE)],
        ),
        (
            decision("broken", TEST, search="find"),
            ALL,
            [("broken", "broken", TEST), ("rerun", "rerun", TEST), ("hold", "hold", TEST), ("search", "hold", TEST)],
        ),
        (decision("reenable", TEST), ALL, [("reenable", "reenable", TEST)]),
        (decision("allow", "foreign-commit:a"), ["decisions"], [("allow", "allow", "foreign-commit:a")]),
    ],
)
def test_a_card_offers_what_its_notebook_can_carry_out(
    given: dict[str, Any], parameters: list[str], expected: list[tuple[str, str, str]] | None
) -> None:
    made = cards.from_decisions([given], parameters)
    assert [choices(card) for card in made] == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("answer", "danger", "problem"),
    [
        ({}, "divergence", ""),
        ({"choice": "nonsense"}, "", ""),
        ({"choice": "accept"}, "", "Give a reason"),
        ({"choice": "accept", "reason": " ; "}, "", "Give a reason"),
        ({"choice": "accept", "reason": "fine"}, "", ""),
        ({"choice": "accept", "reason": "fine"}, "divergence", "Type diverges"),
        ({"choice": "accept", "reason": "fine", "typed": "lost"}, "divergence", "Type diverges"),
        ({"choice": "accept", "reason": "fine", "typed": " Diverges "}, "divergence", ""),
        ({"choice": "accept", "reason": "fine", "typed": "lost"}, "lost metric", ""),
        ({"choice": "hold", "reason": "fine"}, "divergence", ""),
    ],
)
def test_an_answer_is_complete_with_a_reason_and_the_word_of_its_danger(
    answer: dict[str, str], danger: str, problem: str
) -> None:
    (card,) = cards.from_decisions([decision(danger=danger)], ALL)
    assert cards.problem(card, answer).startswith(problem)
    assert bool(cards.problem(card, answer)) is bool(problem)


@pytest.mark.parametrize(
    ("choice", "reason", "entry"),
    [("accept", "fine", "diverges: fine"), ("accept", "Diverges, fine", "Diverges, fine"), ("hold", "fine", "fine")],
)
def test_the_reason_for_a_dangerous_value_names_the_danger_once(choice: str, reason: str, entry: str) -> None:
    (card,) = cards.from_decisions([decision(danger="divergence")], ALL)
    answers = {card.id: {"choice": choice, "reason": reason, "typed": "diverges"}}
    assert cards.parameters([card], answers) == {choice: f"{FILE}: {entry}"}


def test_answers_become_parameters() -> None:
    made = cards.from_decisions(
        [decision(test=TEST), decision("broken", "gpt/b@x"), decision("allow", "older-tag")], ALL
    )
    answers = {
        f"accept:{FILE}": {"choice": "broken", "reason": "slow; and  wrong"},
        "broken:gpt/b@x": {"choice": "broken", "reason": "hangs"},
        "allow:older-tag": {"choice": "allow"},
        "gone": {"choice": "accept", "reason": "x"},
    }
    assert cards.parameters(made, answers) == {
        "broken": f"{TEST}: slow, and wrong; gpt/b@x: hangs",
    }


def test_a_card_shows_the_triage_and_the_earlier_decision_on_the_same_value(tmp_path: Path) -> None:
    failures = "job,class,platform,next,url,test\ngpt/a - latest,hang,dgx_h100,Read it.,https://x/1,gpt/a\n"
    evidence = (
        "job,platform,text\n"
        "gpt/a - latest,dgx_h100,2026-11-25T18:15:03.0657140Z first\n"
        "gpt/a - latest,dgx_gb200,not this\n"
    )
    asked = [decision(test=TEST, key="k1", plot="plot-1.svg", numbers="1 → 2")]
    record(tmp_path, "05-golden-values", "waiting", decisions=asked, files={"plot-1.svg": "<svg/>"})
    given = {"resolved": {"hold": f"{FILE}: look first", "mode": "publish"}}
    record(tmp_path, "bump", "waiting", at=1, parameters=given)
    record(tmp_path, "06-broken-tests", "waiting", at=2, files={"failures.csv": failures, "evidence.csv": evidence})
    folder = tmp_path.joinpath(*BUMP.parts)
    (card,) = cards.read(folder, ALL)
    assert (card.headline, card.lines, card.log) == ("1 → 2", ("first",), "https://x/1")
    assert ("Class", "hang") in card.details
    assert ("Advice", "Read it.") in card.details
    assert card.plot
    assert card.earlier == {"choice": "hold", "reason": "look first"}
    assert card.is_held
    # A hold ends with the first run without it.
    record(tmp_path, "bump", "waiting", at=2, parameters={"resolved": {"hold": "", "mode": "publish"}})
    assert not cards.read(folder, ALL)[0].is_held
    # Of another value nothing is known.
    record(tmp_path, "05-golden-values", "waiting", at=3, decisions=[decision(test=TEST, key="k2", plot="../x")])
    (card,) = cards.read(folder, ALL)
    assert (card.earlier, card.plot) == (None, "")
    assert cards.read(tmp_path / "none", ALL) == ()
