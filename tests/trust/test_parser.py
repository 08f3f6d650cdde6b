"""The parser process: what an item does there to memory, processor and process is an error of that item alone."""

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from runbook_lib.errors import CannotTell, Refused
from runbook_lib.world.transport import parser
from runbook_lib.world.transport.parser import Parser

LIBRARY = Path(parser.__file__).parents[2]


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
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(LIBRARY.parent), str(Path(__file__).parent))))
    monkeypatch.setattr(parser, "PROCESSOR", 1 if name == "processor" else 120)
    monkeypatch.setattr(parser, "DEADLINE", 4 if name == "deadline" else 600)
    *others, last = Parser(globals()[case.function]).each(case.items, [str(item) for item in case.items])
    assert not any(isinstance(other, Exception) for other in others)
    assert isinstance(last, CannotTell | Refused)
    assert case.told in str(last)


def test_archives_are_opened_by_the_parser_alone() -> None:
    """No module unpacks elsewhere, and JSON of others is read within bounds."""
    unpack = ("zipfile", "tarfile", "gzip", "bz2", "lzma")
    text = {str(path.relative_to(LIBRARY)): path.read_text() for path in LIBRARY.rglob("*.py")}
    unpackers = {name for name, it in text.items() if any(f"import {module}" in it for module in unpack)}
    assert unpackers == {"world/transport/archives.py", "practice/evidence.py"}  # which makes some
    users = {name for name, it in text.items() if re.search(r"\bArchive\(", it)}
    assert users == {"failures/read_logs.py", "golden/collect.py"}
    assert {name for name, it in text.items() if "json.load" in it} <= {*BOUNDED, *OWN}, "is it bounded?"


#: Modules that read JSON from outside, within bounds on its bytes at least.
BOUNDED = (
    "golden/values.py", "world/replies.py", "text/notebook_file.py", "cli/audit.py",
    "record/run_file.py", "compute/smoke.py",
)  # fmt: skip
#: Modules that read what this library, or the person who runs it, has written.
OWN = (
    "world/github/client.py", "text/user_file.py", "golden/measure.py",
    "golden/history.py", "record/recorder.py", "bisect/facts.py", "notebook/form_views.py",
    "practice/forge.py", "practice/values.py", "practice/store.py", "practice/second_ci.py",
)  # fmt: skip
