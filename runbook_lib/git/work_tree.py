"""Edits of files in a work tree: either all of them are written, or none."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from runbook_lib.errors import RunbookError
from runbook_lib.system.files import write_draft
from runbook_lib.text.edits import Edit


def write_edits(folder: Path, edits: Sequence[Edit]) -> None:
    """Write the edits below ``folder``; on an error every file gets its old text back.  Raises RunbookError."""
    new: dict[Path, Path] = {}  # texts beside their files
    old: dict[Path, Path] = {}
    written: list[Path] = []
    try:
        for edit in edits:
            file = folder / edit.path
            file.parent.mkdir(parents=True, exist_ok=True)
            new[file] = _write_draft(file, edit.after)
            if edit.before is not None:
                old[file] = _write_draft(file, edit.before)
        for file, draft in new.items():
            os.replace(draft, file)
            written.append(file)
    except OSError as error:
        result = "Nothing was changed."
        if changed := _restore(written, old):
            result = f"{', '.join(changed)} could not be restored: run again."
        raise RunbookError(f"The edits could not be written to {folder}: {error}. {result}") from error
    finally:
        for draft in (*new.values(), *old.values()):
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)


def _restore(written: Sequence[Path], old: Mapping[Path, Path]) -> list[str]:
    """Restore the files' previous texts; return the names of files that cannot be restored."""
    changed = []
    for file in written:
        try:
            if file in old:
                os.replace(old[file], file)
            else:
                file.unlink()
        except OSError:
            changed.append(file.name)
    return changed


def _write_draft(file: Path, text: str) -> Path:
    """Write the text, synced to disk, under another name in the same folder, with the file's mode."""
    try:
        draft = write_draft(file.parent, text.encode("utf-8", "surrogateescape"))
        draft.chmod(file.stat().st_mode & 0o7777 if file.exists() else 0o644)
    except OSError as error:
        raise RunbookError(f"{file} could not be written: {error}. Nothing was changed.") from error
    return draft
