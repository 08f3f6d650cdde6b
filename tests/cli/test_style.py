"""Colours: only on a terminal, and never with NO_COLOR."""

import sys

import pytest

from runbook_lib.cli.style import paint


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
