"""Decision cards: each decision about a bump that only a person can make, with the facts from the records.

The form and ``runbook review`` show the same cards, and write the answers into the same file of decisions.
"""

import base64
import html
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runbook_lib import display
from runbook_lib.decisions import DANGERS, Decision, Decisions, Kind, Seen
from runbook_lib.display import View
from runbook_lib.record import decisions, run_file
from runbook_lib.record.archive import read_records

#: The choices of each kind of question.
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "accept": ("accept", "broken", "rerun", "hold", "search"),
    "broken": ("broken", "rerun", "hold", "search"),
    "reenable": ("reenable",),
    "allow": ("allow", "hold"),
}
#: The key, the label and the kind of decision of each choice.
_OPTIONS: Mapping[str, tuple[str, str, Kind]] = {
    "accept": ("a", "Accept", "accept"),
    "allow": ("a", "Confirm", "allow"),
    "broken": ("b", "Broken: issue and quarantine", "broken"),
    "rerun": ("r", "Run again", "rerun"),
    "hold": ("h", "Hold: do not merge", "hold"),
    "search": ("s", "Search for the cause (bisect-image)", "hold"),
    "reenable": ("e", "Re-enable", "reenable"),
}
_PLOT = re.compile(r"(?:[0-9a-z-]{1,40}\.(?:[0-9]\.)?)?plot-[0-9]{1,3}\.svg")
#: The time at which the runner received a line of a log.
_STAMP = re.compile(r"^\d{4}-\d\d-\d\dT[0-9:.]{8,20}Z ")
_MAX_FILES = 200


@dataclass(frozen=True)
class Option:
    """A choice, and the kind and subject of the decision that it becomes; ``reason`` is prefilled from facts."""

    choice: str
    key: str
    label: str
    kind: Kind
    subject: str
    reason: str = ""


@dataclass(frozen=True)
class Card:
    """A question of a run, as its record has it, with the decisions that answer it.

    ``plot`` is an SVG in base64, and ``answer`` what the file of decisions has on these values: a hold, or what no run
    has used yet.
    """

    question: Mapping[str, Any]
    plot: str = ""
    answer: Mapping[str, str] = field(default_factory=dict)

    @property
    def facts(self) -> Mapping[str, Any]:
        """The facts of the question, such as what was measured."""
        return self.question.get("facts") or {}

    @property
    def title(self) -> str:
        """The subject of the question."""
        return str(self.question["subject"])

    @property
    def id(self) -> str:
        """The kind and the subject of the question."""
        return f"{self.question['kind']}:{self.title}"

    @property
    def danger(self) -> str:
        """The word that must be typed to accept it; empty if it is not dangerous."""
        return str(self.facts.get("danger", ""))

    @property
    def danger_in_words(self) -> str:
        """The danger, as in “the divergence of a file”."""
        return DANGERS.get(self.danger, "")

    @property
    def seen(self) -> Seen | None:
        """The evidence that an answer is bound to."""
        key, run, attempt = (self.facts.get(name) for name in ("key", "run", "attempt"))
        return Seen(str(key), int(run or 0), int(attempt or 0)) if key else None

    @property
    def options(self) -> tuple[Option, ...]:
        """The choices, and the decisions that they become."""
        kind = str(self.question["kind"])
        test = self.title if kind == "broken" else str(self.facts.get("test", ""))
        subjects = {"broken": test, "rerun": test, "search": self.facts.get("search") and self.title}
        reasons = {kind: str(self.question.get("suggestion", "")), "search": "bisect-image is searching for the cause"}
        options = []
        for choice in _CHOICES.get(kind, ()):
            if subject := subjects.get(choice, self.title):
                options.append(Option(choice, *_OPTIONS[choice], subject, reasons.get(choice, "")))
        return tuple(options)

    def option(self, choice: str) -> Option | None:
        """Return the option of a choice; None if there is none."""
        return next((option for option in self.options if option.choice == choice), None)


