"""nbclient's client, with an ear for what cells print.  In a module of its own, as nbclient loads slowly."""

import logging
from collections.abc import Callable
from typing import Any

from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode

# What it would log is told by exceptions too, which run.py puts into sentences.
_SILENT = logging.getLogger("runbook_lib.listening")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class ListeningClient(NotebookClient):
    """Tells ``heard`` the name and the text of each piece of a stream as it comes."""

    def __init__(
        self, nb: NotebookNode, km: KernelManager | None, heard: Callable[[str, str], None], **traits: Any
    ) -> None:
        super().__init__(nb, km=km, log=_SILENT, **traits)
        self._heard = heard

    def process_message(self, msg: dict[str, Any], cell: NotebookNode, cell_index: int) -> NotebookNode | None:
        if msg["msg_type"] == "stream":
            self._heard(msg["content"]["name"], msg["content"]["text"])
        return super().process_message(msg, cell, cell_index)
