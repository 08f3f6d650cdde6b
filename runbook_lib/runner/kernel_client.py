"""nbclient's client, extended to report cell output.  A separate module because nbclient is slow to import."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode

# nbclient logs errors that it also raises, and that ``runner.execute`` reports.
_SILENT = logging.getLogger("runbook_lib.runner.kernel_client")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
#: Seconds to wait for an idle kernel's reply, which was sent before it became idle or never will be.
ANSWER_LIMIT = 20.0


class OutputClient(NotebookClient):
    """A client that calls ``on_output`` with the name and text of each stream chunk as it arrives."""

    def __init__(
        self, nb: NotebookNode, km: KernelManager | None, on_output: Callable[[str, str], None], **traits: Any
    ) -> None:
        super().__init__(nb, km=km, log=_SILENT, **traits)
        self._on_output = on_output
        #: True if a cell ended without a reply: the kernel was interrupted just before sending it.
        self.unanswered = False

    def process_message(self, msg: dict[str, Any], cell: NotebookNode, cell_index: int) -> NotebookNode | None:
        content = msg["content"]
        if msg["msg_type"] == "stream":
            self._on_output(content["name"], content["text"])
        answer = self.task_poll_for_reply
        if msg["msg_type"] == "status" and content.get("execution_state") == "idle" and answer is not None:
            asyncio.get_running_loop().call_later(ANSWER_LIMIT, self._give_up, answer)
        return super().process_message(msg, cell, cell_index)

    def _give_up(self, answer: "asyncio.Future[Any]") -> None:
        self.unanswered |= answer.cancel()