def evidence(card: Card) -> View:
    """Return the evidence: the numbers, the plot, what is known, and the lines of the log that matter."""
    facts, why = card.facts, str(card.question.get("why", ""))
    title = f"{card.title} ⚠ {card.danger_in_words}" if card.danger else card.title
    headline = str(facts.get("numbers") or why)
    shown = View(f"<h4>{html.escape(title)}</h4>", title)
    shown += View(f"<p><strong>{display.linked(headline)}</strong></p>", headline)
    if card.plot:
        means = "each file, new to old" if facts.get("files") else "old and new by step, with what is expected"
        alt = html.escape(f"{card.title}: {means}")
        shown += View(f'<img src="data:image/svg+xml;base64,{card.plot}" alt="{alt}">', "")
    judged = str(facts.get("judged", why)) if facts.get("numbers") else ""
    known = {} if judged.rstrip(".") == headline.rstrip(".") else {"Judged": judged}
    known |= {label.capitalize(): str(facts.get(label, "")) for label in ("before", "history", "advice")}
    known |= facts.get("details") or {}
    shown += display.notes(f"{label}: {text}" for label, text in known.items() if text)
    if lines := [_STAMP.sub("", str(line)) for line in facts.get("lines", ())]:
        log = "\n".join(lines)
        shown += display.note(f"The lines of the log that matter: {facts.get('log', '')}")
        box = f'<div class="runbook-log" role="group" aria-label="log" tabindex="0"><pre>{html.escape(log)}</pre></div>'
        shown += View(box, log)
    if files := list(map(str, facts.get("files", ())))[:_MAX_FILES]:
        shown += _folded(f"{len(files)} files", "\n".join(files))
    if search := str(facts.get("search", "")):
        shown += _folded("Find the change in the image that did it", search)
    if option := card.option(card.answer.get("choice", "")):
        shown += display.note(f"Decided: {option.label}: “{card.answer['reason']}”")
    return shown


def _folded(summary: str, text: str) -> View:
    markup = f'<details><summary>{summary}</summary><pre tabindex="0">{html.escape(text)}</pre></details>'
    return View(markup, f"{summary}:\n{text}")


#: By card ID: its ``choice``, the ``reason``, and the danger ``typed`` to confirm it.
Answers = Mapping[str, Mapping[str, str]]


def decided(card: Card, answer: Mapping[str, str]) -> Decision | None:
    """Return the decision of an answer; None without one.  It is bound to what the card shows, if it is about that."""
    option = card.option(answer.get("choice", ""))
    if option is None:
        return None
    confirm = card.danger if option.choice == "accept" else ""
    is_bound = option.kind == "hold" or card.id == f"{option.kind}:{option.subject}"
    reason = " ".join(answer.get("reason", "").split())
    return Decision(option.kind, option.subject, reason, confirm, seen=card.seen if is_bound else None)


def save(file: Path, cards: Iterable[Card], answers: Answers, removed: Collection[str] = ()) -> None:
    """Write the answers into the file of decisions, in place of the cards' other choices.

    ``removed`` are the cards, by ID, whose answers were taken back.  Raises RunbookError if it cannot be written.
    """
    made: list[Decision] = []
    instead_of: list[tuple[Kind, str]] = []
    for card in cards:
        decision = decided(card, answers.get(card.id, {}))
        if decision or card.id in removed:
            instead_of += ((option.kind, option.subject) for option in card.options)
        if decision:
            made.append(decision)
    if instead_of:
        decisions.add(file, made, instead_of)


def problem(card: Card, answer: Mapping[str, str]) -> str:
    """Return a sentence on the missing parts of an answer; empty if it is complete or there is no answer."""
    option = card.option(answer.get("choice", ""))
    if option is None:
        return ""
    if not answer.get("reason", "").split():
        return f"Give a reason for {option.subject}."
    if option.choice == "accept" and card.danger and answer.get("typed", "").strip().lower() != card.danger:
        return f"Type {card.danger} to accept the {card.danger_in_words} of {option.subject}."
    return ""


def read(bump: Path, file: Path | None = None, *, offers: bool = False) -> tuple[Card, ...]:
    """Return the cards of a bump's folder: the questions that the newest run of each step asks.

    ``file`` is the file of decisions, if it is not the bump's own.  With ``offers`` quarantined tests can be
    re-enabled, for which nothing waits.  Dangerous questions come first, then groups, values and tests.
    """
    told = ((run, step) for run in read_records(bump).readable for step in run["steps"])
    newest = {step["name"]: (run, step) for run, step in told if step["state"] != "not run"}
    known, cards = decisions.read(file or bump / run_file.DECISIONS), {}
    for run, step in newest.values():
        for question in step["decisions"]:
            if offers or question["kind"] != "reenable":
                card = _card(question, bump / run["id"], known)
                cards[card.id] = card
    return tuple(sorted(cards.values(), key=lambda card: (not card.danger, not card.facts.get("files"), card.id)))


def _card(question: Mapping[str, Any], folder: Path, known: Decisions) -> Card:
    """Return the card of a question; ``folder`` is that of the record with the plot, ``known`` what was decided."""
    card = Card(question)
    plot = str(card.facts.get("plot", ""))
    svg = run_file.text(folder / plot) if _PLOT.fullmatch(plot) else ""
    return Card(question, base64.b64encode(svg.encode()).decode(), _answer(card, known))


def _answer(card: Card, known: Decisions) -> Mapping[str, str]:
    """Return the complete answer that the file of decisions has on the values of a card; empty if there is none."""
    for option in card.options:
        entry = known.decided(option.kind, option.subject, card.seen) if card.seen else None
        if entry:
            answer = {"choice": option.choice, "reason": entry.reason, "typed": entry.confirm}
            if not problem(card, answer):
                return answer
    return {}
