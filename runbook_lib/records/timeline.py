"""The runs of a bump in order, with repetitions folded, and their changes and people's decisions in words."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from importlib.resources import files
from typing import Any

from runbook_lib.display import count
from runbook_lib.records.pages.formats import abbreviate, format_value
from runbook_lib.records.status import Predicate, is_preview, outcome_reason, outcome_sentence

#: Kind of effect → the sentence that describes it, and its word for an empty value.
_SENTENCES: Mapping[str, Mapping[str, str]] = tomllib.loads(
    files(__package__).joinpath("effects.toml").read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class TimelineEntry:
    """A run that a person started, and its steps whose outcome is new; a preview has no steps.

    ``unchanged`` names the other steps.  ``repetitions`` are the following runs with the same outcome.
    """

    run: Predicate
    steps: tuple[Predicate, ...] = ()
    unchanged: tuple[str, ...] = ()
    repetitions: list[Predicate] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        """True if the last repetition's sentence has no progress."""
        return outcome_reason(self.repetitions[-1]) == outcome_sentence(self.repetitions[-1])


@dataclass(frozen=True)
class RecordedDecision:
    """A decision, and the person and time of the run that carried it out."""

    decision: str
    reason: str
    by: str
    at: str
    url: str = ""


def entries(runs: Sequence[Predicate]) -> list[TimelineEntry]:
    """Return the runs, oldest first.  A step whose parent is not among them is a separate entry."""
    ids = {run["id"] for run in runs}
    timeline: list[TimelineEntry] = []
    #: The latest outcome of each notebook.
    outcomes: dict[str, tuple[str, str]] = {}
    for top in runs:
        if top.get("parent") in ids:
            continue
        steps = [run for run in runs if run.get("parent") == top["id"] and not is_preview(top)]
        if timeline and _is_repetition(timeline[-1], top, steps, outcomes):
            timeline[-1].repetitions.append(top)
            continue
        news = [run for run in steps if run.get("effects") or outcomes.get(_name(run)) != _outcome(run)]
        names = dict.fromkeys(map(_name, steps))
        for run in news:
            names.pop(_name(run), None)
        timeline.append(TimelineEntry(top, tuple(news), tuple(names)))
        for run in (*steps, top):
            outcomes[_name(run)] = _outcome(run)
    return timeline


def _is_repetition(
    last: TimelineEntry, top: Predicate, steps: Sequence[Predicate], outcomes: Mapping[str, tuple[str, str]]
) -> bool:
    """Return True for a completed run without effects whose outcome, and that of its steps, was seen before."""
    if top["state"] == "running" or any(run.get("effects") for run in (top, *steps)):
        return False
    if (_name(last.run), _outcome(last.run)) != (_name(top), _outcome(top)):
        return False
    return all(outcomes.get(_name(run)) == _outcome(run) for run in steps)


def _name(run: Predicate) -> str:
    return str(run["notebook"]["name"])


def _outcome(run: Predicate) -> tuple[str, str]:
    return run["state"], outcome_reason(run)


def decisions(runs: Sequence[Predicate]) -> list[RecordedDecision]:
    """Return people's decisions, oldest first, each once: exceptions, accepted values, broken and re-enabled tests."""
    unique: dict[tuple[str, str], RecordedDecision] = {}
    for run in runs:
        for decision in (*_exceptions(run), *_broken(run), *_reenabled(run), *_holds(run)):
            unique.setdefault((decision.decision, decision.reason), decision)
    return list(unique.values())


def named_entries(run: Predicate, parameter: str) -> Iterator[tuple[str, str]]:
    """Yield name and reason of each entry in a run's parameter of the form ``name: reason; …``."""
    resolved = (run.get("parameters") or {}).get("resolved") or {}
    for entry in str(resolved.get(parameter) or "").split(";"):
        name, _, reason = map(str.strip, entry.partition(":"))
        if name:
            yield name, reason


def _exceptions(run: Predicate) -> Iterator[RecordedDecision]:
    for entry in run.get("exceptions") or ():
        name = str(entry.get("exception"))
        decision = f"allowed {name}"
        if name.startswith("accept "):
            decision = f"accepted the new values of {name.removeprefix('accept ')}"
            if danger := entry.get("danger"):
                decision += f", a {danger}"
        at = str(entry.get("at") or run["started"])
        yield RecordedDecision(decision, str(entry.get("reason")), person(run), at)


def _broken(run: Predicate) -> Iterator[RecordedDecision]:
    """Yield the tests that a run quarantined, with their issues."""
    for entry in (run.get("inputs") or {}).get("quarantined") or ():
        decision = f"quarantined {entry['test']} as broken, with the issue #{entry['issue']}"
        yield RecordedDecision(decision, entry["reason"], person(run), str(run["started"]), entry["url"])


def _reenabled(run: Predicate) -> Iterator[RecordedDecision]:
    """Yield the tests that a run re-enabled."""
    for entry in (run.get("inputs") or {}).get("reenabled") or ():
        yield RecordedDecision(f"re-enabled {entry['test']}", entry["reason"], person(run), str(run["started"]))


def _holds(run: Predicate) -> Iterator[RecordedDecision]:
    """Yield the holds that a person has put on the merge."""
    if not is_preview(run):
        for name, reason in named_entries(run, "hold"):
            yield RecordedDecision(f"put {name} on hold", reason, person(run), str(run["started"]))


def person(run: Predicate) -> str:
    """Return the person who ran it, as named by git and the CI service, else the machine's user."""
    who: Mapping[str, Any] = run.get("who") or {}
    ci = who.get("ci") or {}
    name = str(who.get("git") or f"{who.get('user', 'unknown')} on {who.get('host', 'unknown')}")
    return f"{name}, by {ci.get('service')} of {ci.get('actor')}" if ci else name


def describe_effect(effect: Mapping[str, Any]) -> str:
    """Return a sentence for one effect, with the values before and after it."""
    kind, target = format_value(effect.get("effect")), format_value(effect.get("target"))
    number, _, rest = target.partition(" ")
    lines = ""
    if kind == "pull request" and rest == "text":
        kind = "pull request text"
        lines = _changed_lines(effect.get("before"), effect.get("after"))
    elif kind == "label" and not effect.get("after"):
        kind = "label removed"
    sentence = _SENTENCES.get(kind, _SENTENCES["other"])
    values = {"kind": kind, "target": target, "number": number, "rest": rest, "lines": lines}
    for name in ("before", "after"):
        values[name] = abbreviate(effect.get(name)) or sentence.get("nothing", "")
    return sentence["text"].format(**values)


def _changed_lines(before: object, after: object) -> str:
    """Return the numbers of added and removed lines, in words."""
    old = format_value(before).split("\n")
    new = format_value(after).split("\n")
    blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    unchanged = sum(block.size for block in blocks)
    return f"{count(len(new) - unchanged, 'line')} added, {len(old) - unchanged} removed"
