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
    steps: list[_Account] = []
    for line in lines:
        try:
            entry = json.loads(line)
            kind = entry.pop("kind")
            if kind == "step":
                steps.append(_Account({"name": str(entry["name"]), "round": int(entry["round"])}))
                steps[-1].fields["mode"] = run.fields["mode"]
                continue
            run.add(kind, dict(entry))
            if steps:
                steps[-1].add(kind, dict(entry))
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            continue
    run.fields["steps"] = [step.as_json() for step in steps]
    has_ended = run.fields["ended"] is not None
    state = run.close()
    return Contributions(run.fields, state, has_ended)


class _Account:
    """What a run, or one of its steps, has contributed so far."""

    def __init__(self, identity: Mapping[str, Any] | None = None) -> None:
        self.identity = dict(identity or {})
        self.fields: dict[str, Any] = {
            "inputs": {}, "exceptions": [], "effects": [], "checks": [], "warnings": [], "links": {},
            "planned": [], "diffs": [], "decisions": [], "conditions": [], "mode": None, "error": None, "ended": None,
            "outcome": _outcome(""),
        }  # fmt: skip
        self._state: State = "done"

    def add(self, kind: str, entry: dict[str, Any]) -> None:
        """Add one contribution.  Raises KeyError, TypeError or ValueError for a malformed one, adding nothing."""
        if kind == "begin":
            self.fields["mode"] = str(entry["mode"])
        if kind in _ENDINGS and self._state in ("failed", "not run"):
            return  # of several steps, the first that failed gives the outcome; otherwise the last one does
        _add(self.fields, kind, entry)
        self._state = _ENDINGS.get(kind, self._state)

    def as_json(self) -> dict[str, Any]:
        """Return a step for the record."""
        state = self.close()
        kept = ("conditions", "effects", "checks", "planned", "decisions", "warnings", "links", "outcome")
        return {**self.identity, "state": state, **{name: self.fields[name] for name in kept}}

    def close(self) -> State:
        """Return the state, and set the outcome of a failed run or step."""
        failed = [check["name"] for check in self.fields["checks"] if check["status"] == "failed"]
        ended = self.fields.pop("ended") or {}
        if failure := ended.get("failure"):
            self.fields["outcome"] = _outcome(failure["sentence"])
            return "interrupted" if failure["name"] == "KeyboardInterrupt" else "failed"
        if failed and self._state != "failed":
            self.fields["outcome"] |= {"sentence": failed_checks(failed)}
            return "failed"
        if self._state != "done":
            return self._state
        if not self.fields["mode"]:
            self.fields["outcome"] = _outcome("The run ended without a result: it never called begin().")
            return "failed"
        # Without a tag, only some runs change anything.
        return "previewed" if self.fields["mode"] == "preview" and not self.fields["effects"] else "done"


def _add(fields: dict[str, Any], kind: str, entry: dict[str, Any]) -> None:
    """Add one contribution.  Raises KeyError, TypeError or ValueError for a malformed one, adding nothing."""
    match kind:
        case "given":
            fields["inputs"] |= dict(entry["values"])
        case "link":
            fields["links"] |= {str(entry["name"]): str(entry["url"])}
            if not entry["url"]:
                del fields["links"][entry["name"]]
        case "warning":
            if (warning := str(entry["sentence"])) not in fields["warnings"]:  # several steps notice the same
                fields["warnings"].append(warning)
        case "conditions":
            fields["conditions"] += [dict(condition) for condition in entry["conditions"]]
        case "failure" | "left out":
            fields["outcome"] = _outcome(entry["sentence"])
        case "waiting" | "done":
            fields["outcome"] = _outcome(entry["sentence"], entry["next"])
            if entry.get("reason"):
                fields["outcome"] |= {"reason": str(entry["reason"]), "for_ci": bool(entry.get("for_ci"))}
        case "diff":
            if (digest := str(entry["digest"])) not in fields["diffs"]:
                fields["diffs"].append(digest)
        case "check":
            fields["checks"].append({**entry, **{name: str(entry[name]) for name in ("name", "status", "detail")}})
        case "planned":
            planned = {"sentence": str(entry["sentence"]), "publish": bool(entry["publish"])}
            if planned not in fields["planned"]:  # two steps would do some things together
                fields["planned"].append(planned)
        case "decision":
            decision: dict[str, Any] = {name: str(entry[name]) for name in ("question", "subject", "why", "suggestion")}
            if entry.get("facts"):
                decision["facts"] = dict(entry["facts"])
            fields["decisions"].append(decision)
        case "end":
            failure = {name: str(text) for name, text in (entry["failure"] or {}).items()}
            fields["ended"] = {"failure": failure}
            fields["error"] = failure or None
        case "effect" | "exception":
            fields[f"{kind}s"].append(dict(entry))


def fingerprint(fields: Mapping[str, Any]) -> str:
    """Return the sha256 of a preview's plan; two previews with the same one would make the same changes."""
    return hashlib.sha256(json.dumps([fields["planned"], fields["diffs"]]).encode()).hexdigest()


def _outcome(sentence: object, following: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"sentence": str(sentence), "next": Next.from_json(following).as_json()}


def file_prefix(step: str, round: int = 1) -> str:
    """Return the beginning of the names of the files that a step of a bump adds to the record."""
    return f"{step}.{round}." if round > 1 else f"{step}."


def failed_checks(names: Iterable[str]) -> str:
    """Return a sentence that names the failed checks."""
    listed = list(names)
    noun = "This check" if len(listed) == 1 else f"These {len(listed)} checks"
    return f"{noun} failed: {'; '.join(listed)}."
