"""The process that parses what others wrote."""

import pytest

from runbook_lib.errors import RunbookError
from runbook_lib.world.transport import parser
from runbook_lib.world.transport.parser import Parser


def test_all_answers_have_a_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser, "ANSWERS", 300)
    answers = Parser(bytes).each([100] * 3, ["a", "b", "c"])  # in any order
    assert answers.count(bytes(100)) == 2
    (refused,) = [answer for answer in answers if isinstance(answer, RunbookError)]
    assert "together" in str(refused)
