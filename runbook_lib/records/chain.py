"""A bump's folder in the archive: its records, and the chain that makes a change to one of them show.

Every closed record names the sha256 of the one closed before it, and the file ``head`` that of the last, beside the
ids of those that are still open.  One process at a time changes the chain: it holds the lock of the folder.  It may be
killed at any point; the next one finishes what was begun.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runbook_lib.errors import RunbookError
from runbook_lib.records.statement import RUN, predicate_of, statement, to_bytes
from runbook_lib.system.atomic_files import cannot_write, close_to_others, make_folder, read_file, write
from runbook_lib.system.locks import locked

HEAD, LOCK, OPENING = "head", ".lock", ".opening-"


@dataclass
class Ledger:
    """A bump's folder whose lock this process holds."""

    folder: Path
    last: dict[str, str] | None
    open_ids: list[str] = field(default_factory=list)

    @classmethod
    @contextmanager
    def hold(cls, folder: Path) -> Iterator["Ledger"]:
        """Take the lock, making the folder if need be.  Raises RunbookError when it cannot be had or written."""
        make_folder(folder)
        with locked(folder / LOCK):
            close_to_others(folder)
            ledger = cls(folder, *read_head(folder))
            ledger._finish_what_was_begun()
            yield ledger

    def open(self, record: str, predicate: Mapping[str, Any]) -> Path:
        """Make a record's folder with its first statement."""
        draft, folder = self.folder / f"{OPENING}{record}", self.folder / record
        make_folder(draft)
        try:
            write(draft / RUN, to_bytes(statement(predicate, {})))
            self.open_ids.append(record)
            self._write_head()
        except RunbookError:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        return self._move(draft, folder)

    def close(self, record: str, predicate: Mapping[str, Any]) -> None:
        """Write the final statement over all files of the record, and link it to the chain."""
        if record not in self.open_ids:
            raise RunbookError(
                f"The record {self.folder / record} was closed by another command, which took this run for ended. "
                "Nothing in it was changed again."
            )
        folder = self.folder / record
        _remove_drafts(folder)
        content = to_bytes(statement({**predicate, "previous": self.last}, hashes(folder)))
        write(folder / RUN, content, durable=True)
        self._link(record, content)

    def read(self, record: str) -> dict[str, Any]:
        """The predicate of a record.  Raises RunbookError when it cannot be read."""
        return read(self.folder / record)

    def _link(self, record: str, content: bytes) -> None:
        self.last = {"record": record, "sha256": hashlib.sha256(content).hexdigest()}
        self.open_ids.remove(record)
        self._write_head()

    def _write_head(self) -> None:
        write(self.folder / HEAD, head_bytes(self.last, self.open_ids), durable=True)

    def _finish_what_was_begun(self) -> None:
        for draft in self.folder.glob(f"{OPENING}*"):
            record = draft.name.removeprefix(OPENING)
            if record in self.open_ids:
                self._move(draft, self.folder / record)
            else:
                shutil.rmtree(draft, ignore_errors=True)
        _remove_drafts(self.folder)
        for record in list(self.open_ids):
            try:
                content = read_file(self.folder / record / RUN)
                predicate = predicate_of(content)
            except (OSError, ValueError):
                continue  # for `audit verify` to tell
            if predicate["state"] != "running" and predicate.get("previous") == self.last:
                self._link(record, content)

    @staticmethod
    def _move(draft: Path, folder: Path) -> Path:
        try:
            return draft.rename(folder)
        except OSError as error:
            raise cannot_write(folder, error) from error


def read(folder: Path) -> dict[str, Any]:
    """The predicate of the record in that folder.  Raises RunbookError when it cannot be read."""
    try:
        return predicate_of(read_file(folder / RUN))
    except (OSError, ValueError) as error:
        raise RunbookError(f"The record {folder} cannot be read: {error}.") from error


def read_head(folder: Path) -> tuple[dict[str, str] | None, list[str]]:
    """The last link and the ids of the open records.  Raises RunbookError for a damaged file; none is a new chain."""
    file = folder / HEAD
    try:
        head = json.loads(read_file(file))
        last, open_ids = head["last"], head["open"]
        if last is not None:
            last = {"record": str(last["record"]), "sha256": str(last["sha256"])}
        return last, [str(record) for record in open_ids]
    except FileNotFoundError:
        return None, []
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunbookError(
            f"{file} is damaged: {error}. `runbook audit verify` tells more; restore it from the archive's history."
        ) from error


def head_bytes(last: Mapping[str, str] | None, open_ids: Sequence[str]) -> bytes:
    """The file as it is written: anything else that says the same was changed."""
    return json.dumps({"last": last, "open": list(open_ids)}, indent=1).encode() + b"\n"


def hashes(folder: Path) -> dict[str, str]:
    """The sha256 of every file of a record but its statement; links are not followed, and not counted."""
    return {
        file.name: sha256(file)
        for file in sorted(folder.iterdir())
        if file.name != RUN and file.is_file() and not file.is_symlink()
    }


def sha256(file: Path) -> str:
    """The sha256 of a file's content, in hexadecimal."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _remove_drafts(folder: Path) -> None:
    """Remove what ``files.write`` leaves behind when it is killed."""
    for draft in folder.glob(".*.tmp"):
        draft.unlink(missing_ok=True)
