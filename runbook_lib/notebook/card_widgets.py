"""The decision cards of a form: evidence, a button for each choice, a reason, and the word that confirms a danger."""

import html
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from runbook_lib.notebook import cards
from runbook_lib.notebook.cards import Card


def set_visible(widget: Any, is_visible: bool) -> None:
    """Show or hide a widget, which then has a layout of its own."""
    widget.layout.display = None if is_visible else "none"


class CardWidgets:
    """One card; ``changed`` is called after each change by the user."""

    def __init__(self, card: Card, answer: Mapping[str, str], changed: Callable[[], None]) -> None:
        self.card, self._changed, self._choice = card, changed, ""
        self.buttons = {}
        for option in card.options:
            self.buttons[option.choice] = widgets.Button(description=option.label)
            self.buttons[option.choice].on_click(lambda _, choice=option.choice: self._press(choice))
        self.reason = widgets.Text(description="Reason")
        self.typed = widgets.Text(description=f"Type “{card.danger}” to accept the {card.danger_in_words}")
        self._state = widgets.HTML()
        evidence = widgets.HTML(cards.evidence(card).html, _dom_classes=["jp-RenderedHTMLCommon"])
        choices = widgets.HBox([*self.buttons.values()], _dom_classes=["runbook-choices"])
        rows = [evidence, choices, self.reason, self.typed, self._state]
        self.root = widgets.VBox(rows, _dom_classes=["runbook-card"])
        if card.option(answer.get("choice", "")):
            self._fill(answer)
        self._show()
        for field in (self.reason, self.typed):
            field.observe(lambda _: self._report(), names="value")

    @property
    def answer(self) -> dict[str, str]:
        """The ``choice``, the ``reason`` and the word ``typed``; empty texts if nothing is chosen."""
        return {"choice": self._choice, "reason": self.reason.value, "typed": self.typed.value}

    @property
    def problem(self) -> str:
        """A sentence on what is missing from the answer; empty if it is complete or nothing is chosen."""
        return cards.problem(self.card, self.answer)

    def focus(self) -> None:
        """Focus the first choice."""
        next(iter(self.buttons.values())).focus()

    def _press(self, choice: str) -> None:
        """Choose, with a reason from the facts or of the hold; pressed again, choose nothing."""
        option = self.card.option(choice)
        if option is None or choice == self._choice:
            self._fill({})
        elif choice == self.card.answer.get("choice"):
            self._fill(self.card.answer)
        else:
            self._fill({"choice": choice, "reason": option.reason})
        self._report()

    def _fill(self, answer: Mapping[str, str]) -> None:
        self._choice = answer.get("choice", "")
        self.reason.value, self.typed.value = answer.get("reason", ""), answer.get("typed", "")

    def _report(self) -> None:
        self._show()
        self._changed()

    def _show(self) -> None:
        """Show which choice is taken, what it needs, and whether it is complete."""
        option = self.card.option(self._choice)
        for choice, button in self.buttons.items():
            button.button_style = "primary" if choice == self._choice else ""
        needed = {self.reason: option is not None, self.typed: self._choice == "accept" and bool(self.card.danger)}
        for field, is_needed in needed.items():
            set_visible(field, is_needed)
        state = f"✗ {self.problem}" if self.problem else "open"
        if option and not self.problem:
            state = f"✓ {option.label}: {self.reason.value}"
        self._state.value = f'<span role="status">{html.escape(state)}</span>'


class DecisionCards:
    """The cards of a form; ``changed`` is called after each change by the user."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.shown: list[CardWidgets] = []
        #: The answers that the file of decisions has.
        self.saved: dict[str, dict[str, str]] = {}
        self._count = widgets.HTML()
        self.root = widgets.VBox([])

    @property
    def open(self) -> list[CardWidgets]:
        """The cards without a complete answer."""
        return [card for card in self.shown if card.problem or not card.answer["choice"]]

    @property
    def problem(self) -> str:
        """A sentence on what is missing from the first incomplete answer; empty if there is none."""
        return next((card.problem for card in self.shown if card.problem), "")

    @property
    def answers(self) -> dict[str, dict[str, str]]:
        """The answers by card."""
        return {each.card.id: each.answer for each in self.shown if each.answer["choice"]}

    def save(self, file: Callable[[], Path]) -> None:
        """Write the answers into the file of decisions, unless it has them.  Raises RunbookError."""
        answers = self.answers
        if answers != self.saved:
            cards.save(file(), [each.card for each in self.shown], answers, self.saved.keys() - answers.keys())
            self.saved = answers

    def offer(self, offered: Sequence[Card], *, keep: bool) -> None:
        """Show these cards; those on hold are decided.

        With ``keep``, answered cards stay, because a run that received an answer does not request it again.
        """
        known = {each.card.id: each for each in self.shown} if keep else {}
        if not keep:
            self.saved = {}
        shown = []
        for card in offered:
            before = known.pop(card.id, None)
            if before is not None and before.card == card:
                shown.append(before)  # left alone: the user may be editing it at this moment
                continue
            shown.append(CardWidgets(card, before.answer if before else card.answer, self._report))
            if card.answer and not before:
                self.saved[card.id] = shown[-1].answer
        self.shown = [*shown, *(each for each in known.values() if each.answer["choice"])]
        children = [self._count, *(each.root for each in self.shown)] if self.shown else []
        if list(self.root.children) != children:
            self.root.children = children
        self._show_count()

    def _report(self) -> None:
        self._show_count()
        self._changed()

    def _show_count(self) -> None:
        sentence = f"For you to decide: {len(self.shown)}, of which {len(self.open)} open."
        self._count.value = f'<strong role="status">{sentence}</strong>'
