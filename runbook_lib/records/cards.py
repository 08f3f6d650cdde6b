"""Decision cards: each decision about a bump that only a person can make, with the facts from the records.

The forms and ``runbook review`` show the same cards, and turn the answers into the same parameters of the next run.
"""

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runbook_lib import notebooks
from runbook_lib.decisions import Decision
from runbook_lib.record import run_file
from runbook_lib.record.archive import read_records
from runbook_lib.records import decisions, run_view
from runbook_lib.text.decisions import WORDS, confirmed

#: The parameters of the form ``name: reason; …``, which contain decisions.
PARAMETERS = ("accept", "broken", "reenable", "rerun", "hold")
#: The parameters of the bump notebook with which a person decides.
BUMP_PARAMETERS = ("accept", "broken", "rerun", "hold", "decisions")
_LABELS = {
    "accept": "Accept", "broken": "Broken: issue and quarantine", "rerun": "Run again", "hold": "Hold: do not merge",
    "search": "Search for the cause (bisect-image)", "reenable": "Re-enable", "allow": "Confirm",
}  # fmt: skip
#: The choices and their keys, by the decision's parameter.
_CHOICES = {
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
    """A choice, and the parameter entry ``name: reason`` that it becomes; ``reason`` is prefilled from facts."""

    choice: str
    key: str
    label: str
    parameter: str
    name: str
    reason: str = ""


@dataclass(frozen=True)
class Card:
    """A decision.  ``word`` must be typed to accept it; ``earlier`` is the earlier decision on the same value.

    ``plot`` is an SVG in base64, ``files`` are those of a group, and ``lines`` those of the log that matter.
    """

    id: str
    title: str
    headline: str
    details: tuple[tuple[str, str], ...]
    options: tuple[Option, ...]
    danger: str = ""
    word: str = ""
    lines: tuple[str, ...] = ()
    log: str = ""
    plot: str = ""
    files: tuple[str, ...] = ()
    command: str = ""
    key: str = ""
    earlier: Mapping[str, str] | None = None

    @property
    def is_held(self) -> bool:
        """True if a person has put the merge on hold because of this value."""
        return self.earlier is not None and self.earlier["choice"] == "hold"

    def option(self, choice: str) -> Option | None:
        """Return the option of a choice; None if there is none."""
        return next((option for option in self.options if option.choice == choice), None)


#: By card ID: its ``choice``, the ``reason``, and the word ``typed`` to confirm it.
Answers = Mapping[str, Mapping[str, str]]


def entries(cards: Iterable[Card], answers: Answers) -> dict[str, dict[str, str]]:
    """Return the reasons in the answers, by parameter and name.  That for a dangerous value begins with its word."""
    result: dict[str, dict[str, str]] = {}
    for card in cards:
        answer = answers.get(card.id, {})
        if option := card.option(answer.get("choice", "")):
            reason = answer.get("reason", "")
            if option.choice == "accept":
                reason = confirmed(reason, card.danger)
            result.setdefault(option.parameter, {})[option.name] = reason
    return result


def problem(card: Card, answer: Mapping[str, str]) -> str:
    """Return a sentence on the missing parts of an answer; empty if it is complete or there is no answer."""
    option = card.option(answer.get("choice", ""))
    if option is None:
        return ""
    if option.parameter in PARAMETERS and not answer.get("reason", "").replace(";", " ").split():
        return f"Give a reason for {option.name}."
    if option.choice == "accept" and card.word and answer.get("typed", "").strip().lower() != card.word:
        return f"Type {card.word} to accept the {card.danger} of {option.name}."
    return ""


def from_decisions(
    questions: Iterable[Mapping[str, Any]], parameters: Iterable[str], folder: Path | None = None
) -> tuple[Card, ...]:
    """Return the card of each decision that a notebook with these parameters accepts.

    ``folder`` is that of the record with the plots.
    """
    taken = {*parameters, "search"} | ({"allow"} if "decisions" in parameters else set())
    result = []
    for decision in questions:
        card = _card(decision, folder)
        options = tuple(option for option in card.options if {option.choice, option.parameter} <= taken)
        if options and decision["parameter"] in taken:
            result.append(replace(card, options=options))
    return tuple(result)


def read(bump: Path, parameters: Iterable[str]) -> tuple[Card, ...]:
    """Return the cards of a bump's folder: the decisions that the newest run of each step requests.

    Dangerous ones come first, then groups, values and tests.
    """
    newest = run_view.newest(bump)
    triage = newest.get(notebooks.BROKEN_TESTS)
    taken, earlier = list(parameters), _earlier(bump)
    result = []
    for name, run in newest.items():
        if name != notebooks.BUMP:
            for card in from_decisions(run.decisions, taken, run.folder):
                result.append(replace(_with_triage(card, triage), earlier=earlier.get((card.id, card.key))))
    return tuple(sorted(result, key=lambda card: (not card.danger, not card.files, card.id)))


def _card(decision: Mapping[str, Any], folder: Path | None) -> Card:
    parameter, name = str(decision["parameter"]), str(decision["name"])
    facts: Mapping[str, Any] = decision.get("facts") or {}
    suggestion = str(decision.get("suggestion", ""))
    test = name if parameter == "broken" else str(facts.get("test", ""))
    command, danger = str(facts.get("search", "")), str(facts.get("danger", ""))
    names = {"broken": test, "rerun": test}
    options = []
    for choice in _CHOICES.get(parameter, (parameter,)):
        entry = names.get(choice, name) or (name if choice == parameter else "")
        reason = suggestion if choice == parameter else ""
        if choice == "search":
            reason = "bisect-image is searching for the cause" if command else ""
        if entry and (choice != "search" or command):
            target = "hold" if choice == "search" else choice
            options.append(Option(choice, _KEYS.get(choice, "x"), _LABELS.get(choice, choice), target, entry, reason))
    judged, plot = str(facts.get("judged", decision.get("why", ""))), ""
    if folder is not None and _PLOT.fullmatch(str(facts.get("plot", ""))):
        plot = base64.b64encode(run_file.text(folder / facts["plot"]).encode()).decode()
    return Card(
        f"{parameter}:{name}", name, str(facts.get("numbers") or decision.get("why", "")),
        tuple(_details(facts, judged)), tuple(options), danger, WORDS.get(danger, ""),
        plot=plot, files=tuple(map(str, facts.get("files", ())))[:_MOST_FILES], command=command,
        key=str(facts.get("key", "")),
    )  # fmt: skip


def _details(facts: Mapping[str, Any], judged: str) -> Iterator[tuple[str, str]]:
    if judged and facts.get("numbers") and judged.rstrip(".") != str(facts["numbers"]).rstrip("."):
        yield "Judged", judged
    for label in ("history", "advice"):
        if facts.get(label):
            yield label.capitalize(), str(facts[label])


def _with_triage(card: Card, triage: run_view.RunView | None) -> Card:
    """Add triage's facts about the card's test: class, advice, base branch, history and log lines."""
    tests = {option.name for option in card.options if option.choice in ("broken", "rerun")}
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


def _earlier(bump: Path) -> dict[tuple[str, str], Mapping[str, str]]:
    """Return the decisions of earlier runs, by card ID and the fingerprint of the value."""
    keys: dict[str, str] = {}
    options: dict[tuple[str, str], tuple[str, str]] = {}
    result: dict[tuple[str, str], Mapping[str, str]] = {}
    for run in read_records(bump).readable if bump.is_dir() else ():
        resolved = (run.get("parameters") or {}).get("resolved") or {}
        if "hold" in resolved:  # a hold ends with the first run without it
            result = {key: answer for key, answer in result.items() if answer["choice"] != "hold"}
        for parameter in PARAMETERS:
            for name, reason in named_entries(run, parameter):
                if (parameter, name) in options:
                    owner, choice = options[parameter, name]
                    result[owner, keys[owner]] = {"choice": choice, "reason": reason}
        open_decisions = [decision for decision in run.get("decisions", ()) if "parameter" in decision]
        for card in from_decisions(open_decisions, PARAMETERS):
            if not card.key:
                continue
            keys[card.id] = card.key
            for option in card.options:
                if option.choice != "search":
                    options[option.parameter, option.name] = (card.id, option.choice)
    return result


def named_entries(run: Mapping[str, Any], parameter: str) -> Iterator[tuple[str, str]]:
    """Yield name and reason of each entry in a run's parameter of the form ``name: reason; …``."""
    resolved = (run.get("parameters") or {}).get("resolved") or {}
    for entry in str(resolved.get(parameter) or "").split(";"):
        name, _, reason = map(str.strip, entry.partition(":"))
        if name:
            yield name, reason


def format_entries(reasons: Mapping[str, str]) -> str:
    """Return the parameter value for decisions by name.  A ``;`` in a reason would end the entry, so becomes ``,``."""
    return "; ".join(f"{name}: {' '.join(reason.replace(';', ',').split())}" for name, reason in reasons.items())


def parameters(cards: Sequence[Card], answers: Answers) -> dict[str, str]:
    """Return the parameters of the next run that carry out the answers."""
    return {name: format_entries(reasons) for name, reasons in entries(cards, answers).items() if name in PARAMETERS}


def save(file: Path, cards: Sequence[Card], answers: Answers) -> None:
    """Write the exceptions among the answers into the file of decisions."""
    reasons = entries(cards, answers).get("allow", {})
    if reasons:
        decided = [Decision("allow", name, reason or "its diff was read") for name, reason in reasons.items()]
        decisions.add(file, decided)
