"""The decision cards of a form."""

from dataclasses import replace

from runbook_lib.forms.decision_cards import DecisionCards
from runbook_lib.records.cards import Card, from_decisions


def broken(*names: str) -> tuple[Card, ...]:
    asked = [{"parameter": "broken", "name": name, "why": "It failed.", "suggestion": "it fails"} for name in names]
    return from_decisions(asked, ["broken", "rerun"])


def offered(*cards: Card) -> DecisionCards:
    view = DecisionCards(lambda: None)
    view.offer(cards, keep=True)
    return view


def test_an_answer_outlives_a_new_request() -> None:
    first, second = broken("a@x", "b@x")
    view = offered(first, second)
    view.shown[0].buttons["broken"].click()
    assert view.parameters() == {"broken": "a@x: it fails"}
    assert view.open == [view.shown[1]]
    before = list(view.shown)
    view.offer([second], keep=True)  # the answered one is no longer requested
    assert view.shown == [before[1], before[0]]
    (changed,) = broken("a@x")
    changed = replace(changed, headline="It hangs.")
    view.shown[1].reason.value = "known"
    view.offer([changed], keep=True)
    assert view.parameters() == {"broken": "a@x: known"}
    assert view.shown[0].card is changed
    view.offer([changed], keep=False)
    assert view.parameters() == {}


def test_a_choice_is_taken_back_or_replaced() -> None:
    view = offered(*broken("a@x"))
    (card,) = view.shown
    card.buttons["broken"].click()
    card.buttons["rerun"].click()
    assert card.answer == {"choice": "rerun", "reason": "", "typed": ""}
    assert "reason" in card.problem
    card.reason.value = "again"
    assert (card.problem, view.parameters()) == ("", {"rerun": "a@x: again"})
    card.buttons["rerun"].click()
    assert (card.answer["choice"], view.parameters()) == ("", {})


def test_a_hold_stays_until_somebody_decides_otherwise() -> None:
    asked = {"parameter": "accept", "name": "gpt/a/golden_values_dev_dgx_h100.json", "why": "It moved."}
    (card,) = from_decisions([asked], ["accept", "hold"])
    held = replace(card, earlier={"choice": "hold", "reason": "ask the owners"})
    view = offered(held)
    assert (view.open, view.parameters()) == ([], {"hold": f"{card.title}: ask the owners"})
    view.shown[0].buttons["accept"].click()
    view.shown[0].reason.value = "known"
    view.offer([held], keep=True)
    assert view.parameters() == {"accept": f"{card.title}: known"}
    # Another earlier decision only offers its reason.
    view.offer([replace(card, earlier={"choice": "accept", "reason": "slower"})], keep=False)
    assert len(view.open) == 1
    view.shown[0].buttons["accept"].click()
    assert view.parameters() == {"accept": f"{card.title}: slower"}
