"""The journal of a run: what its notebook contributes to the record, one JSON object per line.

Each line is appended at once, so that a killed notebook loses nothing.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook_lib.checks import Next
from runbook_lib.record.run_file import JOURNAL, State

#: The state of a step or run by the kind of the contribution that ends it.
_ENDINGS: Mapping[str, State] = {"waiting": "waiting", "done": "done", "failure": "failed", "left out": "not run"}
#: The fields of a run that a step has too.
_OF_STEP = ("conditions", "effects", "checks", "planned", "decisions", "warnings", "links", "outcome")


def lines(folder: Path) -> list[str]:
    """Return what a notebook has contributed so far."""
    try:
        return (folder / JOURNAL).read_text(encoding="ascii", errors="replace").split("\n")
    except FileNotFoundError:
        return []


@dataclass(frozen=True)
class Contributions:
    """A notebook's contributions, combined into the fields of run.json, and the state of a run whose cells all ran.

    ``has_ended`` is False for a run that did not reach its end, or the failure that ended it.
    """

    fields: dict[str, Any]
    state: State
    has_ended: bool


def collect(lines: Iterable[str]) -> Contributions:
    """Combine the lines of a journal.

    Unfinished or malformed lines are skipped: nothing in that file may prevent closing a record.
    """
    run = _Account()
    steps: list[tuple[dict[str, Any], _Account]] = []
    for line in lines:
        try:
            entry = json.loads(line)
            kind = entry.pop("kind")
            if kind == "step":
                steps.append(({"name": str(entry["name"]), "round": int(entry["round"])}, _Account(run.fields["mode"])))
                continue
            run.add(kind, dict(entry))
            if steps:
                steps[-1][1].add(kind, dict(entry))
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            continue
    state = run.close()
    shown = [{**name, "state": step.close(), **{each: step.fields[each] for each in _OF_STEP}} for name, step in steps]
    return Contributions(run.fields | {"steps": shown}, state, run.has_ended)


class _Account:
    """What a run, or one of its steps, has contributed so far."""

    def __init__(self, mode: str | None = None) -> None:
        self.fields: dict[str, Any] = {
            "inputs": {}, "exceptions": [], "effects": [], "checks": [], "warnings": [], "links": {}, "planned": [],
            "diffs": [], "decisions": [], "conditions": [], "mode": mode, "error": None, "outcome": _outcome({}),
        }  # fmt: skip
        self.has_ended = False
        self._state: State = "done"

    def add(self, kind: str, entry: dict[str, Any]) -> None:
        """Add one contribution.  Raises KeyError, TypeError or ValueError for a malformed one, adding nothing."""
        fields = self.fields
        match kind:
            case "begin":
                fields["mode"] = str(entry["mode"])
            case "given":
                fields["inputs"] |= dict(entry["values"])
            case "link":
                fields["links"] |= {str(entry["name"]): str(entry["url"])}
                if not entry["url"]:
                    del fields["links"][entry["name"]]
            case "conditions":
                fields["conditions"] += map(dict, entry["conditions"])
            case "effect" | "exception" | "check" | "decision":
                fields[f"{kind}s"].append(entry)
            case "warning":  # several steps notice the same, and would do some things together
                _add_new(fields["warnings"], str(entry["sentence"]))
            case "diff":
                _add_new(fields["diffs"], str(entry["digest"]))
            case "planned":
                _add_new(fields["planned"], {"sentence": str(entry["sentence"]), "publish": bool(entry["publish"])})
            case "end":
                failure = {name: str(text) for name, text in (entry["failure"] or {}).items()}
                self.has_ended, fields["error"] = True, failure or None
            case _ if self._state not in ("failed", "not run"):
                # Of several steps, the first that failed gives the outcome; otherwise the last one does.
                fields["outcome"], self._state = _outcome(entry), _ENDINGS[kind]

    def close(self) -> State:
        """Return the state, and set the outcome of a failed run or step."""
        fields = self.fields
        failed = [check["name"] for check in fields["checks"] if check["status"] == "failed"]
        if failure := fields["error"]:
            fields["outcome"] = _outcome(failure)
            return "interrupted" if failure["name"] == "KeyboardInterrupt" else "failed"
        if failed and self._state != "failed":
            fields["outcome"] |= {"sentence": failed_checks(failed)}
            return "failed"
        if self._state != "done":
            return self._state
        if not fields["mode"]:
            fields["outcome"] = _outcome({"sentence": "The run ended without a result: it never called begin()."})
            return "failed"
        return "previewed" if fields["mode"] == "preview" and not fields["effects"] else "done"


def _add_new(entries: list[Any], entry: object) -> None:
    if entry not in entries:
        entries.append(entry)


def _outcome(entry: Mapping[str, Any]) -> dict[str, Any]:
    waits = {"for_ci": True} if entry.get("for_ci") else {}
    return {"sentence": str(entry.get("sentence", "")), "next": Next.from_json(entry.get("next")).as_json(), **waits}


def fingerprint(fields: Mapping[str, Any]) -> str:
    """Return the sha256 of a preview's plan; two previews with the same one would make the same changes."""
    return hashlib.sha256(json.dumps([fields["planned"], fields["diffs"]]).encode()).hexdigest()


def file_prefix(step: str, round: int = 1) -> str:
    """Return the beginning of the names of the files that a step of a bump adds to the record."""
    return f"{step}.{round}." if round > 1 else f"{step}."


def failed_checks(names: Iterable[str]) -> str:
    """Return a sentence that names the failed checks."""
    listed = list(names)
    noun = "This check" if len(listed) == 1 else f"These {len(listed)} checks"
    return f"{noun} failed: {'; '.join(listed)}."
