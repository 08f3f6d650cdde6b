"""The journal of a run: what its notebook contributes to the record, one JSON object per line.

Each line is appended at once, so that a killed notebook loses nothing.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook_lib.record.run_file import JOURNAL, State

#: Matches a failed run's sentence if it already names the cell.
CELL_REFERENCE = re.compile(r", cell \d+(?:\)$| raised )")


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
    fields: dict[str, Any] = {
        "inputs": {}, "exceptions": [], "effects": [], "checks": [], "warnings": [], "links": {},
        "planned": [], "decisions": [], "mode": None, "error": None, "ended": None,
        "outcome": {"sentence": "", "next": ""},
    }  # fmt: skip
    waiting = False
    for line in lines:
        try:
            entry = json.loads(line)
            kind = entry.pop("kind")
            if kind == "begin":
                fields["mode"] = str(entry["mode"])
            _add(fields, kind, entry)
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            continue
        if kind in ("waiting", "done"):
            waiting = kind == "waiting"
    state: State = "done"
    failed = [check["name"] for check in fields["checks"] if check["status"] == "failed"]
    ended = fields.pop("ended")
    if ended is not None and ended["failure"]:
        fields["outcome"] = {"sentence": ended["failure"]["sentence"], "next": ""}
        state = "interrupted" if ended["failure"]["name"] == "KeyboardInterrupt" else "failed"
    elif failed:
        fields["outcome"] = {"sentence": failed_checks(failed), "next": fields["outcome"]["next"]}
        state = "failed"
    elif waiting:
        state = "waiting"
    elif not fields["mode"]:
        fields["outcome"] = {"sentence": "The run ended without a result: it never called begin().", "next": ""}
        state = "failed"
    elif fields["mode"] == "preview" and not fields["effects"]:  # without a tag, only some runs change anything
        state = "previewed"
    return Contributions(fields, state, has_ended=ended is not None)


def _add(fields: dict[str, Any], kind: str, entry: dict[str, Any]) -> None:
    """Add one contribution.  Raises KeyError, TypeError or ValueError for a malformed one, adding nothing."""
    match kind:
        case "given":
            fields["inputs"] |= dict(entry["values"])
        case "link":
            fields["links"] |= {str(entry["name"]): str(entry["url"])}
        case "warning":
            fields["warnings"].append(str(entry["sentence"]))
        case "waiting" | "done":
            fields["outcome"] = {"sentence": str(entry["sentence"]), "next": str(entry["next"])}
            if entry.get("reason"):
                fields["outcome"] |= {"reason": str(entry["reason"]), "for_ci": bool(entry.get("for_ci"))}
        case "progress":
            fields["progress"] = {name: int(entry[name]) for name in ("done", "total")}
        case "check":
            fields["checks"].append({**entry, **{name: str(entry[name]) for name in ("name", "status", "detail")}})
        case "planned":
            fields["planned"].append({"sentence": str(entry["sentence"]), "publish": bool(entry["publish"])})
        case "decision":
            decision: dict[str, Any] = {name: str(entry[name]) for name in ("parameter", "name", "why", "suggestion")}
            if entry.get("facts"):
                decision["facts"] = dict(entry["facts"])
            fields["decisions"].append(decision)
        case "end":
            failure = {name: str(text) for name, text in (entry["failure"] or {}).items()}
            fields["ended"] = {"failure": failure}
            fields["error"] = failure or None
        case "effect" | "exception":
            fields[f"{kind}s"].append(dict(entry))


def failed_checks(names: Iterable[str]) -> str:
    """Return a sentence that names the failed checks."""
    listed = list(names)
    noun = "This check" if len(listed) == 1 else f"These {len(listed)} checks"
    return f"{noun} failed: {'; '.join(listed)}."
