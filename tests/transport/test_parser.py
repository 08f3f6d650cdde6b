"""The process that parses what others wrote."""

import pytest

from runbook_lib.errors import RunbookError
from runbook_lib.transport import parser
from runbook_lib.transport.parser import Parser


def test_all_answers_have_a_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser, "ANSWERS", 300)
    *answers, refused = Parser(bytes).each([100] * 3, ["a", "b", "c"])
    assert answers == [bytes(100)] * 2
    assert isinstance(refused, RunbookError)
    assert "together" in str(refused)
