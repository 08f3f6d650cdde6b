"""The accounts of the practice forge, and its state: one SQLite file, which every process opens for itself.

A write is a transaction.  Nothing stored changes with time: the progress of a run is computed from the clock
(``practice.ci``), whose value is stored too, so a process can end at any moment, and another one goes on.
"""

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

_PATIENCE = 60.0  # seconds to wait for a transaction of another process
_TABLES = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS record (kind TEXT, id INTEGER, body TEXT NOT NULL, PRIMARY KEY (kind, id));
CREATE TABLE IF NOT EXISTS setting (name TEXT PRIMARY KEY, value TEXT NOT NULL);
COMMIT
"""


@dataclass(frozen=True)
class PracticeAccount:
    """An account of the practice forge; commits with its email address are attributed to it."""

    login: str
    name: str
    may_write: bool = False
    bot: bool = False
    email: str = ""


ENGINEER = PracticeAccount("release-engineer", "Release Engineer", True, email="release-engineer@practice.invalid")
CONTRIBUTOR = PracticeAccount("outside-contributor", "Outside Contributor")
COPY_PR_BOT = PracticeAccount("copy-pr-bot[bot]", "copy-pr-bot", bot=True)
ACTIONS_BOT = PracticeAccount("github-actions[bot]", "github-actions", bot=True)
#: The author of some of the tests, who can be assigned to fix them.
_TEST_AUTHOR = PracticeAccount("mlindqvist", "Mara Lindqvist", True, email="mara@practice.invalid")
ACCOUNTS: Mapping[str, PracticeAccount] = {
    account.login: account for account in (ENGINEER, CONTRIBUTOR, COPY_PR_BOT, ACTIONS_BOT, _TEST_AUTHOR)
}


class Record(SimpleNamespace):
    """A JSON object with its fields as attributes, and a number ``id``; times are in seconds since 1970."""

    DEFAULTS: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, **fields: Any) -> None:
        super().__init__(**{**self.DEFAULTS, **fields})


R = TypeVar("R", bound=Record)


class Ticket(Record):
    """An issue or a pull request by ``author``; both share one series of numbers.

    ``comments`` are dictionaries with id, author, body and created, ``events`` lists of a label, True if it was added,
    and when.  The fields after ``events`` are for pull requests.  ``base_sha`` is the tip of the base branch when the
    head was last pushed: GitHub does not update it.  ``merge_sha`` is the synthetic merge commit, or the real one once
    merged; it and ``mergeable`` were computed for ``merge_of``, "<base> <head>".
    """

    DEFAULTS: ClassVar[Mapping[str, Any]] = {
        "state": "open", "labels": [], "comments": [], "events": [],
        "draft": False, "head_owner": "", "head_ref": "", "head_sha": "", "base_ref": "", "base_sha": "",
        "merged": False, "merge_sha": None, "merge_of": "", "mergeable": None,
    }  # fmt: skip

    @property
    def page(self) -> str:
        """The path of its page."""
        return f"{'pull' if self.base_ref else 'issues'}/{self.id}"

    @property
    def mirror(self) -> str:
        """The branch to which copy-pr-bot mirrors the head."""
        return f"pull-request/{self.id}"


class StoredRun(Record):
    """A run of the workflow at ``head_sha``; it tests ``merge_sha``, whose base was ``base_sha``, for ``seconds``.

    ``pull`` is the pull request.  ``attempts`` are pairs: when each started, and when it was cancelled or None.
    """


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

    def find(self, kind: type[R], number: int) -> R | None:
        """Return a record, or None."""
        row = self._db.execute("SELECT body FROM record WHERE kind=? AND id=?", (kind.__name__, number)).fetchone()
        return kind(**json.loads(row[0])) if row else None

    def all(self, kind: type[R]) -> list[R]:
        """Return the records in order of creation."""
        rows = self._db.execute("SELECT body FROM record WHERE kind=? ORDER BY id", (kind.__name__,))
        return [kind(**json.loads(body)) for (body,) in rows]

    def save(self, record: R) -> R:
        """Write a record, and return it."""
        values = (type(record).__name__, record.id, json.dumps(vars(record)))
        self._db.execute("INSERT OR REPLACE INTO record VALUES (?, ?, ?)", values)
        return record

    def change(self, record: R, **fields: Any) -> R:
        """Write a record with these fields changed, and return it."""
        return self.save(type(record)(**vars(record) | fields))

    def next(self, series: str, first: int, step: int = 1) -> int:
        """Return the next number of a series."""
        value = int(self.setting(f"next {series}", first))
        self.set(f"next {series}", value + step)
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
