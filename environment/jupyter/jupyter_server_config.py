"""The server's files: records are read-only, and checkpoints are stored elsewhere.

Jupyter otherwise writes a checkpoint beside each opened file, so that viewing a record would change it.
"""

import os
from pathlib import Path

from jupyter_server.services.contents.filecheckpoints import AsyncFileCheckpoints
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from tornado.web import HTTPError

c = get_config()  # noqa: F821 - Jupyter provides it


class SeparateCheckpoints(AsyncFileCheckpoints):
    """Checkpoints in the user's state folder, by the path of their file; beside the file if that is impossible."""

    def checkpoint_path(self, checkpoint_id, path):
        file = Path(self._get_os_path(path.strip("/")))
        state = Path(os.environ.get("XDG_STATE_HOME", ""))
        state = state if state.is_absolute() else Path.home() / ".local/state"
        folder = state / "base-image-runbook/checkpoints" / file.parent.relative_to(file.anchor)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            return super().checkpoint_path(checkpoint_id, path)
        return str(folder / f"{file.stem}-{checkpoint_id}{file.suffix}")


class RecordsReadOnly(AsyncLargeFileManager):
    """A contents manager that changes no record and no file beside records."""

    checkpoints_class = SeparateCheckpoints

    def is_writable(self, path):
        return not self._is_evidence(path) and super().is_writable(path)

    async def save(self, model, path=""):
        self._refuse_evidence(path)
        return await super().save(model, path)

    async def delete_file(self, path):
        self._refuse_evidence(path)
        return await super().delete_file(path)

    async def rename_file(self, old_path, new_path):
        self._refuse_evidence(old_path)
        self._refuse_evidence(new_path)
        return await super().rename_file(old_path, new_path)

    def _is_evidence(self, path):
        file = Path(self._get_os_path(path))
        return any((folder / "run.json").is_file() for folder in (file, *file.parents))

    def _refuse_evidence(self, path):
        if self._is_evidence(path):
            raise HTTPError(403, f"{path} is part of a record, which must not be changed. Save a copy elsewhere.")


c.ServerApp.contents_manager_class = RecordsReadOnly
