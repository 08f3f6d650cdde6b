"""The stored state of the practice forge: records in one SQLite file.

No record changes with time: what a run does between two requests is computed (``practice.ci``), so the file can be
closed at any moment and opened again by another process.
"""

import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from runbook_lib.errors import RunbookError
from runbook_lib.practice.ci.plan import Planned
from runbook_lib.system.atomic_files import private, private_folder

#: Incremented whenever the form of the records changes.
FORMAT = 1
#: GitHub's ids exceed 32 bits; so must these, or a client that truncates them would not fail here.
FIRST_ID = 5_000_000_001
_FIRST_NUMBERS = {"id": FIRST_ID, "number": 1, "run": 1}


@dataclass(frozen=True)
class Record:
    """A record; ``KEY`` and ``PARENT`` are the fields with its key and that of its parent, if it has one."""

    KEY: ClassVar[str] = "id"
    PARENT: ClassVar[str] = ""


R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class TicketRecord(Record):
    """An issue or a pull request; both share one series of numbers.  Times are seconds since 1970."""

    KEY = "number"

    number: int
    id: int
    author: str
    title: str
    body: str | None
    created: float
    updated: float
    state: str = "open"
    state_reason: str | None = None
    closed: float | None = None
    labels: tuple[str, ...] = ()
    assignees: tuple[str, ...] = ()
    # The other fields are for pull requests; the ``base_ref`` of an issue is empty.
    draft: bool = False
    head_owner: str = ""
    head_ref: str = ""
    head_sha: str = ""
    base_ref: str = ""
    base_sha: str = ""  # of the base branch when the head was last pushed: GitHub does not update it
    merged: float | None = None
    merge_sha: str | None = None  # the synthetic merge commit, or the real one once merged
    merge_of: str = ""  # "<base> <head>" for which merge_sha and mergeable were computed
    mergeable: bool | None = None

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


@dataclass(frozen=True)
class CommentRecord(Record):
    PARENT = "number"

    id: int
    number: int
    author: str
    body: str
    created: float


@dataclass(frozen=True)
class EventRecord(Record):
    """A label that was added to a ticket or removed: ``labeled``, ``unlabeled``."""

    PARENT = "number"

    id: int
    number: int
    actor: str
    event: str
    created: float
    label: str


@dataclass(frozen=True)
class LabelRecord(Record):
    id: int
    name: str
    color: str
    description: str | None = None


@dataclass(frozen=True)
class RunRecord(Record):
    """A run of the workflow; ``merge_sha`` and ``base_sha`` are those at its start.

    ``pull`` is 0 for a run of a branch of the repository.  The last fields are for the GitLab pipeline that starts
    at the same moment.
    """

    PARENT = "pull"

    id: int
    run_number: int
    pull: int
    title: str
    author: str
    head_sha: str
    head_branch: str
    merge_sha: str
    base_sha: str
    labels: tuple[str, ...]
    created: float
    refused: bool = False
    event: str = "push"
    seconds: float = 0.0  # duration of CI
    internal: str = "run"  # or "skipped", or "none" if no pipeline starts
    stopped: float | None = None  # time of a newer commit
    variables: tuple[str, ...] = ()  # NAME=value
    broken: tuple[str, ...] = ()  # parts of the names of jobs that fail
    how: str = ""  # how they fail


@dataclass(frozen=True)
class InternalRunRecord(RunRecord):
    """A pipeline that was started through GitLab's API: the forge shows no run of it."""


@dataclass(frozen=True)
class AttemptRecord(Record):
    PARENT = "run"

    id: int
    run: int
    attempt: int
    actor: str
    started: float
    cancelled: float | None = None


@dataclass(frozen=True)
class JobRecord(Record):
    PARENT = "run"

    id: int
    run: int
    attempt: int
    artifact: int
    planned: Planned


class Store:
    """The records, each read and written as a unit.  There is one lock: a request to the forge is a transaction."""

    def __init__(self, path: Path) -> None:
        """Open the file, or create it.

        Raises sqlite3.DatabaseError if it is not a database or is locked, RunbookError for one of another version.
        """
        self.lock = threading.RLock()
        private_folder(path.parent)
        # SQLite gives the same mode to the files that it creates beside it.
        os.close(private(str(path), os.O_RDWR | os.O_CREAT))
        self._db = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        if version not in (0, FORMAT):
            self._db.close()
            raise RunbookError(
                f"The practice forge's state in {path} was written by another version of the runbook. "
                "Start again with `runbook practice reset`."
            )
        self._db.executescript(
            "BEGIN IMMEDIATE;"
            "CREATE TABLE IF NOT EXISTS record"
            " (kind TEXT, key INTEGER, parent INTEGER, body TEXT NOT NULL, PRIMARY KEY (kind, key));"
            "CREATE INDEX IF NOT EXISTS children ON record (kind, parent);"
            "CREATE TABLE IF NOT EXISTS setting (name TEXT PRIMARY KEY, value TEXT NOT NULL);"
            f"PRAGMA user_version = {FORMAT}; COMMIT"
        )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Keep all changes made inside, or none of them after an exception."""
        with self.lock:
            self._db.execute("BEGIN IMMEDIATE")
            with self._db:  # commits, or rolls back
                yield

    def find(self, kind: type[R], key: int) -> R | None:
        """Return a record, or None."""
        row = self._db.execute("SELECT body FROM record WHERE kind=? AND key=?", (_name(kind), key)).fetchone()
        return _load(kind, row[0]) if row else None

    def all(self, kind: type[R], parent: int | None = None) -> list[R]:
        """Return the records, or those of one parent, in the order in which they were created."""
        query = "SELECT body FROM record WHERE kind=? AND (? IS NULL OR parent=?) ORDER BY key"
        rows = self._db.execute(query, (_name(kind), parent, parent))
        return [_load(kind, body) for (body,) in rows]

    def save(self, record: R) -> R:
        """Write a record, and return it."""
        fields = asdict(record)
        values = (_name(type(record)), fields[record.KEY], fields.get(record.PARENT, 0), json.dumps(fields))
        self._db.execute("INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?)", values)
        return record

    def change(self, record: R, **fields: Any) -> R:
        """Write a record with these fields changed, and return it."""
        return self.save(replace(record, **fields))

    def remove(self, record: Record) -> None:
        """Delete a record."""
        key = getattr(record, record.KEY)
        self._db.execute("DELETE FROM record WHERE kind=? AND key=?", (_name(type(record)), key))

    def next(self, series: str = "id") -> int:
        """Return the next number of a series; ids are one series for all kinds of records."""
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

    def close(self) -> None:
        """Close the file after the transaction that is in progress."""
        with self.lock:
            self._db.close()


def _name(kind: type) -> str:
    return kind.__name__.removesuffix("Record")


def _load(kind: type[R], body: str) -> R:
    fields: dict[str, Any] = json.loads(body)
    for name, value in fields.items():
        if isinstance(value, list):
            fields[name] = tuple(value)
    if kind is JobRecord:
        fields["planned"] = Planned(**fields["planned"])
    return kind(**fields)
