"""Edits of files in a work tree: all of them are written, or none."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runbook_lib.errors import RunbookError
from runbook_lib.system import atomic_files
from runbook_lib.text.edits import Edit


@dataclass(frozen=True)
class _Draft:
    """A file, its new text on disk, and the old one to restore; None where the file is new."""

    file: Path
    new: Path
    old: Path | None

    def restore(self) -> None:
        """Give the file the text that it had."""
        if self.old is None:
            self.file.unlink()
        else:
            os.replace(self.old, self.file)

    def remove(self) -> None:
        """Remove the texts that are still beside the file."""
        for draft in (self.new, self.old):
            if draft is not None:
                with contextlib.suppress(OSError):
                    draft.unlink(missing_ok=True)


def write_edits(folder: Path, edits: Sequence[Edit]) -> None:
    """Write the edits below ``folder``; on an error every file gets its old text back.  Raises RunbookError."""
    drafts: list[_Draft] = []
    written: list[_Draft] = []
    try:
        for edit in edits:
            file = folder / edit.path
            file.parent.mkdir(parents=True, exist_ok=True)
            drafts.append(_Draft(file, _write_draft(file, edit.after), None))
            if edit.before is not None:
                drafts[-1] = _Draft(file, drafts[-1].new, _write_draft(file, edit.before))
        for draft in drafts:
            os.replace(draft.new, draft.file)
            written.append(draft)
    except OSError as error:
        changed = _restore(written)
        result = "Nothing was changed."
        if changed:
            result = f"{', '.join(changed)} could not be restored: run again."
        raise RunbookError(f"The edits could not be written to {folder}: {error}. {result}") from error
    finally:
        for draft in drafts:
            draft.remove()


def _restore(written: Sequence[_Draft]) -> list[str]:
    """Restore the files, and return the names of those that cannot be restored."""
    changed = []
    for draft in written:
        try:
            draft.restore()
        except OSError:
            changed.append(draft.file.name)
    return changed


def _write_draft(file: Path, text: str) -> Path:
    """Write the text, safely on disk, under another name in the same folder, with the file's mode."""
    draft = atomic_files.draft_of(file)
    try:
        with draft.open("xb") as stream:
            stream.write(text.encode("utf-8", "surrogateescape"))
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(draft, file.stat().st_mode & 0o7777 if file.exists() else 0o644)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise RunbookError(f"{file} could not be written: {error}. Nothing was changed.") from error
    return draft
