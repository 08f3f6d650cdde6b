"""Text that a cell prints in pieces, with other messages between them."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from runbook_lib.notebook.outputs import Outputs
from runbook_lib.text.redact import Redactor

TOKEN = "nvapi-" + "aB3" * 20
KEY = f"-----BEGIN RSA PRIVATE KEY-----\n{'QUJD' * 16}\n-----END RSA PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["a", "b\n", "c"], "ab\nc"),
        (["a *** ", "b\n"], "a *** b\n"),
        ([f"x {TOKEN[:9]}", f"{TOKEN[9:]} y\n"], "x *** y\n"),
        ([TOKEN, f" {TOKEN}\n", "z"], "*** ***\nz"),
        ([KEY[:40], KEY[40:]], "***\n\n"),
    ],
)
def test_a_secret_is_recognized_across_other_messages(pieces: list[str], shown: str) -> None:
    send = Mock()
    outputs = Outputs(SimpleNamespace(send=send), Redactor({}))
    for piece in pieces:
        outputs.send(None, {"msg_type": "stream", "content": {"name": "stdout", "text": piece}})
        outputs.send(None, {"msg_type": "display_data", "content": {}})
    outputs.send(None, {"msg_type": "execute_reply", "content": {}})
    sent = [call.args[1] for call in send.call_args_list]
    assert "".join(it["content"]["text"] for it in sent if it["msg_type"] == "stream") == shown
