"""Text that a cell prints in pieces, with other messages between them."""

from typing import Any

import pytest

from runbook_lib.notebook.outputs import Outputs
from runbook_lib.text.redact import Redactor

TOKEN = "nvapi-" + "aB3" * 20
KEY = f"-----BEGIN RSA PRIVATE KEY-----\n{'QUJD' * 16}\n-----END RSA PRIVATE KEY-----\n"


class Session:
    """Keeps the text of what is sent."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def send(self, _socket: Any, message: Any, *_: Any, **_options: Any) -> None:
        if message["msg_type"] == "stream":
            self.texts.append(message["content"]["text"])


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["a", "b\n", "c"], "ab\nc"),
        (["a *** ", "b\n"], "a *** b\n"),
        ([f"x {TOKEN[:9]}", f"{TOKEN[9:]} y\n"], f"x {TOKEN[:9]}*** y\n"),
        ([TOKEN, f" {TOKEN}\n", "z"], "*** ***\nz"),
        ([KEY[:40], KEY[40:]], "***\n\n"),
    ],
)
def test_a_secret_is_not_completed_after_another_message(pieces: list[str], shown: str) -> None:
    session = Session()
    outputs = Outputs(session, Redactor({}))
    for piece in pieces:
        outputs.send(None, {"msg_type": "stream", "content": {"name": "stdout", "text": piece}})
        outputs.send(None, {"msg_type": "display_data", "content": {}})
    assert "".join(session.texts) == shown
