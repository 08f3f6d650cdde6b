"""Decision cards: each decision about a bump that only a person can make, with the facts from the records.

The forms and ``runbook review`` show the same cards, and write the answers into the same file of decisions.
"""

import base64
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runbook_lib import notebooks
from runbook_lib.decisions import DANGERS, KINDS, Decision, Decisions, Kind, Seen
from runbook_lib.record import run_file
from runbook_lib.records import decisions, run_view

_LABELS = {
    "accept": "Accept", "broken": "Broken: issue and quarantine", "rerun": "Run again", "hold": "Hold: do not merge",
    "search": "Search for the cause (bisect-image)", "reenable": "Re-enable", "allow": "Confirm",
}  # fmt: skip
#: The choices and their keys, by the kind of the question.
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "accept": ("accept", "broken", "rerun", "hold", "search"),
    "broken": ("broken", "rerun", "hold", "search"),
    "reenable": ("reenable",),
    "allow": ("allow", "hold"),
}
_KEYS = {"accept": "a", "allow": "a", "broken": "b", "rerun": "r", "hold": "h", "search": "s", "reenable": "e"}
_PLOT = re.compile(r"(?:[0-9a-z-]{1,40}\.(?:[0-9]\.)?)?plot-[0-9]{1,3}\.svg")
#: The time at which the runner received a line of a log.
_STAMP = re.compile(r"^\d{4}-\d\d-\d\dT[0-9:.]{8,20}Z ")
_MOST_LINES, _MOST_FILES = 12, 200


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
    """A question.  ``danger`` must be typed to accept it, and ``seen`` is the evidence that an answer is bound to.

    ``plot`` is an SVG in base64, ``files`` are those of a group, and ``lines`` those of the log that matter.
    ``held`` is the reason for which a person put the merge on hold because of these values.
    """

    id: str
    title: str
    headline: str
    details: tuple[tuple[str, str], ...]
    options: tuple[Option, ...]
    danger: str = ""
    lines: tuple[str, ...] = ()
    log: str = ""
    plot: str = ""
    files: tuple[str, ...] = ()
    command: str = ""
    seen: Seen | None = None
    held: str = ""

    @property
    def danger_in_words(self) -> str:
        """The danger, as in “the divergence of a file”."""
        return DANGERS.get(self.danger, "")

    def option(self, choice: str) -> Option | None:
        """Return the option of a choice; None if there is none."""
        return next((option for option in self.options if option.choice == choice), None)

    @property
    def answer(self) -> dict[str, str]:
        """The answer that the card begins with."""
        return {"choice": "hold", "reason": self.held} if self.held else {}


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


def from_questions(
    questions: Iterable[Mapping[str, Any]], folder: Path | None = None, known: Decisions | None = None, *,
    offers: bool = False,
) -> tuple[Card, ...]:  # fmt: skip
    """Return the card of each question of a run; with ``offers`` also of those that nothing waits for.

    ``folder`` is that of the record with the plots, ``known`` are the decisions that have been made.
    """
    asked = [question for question in questions if "question" in question]
    if not offers:
        asked = [question for question in asked if question["question"] != "reenable"]
    return tuple(_card(question, folder, known or Decisions()) for question in asked)


def read(bump: Path, file: Path | None = None, *, offers: bool = False) -> tuple[Card, ...]:
    """Return the cards of a bump's folder: the questions that the newest run of each step asks.

    ``file`` is the file of decisions, if it is not the bump's own.  Dangerous ones come first, then groups, values and
    tests; for ``offers`` see above.
    """
    newest = run_view.newest(bump)
    triage, known = newest.get(notebooks.BROKEN_TESTS), decisions.read(file or bump / decisions.NAME)
    cards: dict[str, Card] = {}
    for name, run in newest.items():
        if name != notebooks.BUMP:
            for card in from_questions(run.decisions, run.folder, known, offers=offers):
                cards[card.id] = _with_triage(card, triage)
    return tuple(sorted(cards.values(), key=lambda card: (not card.danger, not card.files, card.id)))


def _card(question: Mapping[str, Any], folder: Path | None, known: Decisions) -> Card:
    kind, name = str(question["question"]), str(question["subject"])
    facts: Mapping[str, Any] = question.get("facts") or {}
    suggestion = str(question.get("suggestion", ""))
    test = name if kind == "broken" else str(facts.get("test", ""))
    command = str(facts.get("search", ""))
    subjects = {"broken": test, "rerun": test}
    options = []
    for choice in _CHOICES.get(kind, ()):
        subject = subjects.get(choice, name)
        reason = suggestion if choice == kind else ""
        if choice == "search":
            reason = "bisect-image is searching for the cause" if command else ""
        if subject and (choice != "search" or command):
            target = "hold" if choice == "search" else choice
            made_into = next(each for each in KINDS if each == target)
            options.append(Option(choice, _KEYS[choice], _LABELS[choice], made_into, subject, reason))
    judged, plot = str(facts.get("judged", question.get("why", ""))), ""
    if folder is not None and _PLOT.fullmatch(str(facts.get("plot", ""))):
        plot = base64.b64encode(run_file.text(folder / facts["plot"]).encode()).decode()
    seen = None
    if key := str(facts.get("key", "")):
        seen = Seen(key, int(facts.get("run") or 0), int(facts.get("attempt") or 0))
    hold = known.decided("hold", name, seen) if seen else None
    return Card(
        f"{kind}:{name}", name, str(facts.get("numbers") or question.get("why", "")),
        tuple(_details(facts, judged)), tuple(options), str(facts.get("danger", "")),
        plot=plot, files=tuple(map(str, facts.get("files", ())))[:_MOST_FILES], command=command, seen=seen,
        held=hold.reason if hold else "",
    )  # fmt: skip


def _details(facts: Mapping[str, Any], judged: str) -> Iterator[tuple[str, str]]:
    if judged and facts.get("numbers") and judged.rstrip(".") != str(facts["numbers"]).rstrip("."):
        yield "Judged", judged
    for label in ("before", "history", "advice"):
        if facts.get(label):
            yield label.capitalize(), str(facts[label])


def _with_triage(card: Card, triage: run_view.RunView | None) -> Card:
    """Add triage's facts about the card's test: class, advice, base branch, history and log lines."""
    tests = {option.subject for option in card.options if option.choice in ("broken", "rerun")}
    if triage is None or not tests:
        return card
    for row in run_file.rows(triage.file("failures.csv")):
        test = f"{row.get('test') or row.get('job', '').partition(' - ')[0]}@{row.get('platform', '')}"
        if test not in tests:
            continue
        labels = {
            "class": "Class", "on the base branch": "On the base branch", "history": "History",
            "flaky before": "Flaky before", "next": "Advice",
        }  # fmt: skip
        details = [(label, row[column]) for column, label in labels.items() if row.get(column)]
        evidence = run_file.rows(triage.file("evidence.csv"))
        job = (row.get("job"), row.get("platform"))
        lines = [_STAMP.sub("", line["text"]) for line in evidence if (line.get("job"), line.get("platform")) == job]
        known = {text for _, text in details}
        own = [(label, text) for label, text in card.details if text not in known]
        return replace(card, details=(*own, *details), lines=tuple(lines[-_MOST_LINES:]), log=row.get("url", ""))
    return card
