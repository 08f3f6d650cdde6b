"""The file ``run.json`` of a record: an in-toto Statement (v1) about the files beside it, and what it is made from.

Its subjects are the record's files with their sha256; its predicate tells the run.  While a notebook runs, what it
contributes is kept in ``contributions.jsonl``, one JSON object a line, so that a killed kernel loses nothing.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote

State = Literal["running", "previewed", "done", "waiting", "failed", "killed", "cancelled", "incomplete"]

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:base-image-runbook:run:v1"
RUN, EXECUTED, REPORT, CONTRIBUTIONS = "run.json", "executed.ipynb", "report.html", "contributions.jsonl"
#: In a bump's folder, beside its records.
STORY = "story.html"

#: In the sentence of a run that failed: it says already in which cell of which notebook.
PLACE = re.compile(r", cell \d+(?:\)$| raised )")

_LONGEST_NAME = 100


@dataclass(frozen=True)
class Identity:
    """Which bump a record belongs to.  ``tag`` is empty for a run that only shows where things stand."""

    repository: str
    base: str
    image_type: str
    tag: str
    practice: bool

    @property
    def parts(self) -> tuple[str, ...]:
        """The folders from the archive's root down to the bump's."""
        names = (self.repository.replace("/", "-"), self.base, f"{self.image_type}-{self.tag or 'none'}")
        return (*(("practice",) if self.practice else ()), *map(folder_name, names))

    def as_json(self) -> dict[str, Any]:
        """For the predicate."""
        return {
            "repository": self.repository,
            "base": self.base,
            "image_type": self.image_type,
            "tag": self.tag or None,
            "practice": self.practice,
        }

    @classmethod
    def from_json(cls, bump: Mapping[str, Any]) -> "Identity":
        """Raises KeyError for another shape."""
        repository, base, image_type = (str(bump[name]) for name in ("repository", "base", "image_type"))
        return cls(repository, base, image_type, str(bump["tag"] or ""), bool(bump["practice"]))


def folder_name(name: str) -> str:
    """One safe folder's name for any text: no separator, no hidden file, no way up."""
    quoted = quote(name, safe=" +=@,")[:_LONGEST_NAME] or "none"
    return "%2E" + quoted[1:] if quoted.startswith(".") else quoted


def record_id(started: datetime, notebook: str, salt: str) -> str:
    """The name of a record's folder: start in UTC, notebook, and something random."""
    slug = re.sub(r"[^A-Za-z0-9._]+", "-", notebook).strip("-.")[:60] or "notebook"
    return f"{started:%Y%m%dT%H%M%SZ}-{slug}-{salt}"


def when(text: str) -> datetime:
    """The time that ``stamp`` wrote.  Raises ValueError for anything else."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return time


def statement(predicate: Mapping[str, Any], subjects: Mapping[str, str]) -> dict[str, Any]:
    """The whole document; ``subjects`` maps file names to sha256."""
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(subjects.items())],
        "predicateType": PREDICATE,
        "predicate": dict(predicate),
    }


def to_bytes(document: Mapping[str, Any]) -> bytes:
    """As it is stored; a hash is of exactly these bytes."""
    # What UTF-8 cannot hold is written as JSON's own escape, which is what backslashreplace makes of it.
    return json.dumps(document, indent=1, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace") + b"\n"


def predicate_of(content: bytes) -> dict[str, Any]:
    """The predicate of a stored statement.  Raises ValueError for anything else."""
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
class Contributed:
    """What a notebook contributed, put together."""

    fields: dict[str, Any]
    mode: str
    waiting: bool
    failed: tuple[str, ...]

    @property
    def state(self) -> State:
        """The outcome of a notebook all of whose cells ran."""
        if self.failed:
            return "failed"
        if self.waiting:
            return "waiting"
        if not self.mode:
            return "incomplete"
        return "previewed" if self.mode == "preview" else "done"


def collect(lines: Iterable[str]) -> Contributed:
    """Put the contributions together.

    A line that a killed kernel left unfinished is passed over, and so is anything else that is no contribution: what
    stands there must never keep a record from being closed.
    """
    fields: dict[str, Any] = {
        "inputs": {}, "exceptions": [], "effects": [], "checks": [], "warnings": [], "links": {},
        "planned": [], "decisions": [],
        "outcome": {"sentence": "", "next": ""},
    }  # fmt: skip
    mode, waiting = "", False
    for line in lines:
        try:
            entry = json.loads(line)
            kind = entry.pop("kind")
            _take(fields, kind, entry)
            mode = str(entry["mode"]) if kind == "begin" else mode
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            continue
        waiting = kind == "waiting" if kind in ("waiting", "done") else waiting
    failed = tuple(check["name"] for check in fields["checks"] if check["status"] == "failed")
    if failed:
        fields["outcome"]["sentence"] = failed_checks(failed)
    return Contributed(fields, mode, waiting, failed)


def _take(fields: dict[str, Any], kind: str, entry: dict[str, Any]) -> None:
    """Add one contribution.  Raises KeyError, TypeError or ValueError for another shape, adding nothing."""
    match kind:
        case "given":
            fields["inputs"] |= dict(entry["values"])
        case "link":
            fields["links"] |= {str(entry["name"]): str(entry["url"])}
        case "warning":
            fields["warnings"].append(str(entry["sentence"]))
        case "waiting" | "done":
            fields["outcome"] = {"sentence": str(entry["sentence"]), "next": str(entry["next"])}
        case "check":
            fields["checks"].append({**entry, **{name: str(entry[name]) for name in ("name", "status", "detail")}})
        case "planned":
            fields["planned"].append({"sentence": str(entry["sentence"]), "publish": bool(entry["publish"])})
        case "decision":
            names = ("parameter", "name", "why", "suggestion")
            fields["decisions"].append({name: str(entry[name]) for name in names})
        case "effect" | "exception":
            fields[f"{kind}s"].append(dict(entry))


def failed_checks(names: Iterable[str]) -> str:
    """The sentence for checks that failed."""
    listed = list(names)
    noun = "This check" if len(listed) == 1 else f"These {len(listed)} checks"
    return f"{noun} failed: {'; '.join(listed)}."
