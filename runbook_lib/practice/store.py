"""The stored state of the practice forge: records in one SQLite file, which every process opens for itself.

A write is a transaction.  No record changes with time: the progress of a run is computed from the clock
(``practice.ci``), whose value is stored too, so a process can end at any moment, and another one goes on.
"""

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

from runbook_lib.practice.ci.plan import Planned

#: GitHub's IDs exceed 32 bits; so must these, or a client that truncates them would not fail here.
_FIRST_NUMBERS = {"id": 5_000_000_001, "number": 1, "run": 1}
_PATIENCE = 60.0  # seconds to wait for a transaction of another process


class Record(SimpleNamespace):
    """A JSON object with its fields as attributes; times are in seconds since 1970.

    ``KEY`` and ``PARENT`` are the fields with its key and its parent's key, if it has a parent; ``DEFAULTS`` are for
    the fields that a new record need not name.
    """

    KEY: ClassVar[str] = "id"
    PARENT: ClassVar[str] = ""
    DEFAULTS: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, **fields: Any) -> None:
        super().__init__(**{**self.DEFAULTS, **fields})


R = TypeVar("R", bound=Record)
_TABLES = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS record
    (kind TEXT, key INTEGER, parent INTEGER, body TEXT NOT NULL, PRIMARY KEY (kind, key));
CREATE INDEX IF NOT EXISTS children ON record (kind, parent);
CREATE TABLE IF NOT EXISTS setting (name TEXT PRIMARY KEY, value TEXT NOT NULL);
COMMIT
"""


class TicketRecord(Record):
    """An issue or a pull request by ``author``, with ``title`` and ``body``; both share one series of numbers.

    The fields after ``assignees`` are for pull requests.  ``base_sha`` is the tip of the base branch when the head was
    last pushed: GitHub does not update it.  ``merge_sha`` is the synthetic merge commit, or the real one once merged;
    it and ``mergeable`` were computed for ``merge_of``, "<base> <head>".
    """

    KEY = "number"
    DEFAULTS: ClassVar[Mapping[str, Any]] = {
        "state": "open", "state_reason": None, "closed": None, "labels": (), "assignees": (),
        "draft": False, "head_owner": "", "head_ref": "", "head_sha": "", "base_ref": "", "base_sha": "",
        "merged": None, "merge_sha": None, "merge_of": "", "mergeable": None,
    }  # fmt: skip

    @property
    def is_pull(self) -> bool:
        return bool(self.base_ref)

    @property
    def page(self) -> str:
        return "pull" if self.is_pull else "issues"

    @property
    def mirror(self) -> str:
        """The branch to which copy-pr-bot mirrors the head."""
        return f"pull-request/{self.number}"


class CommentRecord(Record):
    """A comment on the ticket ``number``: ``author``, ``body`` and ``created``."""

    PARENT = "number"


class EventRecord(Record):
    """A ``label`` that ``actor`` added to the ticket ``number`` or removed: the ``event`` labeled or unlabeled."""

    PARENT = "number"


class LabelRecord(Record):
    """A label: ``name``, ``color`` and ``description``."""

    DEFAULTS: ClassVar[Mapping[str, Any]] = {"description": None}


class RunRecord(Record):
    """A run of the workflow; ``merge_sha`` and ``base_sha`` are those at its start.

    ``pull`` is 0 for a run of a branch of the repository, and ``seconds`` the duration of CI.
    """

    PARENT = "pull"
    DEFAULTS: ClassVar[Mapping[str, Any]] = {"refused": False, "event": "push"}


class AttemptRecord(Record):
    """The number ``attempt`` of a ``run``, which ``actor`` started."""

    PARENT = "run"
    DEFAULTS: ClassVar[Mapping[str, Any]] = {"cancelled": None}


class JobRecord(Record):
    """A job of an ``attempt`` of a ``run``, as ``planned``; ``artifact`` is the ID of its artifact, 0 if none."""

    PARENT = "run"


class Store:
    """The records, each read and written as a unit, in transactions that do not overlap."""

    def __init__(self, path: Path) -> None:
        """Open the file, or create it.  Raises sqlite3.DatabaseError if it is not a database."""
        self._lock, self._depth = threading.RLock(), 0
        self._db = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        # It must survive the end of its process, at any moment, but not that of the machine.
        self._db.executescript(f"PRAGMA synchronous = OFF; {_TABLES}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all changes made inside, or after an exception none of them; an inner one is part of the outer."""
        with self._lock:
            if self._depth:
                yield
                return
            self._db.execute("BEGIN IMMEDIATE")
            self._depth = 1
            try:
                with self._db:  # commits, or rolls back
                    yield
            finally:
                self._depth = 0

    def find(self, kind: type[R], key: int) -> R | None:
        """Return a record, or None."""
        row = self._db.execute("SELECT body FROM record WHERE kind=? AND key=?", (_name(kind), key)).fetchone()
        return _load(kind, row[0]) if row else None

    def all(self, kind: type[R], parent: int | None = None) -> list[R]:
        """Return the records, or those of one parent, in order of creation."""
        query = "SELECT body FROM record WHERE kind=? AND (? IS NULL OR parent=?) ORDER BY key"
        rows = self._db.execute(query, (_name(kind), parent, parent))
        return [_load(kind, body) for (body,) in rows]

    def create(self, kind: type[R], **fields: Any) -> R:
        """Write a new record with the next ID, and return it."""
        return self.save(kind(id=self.next(), **fields))

    def save(self, record: R) -> R:
        """Write a record, and return it."""
        fields = vars(record)
        body = json.dumps(fields, default=vars)
        values = (_name(type(record)), fields[record.KEY], fields.get(record.PARENT, 0), body)
        self._db.execute("INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?)", values)
        return record

    def change(self, record: R, **fields: Any) -> R:
        """Write a record with these fields changed, and return it."""
        return self.save(type(record)(**vars(record) | fields))

    def remove(self, record: Record) -> None:
        """Delete a record."""
        key = getattr(record, record.KEY)
        self._db.execute("DELETE FROM record WHERE kind=? AND key=?", (_name(type(record)), key))

    def next(self, series: str = "id") -> int:
        """Return the next number of a series; all kinds of records share one series of IDs."""
        value = int(self.setting(f"next {series}", _FIRST_NUMBERS[series]))
        self.set(f"next {series}", value + 1)
        return value

    def setting(self, name: str, default: Any) -> Any:
        """Return a setting, which is a JSON value."""
        row = self._db.execute("SELECT value FROM setting WHERE name=?", (name,)).fetchone()
        return json.loads(row[0]) if row else default

    def set(self, name: str, value: Any) -> None:
        """Write a setting."""
        self._db.execute("INSERT OR REPLACE INTO setting VALUES (?, ?)", (name, json.dumps(value)))

    def now(self) -> float:
        """Return the time of the stored clock: seconds since 1970."""
        return float(self.setting("clock", 0.0))

    def advance(self, seconds: float, at_least: float = 0.0) -> None:
        """Move the stored clock on, and to this moment if it is later."""
        with self.transaction():
            self.set("clock", max(self.now() + seconds, at_least))

    def close(self) -> None:
        """Close the file after the transaction that is in progress."""
        with self._lock:
            self._db.close()


def _name(kind: type) -> str:
    return kind.__name__.removesuffix("Record")


def _load(kind: type[R], body: str) -> R:
    fields: dict[str, Any] = json.loads(body)
    if kind is JobRecord:
        fields["planned"] = Planned(**fields["planned"])
    return kind(**fields)
