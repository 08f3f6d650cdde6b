"""The messages that leave a kernel, without secrets, and the end of a run after a cell that failed."""

import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from runbook_lib.notebook.session import current_shell
from runbook_lib.text.redact import Redactor

#: Messages after which an unfinished line would be too late.  Others may overtake it: its rest may complete a secret.
_ENDS = ("clear_output", "error", "input_request", "execute_reply", "shutdown_reply")
#: Maximum characters that are held back because a line or a private key has not ended.
_LONGEST = 100_000


class Outputs:
    """The messages of a kernel, which all pass its session.

    What a cell prints is sent line by line, and a private key as a whole, so that a secret is recognized even if it is
    printed in pieces.
    """

    def __init__(self, session: Any, redactor: Redactor) -> None:
        self.redactor = redactor
        self._send = session.send
        #: The last message of each stream and the end of its text that was not sent yet.
        self._pending: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {}
        self._lock = threading.RLock()
        session.send = self.send
        _silence_copies()

    def send(self, socket: Any, message: Any, content: Any = None, *arguments: Any, **options: Any) -> Any:
        """Send a message in place of ``jupyter_client.session.Session.send``."""
        with self._lock:
            if not isinstance(message, Mapping):
                kind, content = message, self.redactor.data(content)
            else:
                kind = message["msg_type"]
                if kind == "stream":
                    return self._send_lines(socket, dict(message), options)
                message = {**message, "content": self.redactor.data(message["content"])}
            if kind in _ENDS:
                self.flush()
            if options.get("buffers"):
                options["buffers"] = [self._bytes(buffer) for buffer in options["buffers"]]
            return self._send(socket, message, content, *arguments, **options)

    def flush(self) -> None:
        """Send the lines that have not ended."""
        with self._lock:
            for name in list(self._pending):
                socket, message, options = self._pending.pop(name)
                self._send_text(socket, message, options, message["content"]["text"])

    def _send_lines(self, socket: Any, message: dict[str, Any], options: dict[str, Any]) -> None:
        name, text = message["content"]["name"], message["content"]["text"]
        if name in self._pending:
            _, earlier, _ = self._pending.pop(name)
            text = earlier["content"]["text"] + text
        end = _complete(text)
        self._send_text(socket, message, options, text[:end])
        if end < len(text):
            self._pending[name] = (socket, {**message, "content": {"name": name, "text": text[end:]}}, options)

    def _send_text(self, socket: Any, message: dict[str, Any], options: dict[str, Any], text: str) -> None:
        if text:
            content = {**message["content"], "text": self.redactor.text(text)}
            self._send(socket, {**message, "content": content}, **options)

    def _bytes(self, buffer: Any) -> Any:
        text = bytes(buffer).decode("latin-1")
        clean = self.redactor.text(text)
        return buffer if clean == text else clean.encode("latin-1")


def _silence_copies() -> None:
    """Discard the copy of what other programs print, which ipykernel also writes where its own parent prints."""
    with open(os.devnull, "w") as nowhere:
        for stream in (sys.stdout, sys.stderr):
            copy = getattr(stream, "_original_stdstream_copy", None)
            if copy is not None:
                os.dup2(nowhere.fileno(), copy)


def _complete(text: str) -> int:
    """Return the length of the part of a text that can be sent: whole lines, and no beginning of a private key."""
    end = max(text.rfind("\n"), text.rfind("\r")) + 1
    key = text.rfind("-----BEGIN ")
    if key >= 0 and "-----END " not in text[key:]:
        end = min(end, key)
    return end if len(text) - end <= _LONGEST else len(text)


_outputs: Outputs | None = None


def redact(environment: Mapping[str, str]) -> None:
    """Remove the secrets of this environment, and those of known forms, from everything that leaves this kernel.

    Outside a kernel nothing is changed.
    """
    global _outputs
    shell = current_shell()
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return
    redactor = Redactor(environment)
    if _outputs is None:
        _outputs = Outputs(kernel.session, redactor)
    else:
        _outputs.redactor = redactor


def on_failure(then: Callable[[BaseException, int], None]) -> None:
    """Call a function with the exception and the number of a cell that failed; an interrupt is KeyboardInterrupt."""

    def after(result: Any) -> None:
        if result is None:
            then(KeyboardInterrupt(), 0)
            return
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            then(error, result.execution_count or 0)

    shell = current_shell()
    if shell is not None:
        shell.events.register("post_run_cell", after)
