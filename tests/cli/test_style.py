"""Colours: only on a terminal, and never with NO_COLOR."""

import io
import sys

import pytest

from runbook_lib.cli.style import paint
from runbook_lib.system.output import safe_output


@pytest.mark.parametrize(
    ("is_terminal", "environment", "coloured"),
    [
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {}, True),
    ],
)
def test_only_a_terminal_gets_colours(
    is_terminal: bool, environment: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    assert (paint("text", "red") != "text") == coloured
    assert "text" in paint("text", "red")


def test_colours_reach_the_terminal_but_those_of_other_texts_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdout", terminal)
    with safe_output():
        print(paint("good", "green"), "\x1b[31mbad\x1b[0m")
    assert terminal.getvalue() == "\x1b[32mgood\x1b[0m bad\n"
