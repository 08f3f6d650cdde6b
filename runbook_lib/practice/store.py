"""The accounts of the practice forge, and the state of practice: one SQLite file, which every process opens for itself.

The state is a JSON document, and a write is a transaction.  What a run of CI will do is written down when it starts,
and how far it is follows from the clock: a process can end at any moment, and another one goes on.
"""

import json
import sqlite3
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from runbook_lib.errors import Unreachable

#: Duration of the practice CI in seconds of its clock, which each command moves on by more.
CI_SECONDS = 1000.0
#: GitHub's IDs exceed 32 bits; so must these, or a client that truncates them would not fail here.
FIRST_ID = 5_000_000_000
_PATIENCE = 60.0  # seconds to wait for a transaction of another process
# It must survive the end of its process, at any moment, but not that of the machine.
_SET_UP = """\
PRAGMA synchronous = OFF;
BEGIN IMMEDIATE; CREATE TABLE IF NOT EXISTS state (id INTEGER PRIMARY KEY, body TEXT NOT NULL); COMMIT"""

T = TypeVar("T")
#: An issue, a pull request, a comment, a run or a pipeline, in the state.
Record = SimpleNamespace


@dataclass(frozen=True)
class PracticeAccount:
    """An account of the practice forge; commits with its email address are attributed to it."""

    login: str
    name: str
    may_write: bool = False
    bot: bool = False
    email: str = ""


ENGINEER = PracticeAccount("release-engineer", "Release Engineer", True, email="release-engineer@practice.invalid")
#: The author of some of the tests, who can be assigned to fix them.
_TEST_AUTHOR = PracticeAccount("mlindqvist", "Mara Lindqvist", True, email="mara@practice.invalid")
ACCOUNTS = {account.login: account for account in (ENGINEER, _TEST_AUTHOR)}


class Store:
    """The state, which ``transaction`` gives to one caller at a time.  Raises sqlite3.DatabaseError for another file.

    ``tickets`` are the issues and the pull requests, which share one series of numbers, ``runs`` those of CI, and
    ``pipelines`` those of the second CI; all times are in seconds since 1970.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        self._db = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        self._db.executescript(_SET_UP)
        self.state = Record()

    @contextmanager
    def transaction(self) -> Iterator[Record]:
        """Yield the state, and store it as it was left, but not after an exception; an inner one is part of the outer.

        Raises Unreachable if the file cannot be read or written.
        """
        with self._lock:
            if self._db.in_transaction:
                yield self.state
                return
            try:
                self._db.execute("BEGIN IMMEDIATE")
                with self._db:  # commits, or rolls back
                    (before,) = self._db.execute("SELECT body FROM state").fetchone() or ("",)
                    self.state = json.loads(before or _new(), object_hook=lambda fields: Record(**fields))
                    yield self.state
                    if (after := json.dumps(self.state, default=vars)) != before:
                        self._db.execute("REPLACE INTO state VALUES (1, ?)", (after,))
            except sqlite3.OperationalError as error:
                fix = "Run the same command again, or set RUNBOOK_PRACTICE_HOME to a folder with free space."
                raise Unreachable(f"The practice forge failed: {error}.", fix) from error

    def advance(self, seconds: float, at_least: float = 0.0) -> None:
        """Move the stored clock on, and to this moment if it is later."""
        with self.transaction() as state:
            state.clock = max(state.clock + seconds, at_least)

    def next_id(self) -> int:
        """Return the next ID of a run, a job or a comment, in a transaction."""
        self.state.last_id += 1
        return int(self.state.last_id)

    def close(self) -> None:
        """Close the file after the transaction that is in progress."""
        with self._lock:
            self._db.close()


def matching(records: Iterable[Record], **asked: object) -> list[Record]:
    """Return the records whose fields have these values; None stands for any."""
    return [each for each in records if all(value in (None, getattr(each, name)) for name, value in asked.items())]


def _new() -> str:
    state = {"clock": time.time(), "ci_seconds": CI_SECONDS, "last_number": 8, "last_id": FIRST_ID}
    return json.dumps({**state, "tickets": [], "runs": [], "pipelines": []})


@cache
def scripted(name: str) -> dict[str, Any]:
    """Return what is scripted in a file of this package, such as ``scenario``."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))


def transactions(kind: type[T]) -> type[T]:
    """Carry out each public method of a class with a ``store`` in one transaction, which an error undoes."""

    def carried_out(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            with self.store.transaction():
                return method(self, *args, **kwargs)

        return call

    for name, method in vars(kind).copy().items():
        if callable(method) and not name.startswith("_"):
            setattr(kind, name, carried_out(method))
    return kind
