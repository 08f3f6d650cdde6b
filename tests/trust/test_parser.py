"""The parser process: what an item does there to memory, processor and process is an error of that item alone."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from runbook_lib.errors import CannotTell, Refused
from runbook_lib.world.transport import parser
from runbook_lib.world.transport.parser import Parser

ROOT = Path(parser.__file__).parents[3]


def fill(size: int) -> int:
    return len(bytearray(size * 2**20))


def burn(seconds: int) -> str:
    while seconds > 9:
        pass
    return "quick"


def end(status: int) -> int:
    if status:
        os._exit(status)
    return status


def wait(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def refuse(text: str) -> str:
    if text == "bad":
        raise Refused("It is bad.")
    return {"good": text}[text]


@dataclass(frozen=True)
class Case:
    """Items, of which the last is too much, and what is told of it."""

    function: str
    items: tuple[object, ...]
    told: str


CASES = {
    "memory": Case("fill", (1, 2, 1000), "more than 256 MB of memory"),
    "processor": Case("burn", (1, 2, 10), "more than 1 seconds of the processor"),
    "deadline": Case("wait", (0.0, 0.1, 60.0), "more than 4 seconds"),
    "its end": Case("end", (0, 0, 3), "failed (3)"),
    "an error": Case("refuse", ("good", "good", "bad"), "It is bad."),
    "another error": Case("refuse", ("good", "good", "odd"), "failed (KeyError: 'odd')"),
}


@pytest.mark.parametrize("name", CASES)
def test_an_item_that_is_too_much_costs_no_other(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ROOT, Path(__file__).parent))))
    monkeypatch.setattr(parser, "PROCESSOR", 1 if name == "processor" else 120)
    monkeypatch.setattr(parser, "DEADLINE", 4 if name == "deadline" else 600)
    *others, last = Parser(globals()[case.function]).each(case.items, [str(item) for item in case.items])
    assert not any(isinstance(other, Exception) for other in others)
    assert isinstance(last, CannotTell | Refused)
    assert case.told in str(last)
