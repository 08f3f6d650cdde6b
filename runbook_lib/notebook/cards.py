"""Decision cards: each decision about a bump that only a person can make, with the facts from the records.

The form and ``runbook review`` show the same cards, and write the answers into the same file of decisions.
"""

import base64
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runbook_lib import notebooks
from runbook_lib.decisions import DANGERS, Decision, Decisions, Kind, Seen
from runbook_lib.record import decisions, run_file
from runbook_lib.record.archive import read_records
from runbook_lib.record.status import with_steps

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
_MOST_FILES = 200


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

    ``plot`` is an SVG in base64, and ``held`` is the reason for which a person put the merge on hold because of these
    values.
    """

    question: Mapping[str, Any]
    options: tuple[Option, ...]
    plot: str = ""
    held: str = ""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What was measured."""
        return self.question.get("facts") or {}

    @property
    def details(self) -> Iterator[tuple[str, str]]:
        """What else is known, with labels."""
        facts = self.facts
        judged = str(facts.get("judged", self.question.get("why", "")))
        if judged and facts.get("numbers") and judged.rstrip(".") != str(facts["numbers"]).rstrip("."):
            yield "Judged", judged
        for label in ("before", "history", "advice"):
            if facts.get(label):
                yield label.capitalize(), str(facts[label])
        yield from (facts.get("details") or {}).items()

    @property
    def lines(self) -> list[str]:
        """The lines of the log that matter."""
        return [_STAMP.sub("", str(line)) for line in self.facts.get("lines", ())]

    @property
    def log(self) -> str:
        """The address of the log."""
        return str(self.facts.get("log", ""))

    @property
    def title(self) -> str:
        """The subject of the question."""
        return str(self.question["subject"])

    @property
    def id(self) -> str:
        """The kind and the subject of the question."""
        return f"{self.question['question']}:{self.title}"

    @property
    def headline(self) -> str:
        """The numbers, or else why it is asked."""
        return str(self.facts.get("numbers") or self.question.get("why", ""))

    @property
    def danger(self) -> str:
        """The word that must be typed to accept it; empty if it is not dangerous."""
        return str(self.facts.get("danger", ""))

    @property
    def danger_in_words(self) -> str:
        """The danger, as in “the divergence of a file”."""
        return DANGERS.get(self.danger, "")

    @property
    def files(self) -> tuple[str, ...]:
        """The files of a group."""
        return tuple(map(str, self.facts.get("files", ())))[:_MOST_FILES]

    @property
    def command(self) -> str:
        """The command that searches for the change in the image that did it."""
        return str(self.facts.get("search", ""))

    @property
    def seen(self) -> Seen | None:
        """The evidence that an answer is bound to."""
        key, run, attempt = (self.facts.get(name) for name in ("key", "run", "attempt"))
        return Seen(str(key), int(run or 0), int(attempt or 0)) if key else None

    @property
    def answer(self) -> dict[str, str]:
        """The answer that the card begins with."""
        return {"choice": "hold", "reason": self.held} if self.held else {}

    def option(self, choice: str) -> Option | None:
        """Return the option of a choice; None if there is none."""
        return next((option for option in self.options if option.choice == choice), None)


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
    if not bump.is_dir():
        return ()
    newest = {run["notebook"]["name"]: run for run in with_steps(read_records(bump).readable)}
    known, cards = decisions.read(file or bump / decisions.NAME), {}
    for name, run in newest.items():
        for question in run.get("decisions") or () if name != notebooks.BUMP else ():
            if offers or question["question"] != "reenable":
                card = make(question, bump / run["id"], known)
                cards[card.id] = card
    return tuple(sorted(cards.values(), key=lambda card: (not card.danger, not card.files, card.id)))


def make(question: Mapping[str, Any], folder: Path | None = None, known: Decisions | None = None) -> Card:
    """Return the card of a question; ``folder`` is that of the record with the plot, ``known`` what was decided."""
    card = Card(question, ())
    facts, kind, plot = card.facts, str(question["question"]), str(card.facts.get("plot", ""))
    test = card.title if kind == "broken" else str(facts.get("test", ""))
    subjects = {"broken": test, "rerun": test, "search": card.command and card.title}
    reasons = {kind: str(question.get("suggestion", "")), "search": "bisect-image is searching for the cause"}
    options = []
    for choice in _CHOICES.get(kind, ()):
        if subject := subjects.get(choice, card.title):
            options.append(Option(choice, *_OPTIONS[choice], subject, reasons.get(choice, "")))
    svg = run_file.text(folder / plot) if folder is not None and _PLOT.fullmatch(plot) else ""
    hold = known.decided("hold", card.title, card.seen) if known and card.seen else None
    return replace(
        card, options=tuple(options), plot=base64.b64encode(svg.encode()).decode(), held=hold.reason if hold else ""
    )  # fmt: skip
