"""The hash chain of a bump's records, which reveals a change to any of them.

Every closed record names the sha256 of the record closed before it.  The file ``head`` in the bump's folder names the
last closed record and the IDs of the open ones.  A process locks the folder before it changes the chain; if it is
killed, the next process completes the change.
"""

import contextlib
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
from runbook_lib.system.files import cannot_write, locked, make_folder, remove_drafts, write

HEAD, LOCK, OPENING = "head", ".lock", ".opening-"
#: Jupyter's folder for copies of opened files; never evidence.
CHECKPOINTS = ".ipynb_checkpoints"


@dataclass
class Ledger:
    """A bump's folder while this process has locked it."""

    folder: Path
    last: dict[str, str] | None
    open_ids: list[str] = field(default_factory=list)

    @classmethod
    @contextmanager
    def locked(cls, folder: Path) -> Iterator["Ledger"]:
        """Create the folder if necessary, and lock it.  Raises RunbookError if either fails."""
        make_folder(folder)
        with locked(folder / LOCK):
            ledger = cls(folder, *read_head(folder))
            ledger._recover()
            yield ledger

    def open(self, record: str, predicate: Mapping[str, Any]) -> Path:
        """Create a record's folder with its first statement."""
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
        """Write the final statement about all files in the record, and link it to the chain.

        Raises RunbookError for a record that is not open.
        """
        folder = self.folder / record
        if record not in self.open_ids:
            raise RunbookError(
                f"The record {folder} is already closed: another command found that its process had ended. "
                "The record was left unchanged."
            )
        remove_drafts(folder)
        content = to_bytes(statement({**predicate, "previous": self.last}, hashes(folder)))
        write(folder / RUN, content)
        self._link(record, content)

    def _link(self, record: str, content: bytes) -> None:
        for file in (self.folder / record).iterdir():
            if file.is_file() and not file.is_symlink():
                file.chmod(0o400)  # so that a viewer, such as JupyterLab, cannot save over it
        self.last = {"record": record, "sha256": hashlib.sha256(content).hexdigest()}
        self.open_ids.remove(record)
        self._write_head()

    def _write_head(self) -> None:
        write(self.folder / HEAD, head_bytes(self.last, self.open_ids))

    def _recover(self) -> None:
        """Complete or undo what a killed process left unfinished."""
        for draft in self.folder.glob(f"{OPENING}*"):
            record = draft.name.removeprefix(OPENING)
            if record in self.open_ids:
                self._move(draft, self.folder / record)
            else:
                shutil.rmtree(draft, ignore_errors=True)
        remove_drafts(self.folder)
        for record in list(self.open_ids):
            try:
                content = (self.folder / record / RUN).read_bytes()
                predicate = predicate_of(content)
            except (OSError, ValueError):
                continue  # `audit verify` reports it
            if predicate["state"] != "running" and predicate.get("previous") == self.last:
                self._link(record, content)

    @staticmethod
    def _move(draft: Path, folder: Path) -> Path:
        try:
            return draft.rename(folder)
        except OSError as error:
            raise cannot_write(folder, error) from error


def read_predicate(folder: Path) -> dict[str, Any]:
    """Return the predicate of the record in that folder.  Raises RunbookError when it cannot be read."""
    try:
        return predicate_of((folder / RUN).read_bytes())
    except (OSError, ValueError) as error:
        raise RunbookError(f"The record {folder} cannot be read: {error}.") from error


def recorded_inputs(bump: Path | None, notebook: str = "") -> Iterator[Mapping[str, Any]]:
    """Yield the resolved inputs of a bump's readable records, newest first; with ``notebook``, of that one's."""
    for file in sorted(bump.glob(f"*-{notebook}*/{RUN}"), reverse=True) if bump else ():
        with contextlib.suppress(RunbookError):
            yield read_predicate(file.parent).get("inputs") or {}


def read_head(folder: Path) -> tuple[dict[str, str] | None, list[str]]:
    """Return the last link and the IDs of the open records; None and no IDs for a new chain.

    Raises RunbookError for a damaged file.
    """
    file = folder / HEAD
    try:
        head = json.loads(file.read_bytes())
        last, open_ids = head["last"], head["open"]
        if last is not None:
            last = {"record": str(last["record"]), "sha256": str(last["sha256"])}
        return last, [str(record) for record in open_ids]
    except FileNotFoundError:
        return None, []
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunbookError(
            f"{file} is damaged: {error}. Run `runbook audit verify` for details, and restore the file from the "
            "archive's history."
        ) from error


def head_bytes(last: Mapping[str, str] | None, open_ids: Sequence[str]) -> bytes:
    """Return the content of ``head``.  A file with different bytes was changed, even if the meaning is the same."""
    return json.dumps({"last": last, "open": list(open_ids)}, indent=1).encode() + b"\n"


def hashes(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file in a record except its statement and links, by name."""
    files = [file for file in sorted(folder.iterdir()) if file.is_file() and not file.is_symlink()]
    return {file.name: sha256(file) for file in files if file.name != RUN}


def sha256(file: Path) -> str:
    """Return the sha256 of a file's content, in hexadecimal."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
