"""nbclient's client, with an ear for what cells print.  In a module of its own, as nbclient loads slowly."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode

# What it would log is told by exceptions too, which run.py puts into sentences.
_SILENT = logging.getLogger("runbook_lib.runner.kernel_client")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
#: Seconds; a kernel answers before it says that it is idle, so the answer is on its way, or never comes.
_ANSWER = 20.0


class ListeningClient(NotebookClient):
    """Tells ``heard`` the name and the text of each piece of a stream as it comes."""

    def __init__(
        self, nb: NotebookNode, km: KernelManager | None, heard: Callable[[str, str], None], **traits: Any
    ) -> None:
        super().__init__(nb, km=km, log=_SILENT, **traits)
        self._heard = heard
        #: Whether a cell has ended without an answer: its kernel was interrupted in the moment in which it answers.
        self.unanswered = False

    def process_message(self, msg: dict[str, Any], cell: NotebookNode, cell_index: int) -> NotebookNode | None:
        if msg["msg_type"] == "stream":
            self._heard(msg["content"]["name"], msg["content"]["text"])
        answer, idle = self.task_poll_for_reply, msg["content"].get("execution_state") == "idle"
        if msg["msg_type"] == "status" and idle and answer is not None:
            asyncio.get_running_loop().call_later(_ANSWER, self._give_up, answer)
        return super().process_message(msg, cell, cell_index)

    def _give_up(self, answer: "asyncio.Future[Any]") -> None:
        self.unanswered |= answer.cancel()
