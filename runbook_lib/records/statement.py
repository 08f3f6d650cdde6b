"""``run.json`` of a record: an in-toto Statement (v1) about the other files of the record.

Its subjects are these files with their sha256; its predicate describes the run.  A running notebook appends to
``contributions.jsonl``, one JSON object per line, so that a killed kernel loses nothing.
"""

import json
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote

State = Literal["running", "previewed", "done", "waiting", "failed", "interrupted", "killed", "cancelled", "incomplete"]

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:base-image-runbook:run:v1"
RUN, EXECUTED, REPORT, CONTRIBUTIONS = "run.json", "executed.ipynb", "report.html", "contributions.jsonl"
#: The page in a bump's folder, beside its records.
STORY = "story.html"

#: Matches a failed run's sentence if it already names the cell.
CELL_REFERENCE = re.compile(r", cell \d+(?:\)$| raised )")

_LONGEST_NAME = 100


@dataclass(frozen=True)
class Identity:
    """The bump that a record belongs to.  ``tag`` is empty for a run that only shows the current state."""

    repository: str
    base: str
    image_type: str
    tag: str
    practice: bool

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the folders from the archive's root down to the bump's."""
        tag = self.tag.replace(":", "-") or "none"
        names = [self.repository.replace("/", "-"), self.base, f"{self.image_type}-{tag}"]
        if self.practice:
            names.insert(0, "practice")
        return tuple(map(folder_name, names))

    def as_json(self) -> dict[str, Any]:
        """Return the field ``bump`` of a predicate."""
        return asdict(self) | {"tag": self.tag or None}

    @classmethod
    def from_json(cls, bump: Mapping[str, Any]) -> "Identity":
        """Parse the field ``bump`` of a predicate.  Raises KeyError for a missing field."""
        return cls(
            repository=str(bump["repository"]),
            base=str(bump["base"]),
            image_type=str(bump["image_type"]),
            tag=str(bump["tag"] or ""),
            practice=bool(bump["practice"]),
        )


def folder_name(name: str) -> str:
    """Return a safe folder name for any text: without separators, not hidden, not ``..``."""
    quoted = quote(name, safe=" +=@,")[:_LONGEST_NAME] or "none"
    return re.sub(r"^\.", "%2E", quoted)


def record_id(started: datetime, notebook: str) -> str:
    """Return the name of a record's folder: start in UTC, notebook, and a random number."""
    slug = re.sub(r"[^A-Za-z0-9._]+", "-", notebook).strip("-.")[:60] or "notebook"
    return f"{started:%Y%m%dT%H%M%SZ}-{slug}-{secrets.token_hex(4)}"


def parse_time(text: str) -> datetime:
    """Parse a time written by ``clock.stamp``.  Raises ValueError for anything else."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return time


def statement(predicate: Mapping[str, Any], subjects: Mapping[str, str]) -> dict[str, Any]:
    """Return the statement as a document; ``subjects`` maps file names to sha256."""
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(subjects.items())],
        "predicateType": PREDICATE,
        "predicate": dict(predicate),
    }


def to_bytes(document: Mapping[str, Any]) -> bytes:
    """Return the document in its stored form.  The hashes in the chain cover these bytes."""
    # backslashreplace writes lone surrogates as JSON's own escapes.
    return json.dumps(document, indent=1, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace") + b"\n"


def predicate_of(content: bytes) -> dict[str, Any]:
    """Return the predicate of a stored statement.  Raises ValueError for anything else."""
    try:
        document = json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    kind = (document.get("_type"), document.get("predicateType")) if isinstance(document, dict) else ()
    if kind != (STATEMENT, PREDICATE):
        raise ValueError("not a statement of this runbook")
    predicate = document.get("predicate")
    if not isinstance(predicate, dict) or not {"id", "state", "bump", "notebook", "started"} <= predicate.keys():
        raise ValueError("a statement without the fields of a run")
    return predicate


@dataclass(frozen=True)
class Contributions:
    """A notebook's contributions, combined into predicate fields, and the state of a run whose cells all ran.

    ``has_ended`` is False for a run that did not reach its end, or the failure that ended it.
    """

    fields: dict[str, Any]
    state: State
    has_ended: bool


def collect(lines: Iterable[str]) -> Contributions:
    """Combine the lines of ``contributions.jsonl``.

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
        state = "incomplete"
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
