"""The runs of a bump as a person retells them: in order, repetitions folded, and what they changed in words."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

from runbook_lib.display import count
from runbook_lib.records.pages.formats import abbreviate, format_value
from runbook_lib.records.status import Run, is_preview, settled

#: A test's issue among those that a check lists: ``gpt/case@dgx_h100 (dev): #11``.
_ISSUE = r"{case}(?:@\S{{1,200}})? \([^)]{{0,200}}\): #(\d{{1,12}})"


@dataclass(frozen=True)
class Entry:
    """A run that a person started; ``steps`` are those of its steps that have something new to tell, of a preview none.

    ``as_before`` names the others, which found what they had found before.  ``again`` are the runs right after it that
    found the very same.
    """

    run: Run
    steps: tuple[Run, ...] = ()
    as_before: tuple[str, ...] = ()
    again: list[Run] = field(default_factory=list)


@dataclass(frozen=True)
class Decision:
    """Something that a person decided: ``by`` and ``at`` are those of the run that carried it out."""

    what: str
    reason: str
    by: str
    at: str
    url: str = ""


def entries(runs: Sequence[Run]) -> list[Entry]:
    """The runs, oldest first.  A run whose parent is not among them stands by itself."""
    ids = {run["id"] for run in runs}
    own = [run for run in runs if run.get("parent") not in ids]
    found: list[Entry] = []
    known: dict[str, tuple[str, str]] = {}
    for top in own:
        steps = [run for run in runs if run.get("parent") == top["id"] and not is_preview(top)]
        if found and not _changed([top, *steps]) and _same(found[-1], top, steps, known):
            found[-1].again.append(top)
            continue
        new = [run for run in steps if run.get("effects") or known.get(_name(run)) != _outcome(run)]
        told = {_name(run) for run in new}
        as_before = tuple(dict.fromkeys(_name(run) for run in steps if _name(run) not in told))
        found.append(Entry(top, tuple(new), as_before))
        known |= {_name(run): _outcome(run) for run in (*steps, top)}
    return found


def _same(last: Entry, top: Run, steps: Sequence[Run], known: Mapping[str, tuple[str, str]]) -> bool:
    """Whether a run without effects only repeats the one before it."""
    return (
        (_name(last.run), *_outcome(last.run)) == (_name(top), *_outcome(top))
        and top["state"] != "running"
        and all(known.get(_name(run)) == _outcome(run) for run in steps)
    )


def _changed(runs: Sequence[Run]) -> bool:
    return any(run.get("effects") for run in runs)


def _name(run: Run) -> str:
    return str(run["notebook"]["name"])


def _outcome(run: Run) -> tuple[str, str]:
    return run["state"], settled(run)


def decisions(runs: Sequence[Run]) -> list[Decision]:
    """What people decided, oldest first, each once: exceptions, accepted values, and tests called broken."""
    found: dict[tuple[str, str], Decision] = {}
    issues = {
        str(effect.get("target")): str(effect.get("url"))
        for run in runs
        for effect in run.get("effects") or ()
        if effect.get("effect") == "issue"
    }
    for run in runs:
        for decision in (*_allowed(run), *_broken(run, issues)):
            found.setdefault((decision.what, decision.reason), decision)
    return list(found.values())


def _allowed(run: Run) -> list[Decision]:
    by = person(run)
    return [
        Decision(_exception(str(it.get("exception"))), str(it.get("reason")), by, str(it.get("at") or run["started"]))
        for it in run.get("exceptions") or ()
    ]


def _exception(name: str) -> str:
    if name.startswith("accept "):
        return f"accepted the new values of {name.removeprefix('accept ')}"
    return f"allowed {name}"


def _broken(run: Run, issues: Mapping[str, str]) -> list[Decision]:
    """The tests that a step put out of CI's way, with the issue that its own check names."""
    given = str(((run.get("parameters") or {}).get("resolved") or {}).get("broken") or "")
    if not given or run["state"] not in ("done", "waiting") or not run.get("effects"):
        return []
    told = " ".join(str(check.get("detail")) for check in run.get("checks") or ())
    found = []
    for entry in given.split(";"):
        name, _, reason = (part.strip() for part in entry.partition(":"))
        case = name.partition("@")[0]
        match = re.search(_ISSUE.format(case=re.escape(case)), told) if case else None
        if match is not None:
            issue = f"#{match[1]}"
            what = f"put {name} out of CI's way as broken, with the issue {issue}"
            found.append(Decision(what, reason, person(run), str(run["started"]), issues.get(issue, "")))
    return found


def person(run: Run) -> str:
    """Who ran it, as git and a CI service know them; else the user of the machine."""
    who: Mapping[str, Any] = run.get("who") or {}
    ci = who.get("ci") or {}
    by = str(who.get("git") or f"{who.get('user', 'unknown')} on {who.get('host', 'unknown')}")
    return f"{by}, by {ci.get('service')} of {ci.get('actor')}" if ci else by


def told(effect: Mapping[str, Any]) -> str:
    """One change of the world as a sentence, with what was before and is after it."""
    target = format_value(effect.get("target"))
    before, after = abbreviate(effect.get("before")), abbreviate(effect.get("after"))
    number, _, rest = target.partition(" ")
    match effect.get("effect"):
        case "edit":
            return f"Edited {target}: {before or 'a new file'} → {after}."
        case "branch":
            return f"Made the branch {target} at {after}."
        case "commit":
            return f"Committed {after} on {target}, after {before}."
        case "merge":
            return f"Merged the base into {target}: {before} → {after}."
        case "push":
            return f"Pushed to {target}: {before or 'nothing there'} → {after}."
        case "pull request" if rest == "text":
            return f"Changed the text of {number}: {_lines(effect.get('before'), effect.get('after'))}."
        case "pull request":
            return f"Opened the pull request {target}: {after}."
        case "label":
            return f"Set the label {rest} on {number}." if effect.get("after") else f"Took {rest} off {number}."
        case "comment":
            return f"Commented on {target}: {after}"
        case "issue":
            return f"Opened the issue {target}: {after}."
        case "rerun":
            return f"Had {target} run again: attempt {after}, after {before}."
        case "reset":
            return f"Took {target} back: {before or 'no file'} → {after}."
        case kind:
            return f"{format_value(kind)} {target}: {before or 'nothing'} → {after or 'nothing'}."


def _lines(before: object, after: object) -> str:
    """How much of a text changed."""
    old, new = format_value(before).split("\n"), format_value(after).split("\n")
    blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    kept = sum(block.size for block in blocks)
    return f"{count(len(new) - kept, 'line')} added, {len(old) - kept} removed"
