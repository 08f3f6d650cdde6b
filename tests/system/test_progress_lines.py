"""Progress on a terminal is one line."""

import io
import sys

import pytest

from runbook_lib.system.progress_lines import ProgressLines

UP = "\x1b[1A\x1b[2K"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, *texts: str, term: str = "xterm") -> str:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "__stderr__", stream)
    lines = ProgressLines()
    for text in texts:
        lines.write(text)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        (["one\n", "one\n"], "one\none\n"),
        (["1 of 9 read\n2 of 9 read\n", "3 of 9 read\n"], f"1 of 9 read\n{UP}2 of 9 read\n{UP}3 of 9 read\n"),
        (["1 of 9 read\n", "a warning\n", "2 of 9 read\n"], f"1 of 9 read\n{UP}a warning\n2 of 9 read\n"),
        ([f"   12 s  {'x' * 40}\n", "done\n"], f"   12 s  {'x' * 40}\n{UP}{UP}done\n"),
        (["✓ done: 4 of 4 pins agree.\n", "next\n"], "✓ done: 4 of 4 pins agree.\nnext\n"),
    ],
)
def test_only_progress_is_replaced(monkeypatch: pytest.MonkeyPatch, texts: list[str], shown: str) -> None:
    assert printed(monkeypatch, Terminal(), *texts) == shown


def test_elsewhere_each_line_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert UP not in printed(monkeypatch, io.StringIO(), "1 of 2\n2 of 2\n")
    assert UP not in printed(monkeypatch, Terminal(), "1 of 2\n2 of 2\n", term="dumb")
