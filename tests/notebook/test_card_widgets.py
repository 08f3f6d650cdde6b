"""The decision cards of a form."""

from dataclasses import replace
from pathlib import Path

from runbook_lib.notebook.card_widgets import DecisionCards
from runbook_lib.notebook.cards import Card
from runbook_lib.record import decisions


def broken(*names: str) -> tuple[Card, ...]:
    asked = [{"kind": "broken", "subject": name, "why": "It failed.", "suggestion": "it fails"} for name in names]
    return tuple(map(Card, asked))


def offered(*cards: Card) -> DecisionCards:
    view = DecisionCards(lambda: None)
    view.offer(cards, keep=True)
    return view


def answers(view: DecisionCards) -> dict[str, tuple[str, str]]:
    return {card.partition(":")[2]: (it["choice"], it["reason"]) for card, it in view.answers.items()}


def test_an_answer_outlives_a_new_request() -> None:
    first, second = broken("a@x", "b@x")
    view = offered(first, second)
    view.shown[0].buttons["broken"].click()
    assert answers(view) == {"a@x": ("broken", "it fails")}
    assert view.open == [view.shown[1]]
    before = list(view.shown)
    view.offer([second], keep=True)  # the answered one is no longer requested
    assert view.shown == [before[1], before[0]]
    (changed,) = broken("a@x")
    changed = replace(changed, plot="UA==")
    view.shown[1].reason.value = "known"
    view.offer([changed], keep=True)
    assert answers(view) == {"a@x": ("broken", "known")}
    assert view.shown[0].card is changed
    view.offer([changed], keep=False)
    assert answers(view) == {}


def test_a_choice_is_taken_back_or_replaced() -> None:
    view = offered(*broken("a@x"))
    (card,) = view.shown
    card.buttons["broken"].click()
    card.buttons["rerun"].click()
    assert card.answer == {"choice": "rerun", "reason": "", "typed": ""}
    assert "reason" in card.problem
    assert view.open == [card]
    card.reason.value = "again"
    assert (card.problem, answers(view)) == ("", {"a@x": ("rerun", "again")})
    card.buttons["rerun"].click()
    assert (card.answer["choice"], answers(view)) == ("", {})


def test_a_hold_stays_until_somebody_decides_otherwise() -> None:
    asked = {"kind": "accept", "subject": "gpt/a/golden_values_dev_dgx_h100.json", "why": "It moved."}
    card = Card(asked)
    held = replace(card, answer={"choice": "hold", "reason": "ask the owners"})
    view = offered(held)
    assert (view.open, answers(view)) == ([], {card.title: ("hold", "ask the owners")})
    assert view.saved == view.answers
    view.shown[0].buttons["accept"].click()
    view.shown[0].reason.value = "known"
    view.offer([held], keep=True)
    assert answers(view) == {card.title: ("accept", "known")}


def test_an_answer_is_written_once_and_taken_back(tmp_path: Path) -> None:
    view, file = offered(*broken("a@x")), tmp_path / "decisions.yaml"
    view.save(lambda: file)
    assert not file.exists()
    view.shown[0].buttons["broken"].click()
    view.save(lambda: file)
    (entry,) = decisions.read(file).entries
    view.save(lambda: file)
    assert decisions.read(file).entries == (entry,)
    view.shown[0].buttons["broken"].click()
    view.save(lambda: file)
    assert decisions.read(file).entries == ()
