"""The server's files: records are read-only.  And terminals: a login shell may reset PATH and lose the environment."""

from pathlib import Path

from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from tornado.web import HTTPError

c = get_config()  # noqa: F821 - Jupyter provides it


class RecordsReadOnly(AsyncLargeFileManager):
    """A contents manager that changes no record and no file beside records, and so makes no checkpoints there."""

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
c.ServerApp.terminado_settings = {"shell_command": ["sh", "-c", 'exec "${SHELL:-sh}"']}
