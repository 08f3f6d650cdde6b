"""A person's decisions about a bump, as typed entries, each bound to the evidence that was seen.  Pure.

An entry is used on the evidence that it is bound to, and on no other: other evidence reopens the question.  One that a
person wrote by hand is bound to the first evidence that it meets.  ``record.decisions`` reads and writes the file.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

Kind = Literal["accept", "broken", "rerun", "reenable", "hold", "allow"]
#: The kinds of decisions, which are the keys of the file, in its order.
KINDS: tuple[Kind, ...] = get_args(Kind)
#: The dangers of accepting a value, which an entry has to confirm.
SLOWER, DIVERGENCE, LOST = "slower", "divergence", "lost"
#: The dangers in words.
DANGERS = {SLOWER: "slowdown", DIVERGENCE: "divergence", LOST: "lost metric"}
#: The exception that confirms one commit: its subject is ``foreign-commit:<full ID>``.
FOREIGN = "foreign-commit"
#: The key of an entry's subject, by kind; of ``accept`` it is ``file``, or ``platform``, ``family`` and ``metric``.
_SUBJECTS: Mapping[Kind, str] = {"broken": "test", "rerun": "test", "reenable": "test", "hold": "what", "allow": "what"}
_GROUP = ("platform", "family", "metric")
_PLAIN = re.compile(r"[A-Za-z_][\w./@-]*")


def digest(*values: object) -> str:
    """Return the digest of evidence."""
    return hashlib.sha256(repr(values).encode("utf-8", "replace")).hexdigest()[:16]


@dataclass(frozen=True)
class Seen:
    """The evidence of a decision: the digest of its values, and the run and the attempt that had them, if a run did."""

    values: str
    run: int = 0
    attempt: int = 0


@dataclass(frozen=True)
class Decision:
    """One entry.  ``subject`` is a golden file, a group as ``platform/family/metric``, a test, or a name.

    ``confirm`` names the danger of what is accepted, ``issue`` tracks a broken test, and ``by`` and ``at`` say who
    decided, and when.  ``line`` is the entry's line in the file.
    """

    kind: Kind
    subject: str
    reason: str = ""
    confirm: str = ""
    issue: int = 0
    by: str = ""
    at: str = ""
    seen: Seen | None = None
    line: int = field(default=0, compare=False)

    @classmethod
    def from_entry(cls, kind: Kind, entry: Mapping[str, Any], line: int = 0) -> "Decision":
        """Return the decision of an entry of the file, which has been validated."""
        if kind == "accept":
            subject = str(entry.get("file") or "/".join(str(entry[key]) for key in _GROUP if entry.get(key)))
        else:
            subject = str(entry[_SUBJECTS[kind]])
        if entry.get("commit"):
            subject += f":{entry['commit']}"
        texts = {key: " ".join(str(entry.get(key) or "").split()) for key in ("reason", "confirm", "by", "at")}
        seen = entry.get("seen")
        if seen is not None:
            seen = Seen(str(seen["values"]), int(seen.get("run") or 0), int(seen.get("attempt") or 0))
        return cls(kind, subject, issue=int(entry.get("issue") or 0), seen=seen, line=line, **texts)

    def as_entry(self) -> dict[str, Any]:
        """Return the entry of the file, without empty values."""
        entry: dict[str, Any] = {}
        *folders, metric = self.subject.split("/")
        if self.kind != "accept":
            what, _, commit = self.subject.partition(":") if self.kind == "allow" else (self.subject, "", "")
            entry |= {_SUBJECTS[self.kind]: what, "commit": commit}
        elif metric.endswith(".json") or not folders:
            entry["file"] = self.subject
        else:
            entry |= {"platform": folders[0], "family": "/".join(folders[1:]), "metric": metric}
        entry |= {"confirm": self.confirm, "reason": self.reason, "issue": self.issue, "by": self.by, "at": self.at}
        if self.seen:
            entry["seen"] = {name: value for name, value in vars(self.seen).items() if value}
        return {name: value for name, value in entry.items() if value}

    @property
    def sentence(self) -> str:
        """The earlier decision, with its person, date and values, for a question that is open again."""
        by = f" by {self.by}" if self.by else ""
        at = f" on {self.at[:10]}" if self.at else ""
        run = f" of run {self.seen.run}, attempt {self.seen.attempt or 1}" if self.seen and self.seen.run else ""
        reason = f", “{self.reason}”" if self.reason else ""
        return f"Decided before{by}{at}, on other values{run}: {self.kind}{reason}"


@dataclass(frozen=True)
class Decisions:
    """The decisions about a bump; ``file`` is where they are written."""

    entries: tuple[Decision, ...] = ()
    file: str = ""

    def of(self, kind: Kind) -> tuple[Decision, ...]:
        """Return the decisions of one kind, in the order of the file."""
        return tuple(entry for entry in self.entries if entry.kind == kind)

    def entry(self, kind: Kind, subject: str) -> Decision | None:
        """Return the decision on a subject, whatever the evidence; None if there is none."""
        return next((entry for entry in self.of(kind) if entry.subject == subject), None)

    def decided(self, kind: Kind, subject: str, seen: Seen) -> Decision | None:
        """Return the decision on a subject, bound to this evidence; None if it was made on other values."""
        entry = self.entry(kind, subject)
        return on(entry, seen) if entry else None

    def advice(self, kind: Kind, subject: str, confirm: str = "") -> str:
        """Return how to decide in the file: the line to add, or the one to change."""
        place = self.file or "decisions.yaml, and add `-r decisions decisions.yaml`"
        if entry := self.entry(kind, subject):
            return f"remove `seen` from line {entry.line} of {place}, which was decided on other values"
        decision = Decision(kind, subject, "…", confirm)
        return f"write under `{kind}:` in {place}: `- {flow(decision.as_entry())}`"


def on(decision: Decision, seen: Seen) -> Decision | None:
    """Return a decision, bound to this evidence; None if it was made on other values."""
    if decision.seen is None:
        return replace(decision, seen=seen)
    return decision if decision.seen.values == seen.values else None


def flow(entry: Mapping[str, Any]) -> str:
    """Return an entry as one line of YAML, ready to paste."""
    words = []
    for name, value in entry.items():
        plain = isinstance(value, int) or (_PLAIN.fullmatch(str(value)) and name not in ("commit", "reason"))
        words.append(f"{name}: {value if plain else json.dumps(str(value), ensure_ascii=False)}")
    return "{" + ", ".join(words) + "}"
