"""What the practice forge remembers: records in one SQLite file.

Nothing here changes with time by itself: what a run does between two requests is computed (``ci``), so the
file may be closed and opened again by another process at any moment.
"""

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from runbook_lib.errors import RunbookError
from runbook_lib.practice.ci.plan import Planned
from runbook_lib.system.atomic_files import private, private_folder

#: Raised whenever the records change their form.
FORMAT = 1
#: GitHub's ids have long outgrown 32 bits; so must ours, or a client that cuts them passes its practice.
FIRST_ID = 5_000_000_001


@dataclass(frozen=True)
class Ticket:
    """An issue or a pull request; the two share one series of numbers.  Times are seconds since the epoch."""

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
    # The rest belongs to pull requests; an issue has an empty ``base_ref``.
    draft: bool = False
    head_owner: str = ""
    head_ref: str = ""
    head_sha: str = ""
    base_ref: str = ""
    base_sha: str = ""  # of the base branch when the head was last pushed: GitHub does not follow the base
    merged: float | None = None
    merge_sha: str | None = None  # the synthetic merge commit, or the real one once merged
    merge_of: str = ""  # "<base> <head>" that merge_sha and mergeable were worked out for
    mergeable: bool | None = None

    @property
    def is_pull(self) -> bool:
        return bool(self.base_ref)

    @property
    def mirror(self) -> str:
        """The branch that copy-pr-bot mirrors the head to."""
        return f"pull-request/{self.number}"


@dataclass(frozen=True)
class Comment:
    id: int
    number: int
    author: str
    body: str
    created: float


@dataclass(frozen=True)
class Event:
    """A label set on a ticket or taken off: ``labeled``, ``unlabeled``."""

    id: int
    number: int
    actor: str
    event: str
    created: float
    label: str


@dataclass(frozen=True)
class Label:
    id: int
    name: str
    color: str
    description: str | None = None


@dataclass(frozen=True)
class Run:
    """A run of the workflow; ``merge_sha`` and ``base_sha`` are those of the moment of its start.

    A run of a branch of the repository itself has 0 for ``pull``.  The rest is for the pipeline on GitLab that
    starts at the same moment.
    """

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
    seconds: float = 0.0  # how long CI takes
    internal: str = "run"  # or "skipped", or "none" where no pipeline starts
    stopped: float | None = None  # when a newer commit came


@dataclass(frozen=True)
class InternalRun(Run):
    """A pipeline on GitLab that somebody started there, by its API: the forge shows no run of it."""

    variables: tuple[str, ...] = ()  # NAME=value
    broken: tuple[str, ...] = ()  # parts of the names of jobs that fail, and how
    how: str = ""


@dataclass(frozen=True)
class Attempt:
    id: int
    run: int
    attempt: int
    actor: str
    started: float
    cancelled: float | None = None


@dataclass(frozen=True)
class Job:
    id: int
    run: int
    attempt: int
    artifact: int
    planned: Planned


Record = Ticket | Comment | Event | Label | Run | InternalRun | Attempt | Job
R = TypeVar("R", Ticket, Comment, Event, Label, Run, InternalRun, Attempt, Job)
#: Kind of record → its key, and what it belongs to (0: to the repository).
_KEYS: dict[type, Callable[[Any], tuple[int, int]]] = {
    Ticket: lambda r: (r.number, 0),
    Comment: lambda r: (r.id, r.number),
    Event: lambda r: (r.id, r.number),
    Label: lambda r: (r.id, 0),
    Run: lambda r: (r.id, r.pull),
    InternalRun: lambda r: (r.id, 0),
    Attempt: lambda r: (r.id, r.run),
    Job: lambda r: (r.id, r.run),
}


class Store:
    """The records, each read and written whole.  One lock: a request of the forge is a transaction."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it.  Raises sqlite3.DatabaseError for one that is no database, or locked."""
        self.lock = threading.RLock()
        private_folder(path.parent)
        # SQLite gives the files that it puts beside it the same mode.
        os.close(private(str(path), os.O_RDWR | os.O_CREAT))
        self._db = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        if version not in (0, FORMAT):
            self._db.close()
            raise RunbookError(
                f"The practice forge's state in {path} was written by another version of the runbook. "
                "Start afresh with `runbook practice reset`."
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
        """Everything inside is kept, or, after an exception, nothing."""
        with self.lock:
            self._db.execute("BEGIN IMMEDIATE")
            with self._db:  # commits, or rolls back
                yield

    def find(self, kind: type[R], key: int) -> R | None:
        row = self._db.execute("SELECT body FROM record WHERE kind=? AND key=?", (kind.__name__, key)).fetchone()
        return _load(kind, row[0]) if row else None

    def all(self, kind: type[R], parent: int | None = None) -> list[R]:
        """In the order of their keys, which is the order in which they were made."""
        query = "SELECT body FROM record WHERE kind=? AND (? IS NULL OR parent=?) ORDER BY key"
        rows = self._db.execute(query, (kind.__name__, parent, parent))
        return [_load(kind, body) for (body,) in rows]

    def save(self, record: R) -> R:
        key, parent = _KEYS[type(record)](record)
        self._db.execute(
            "INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?)",
            (type(record).__name__, key, parent, json.dumps(asdict(record))),
        )
        return record

    def change(self, record: R, **fields: Any) -> R:
        return self.save(replace(record, **fields))

    def remove(self, record: Record) -> None:
        key, _ = _KEYS[type(record)](record)
        self._db.execute("DELETE FROM record WHERE kind=? AND key=?", (type(record).__name__, key))

    def next(self, series: str = "id") -> int:
        """The next number of a series; ids are one series for all kinds of records."""
        value = int(self.setting(f"next {series}", FIRST_ID if series == "id" else 1))
        self.set(f"next {series}", value + 1)
        return value

    def setting(self, name: str, default: Any) -> Any:
        row = self._db.execute("SELECT value FROM setting WHERE name=?", (name,)).fetchone()
        return json.loads(row[0]) if row else default

    def set(self, name: str, value: Any) -> None:
        self._db.execute("INSERT OR REPLACE INTO setting VALUES (?, ?)", (name, json.dumps(value)))

    def close(self) -> None:
        with self.lock:
            self._db.close()


def _load(kind: type[R], body: str) -> R:
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in json.loads(body).items()
    }
    if kind is Job:
        fields["planned"] = Planned(**fields["planned"])
    return kind(**fields)
