import subprocess
import sys
from pathlib import Path

import pytest

from runbook_lib.errors import CannotTell
from runbook_lib.text import untrusted_regex

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("x", "", "group"),
        ("(?P<image>a)", "", []),
        ("^(?P<image>a+)$", "aa\nb\na", ["aa", "a"]),
        ("(?P<image>ä|\\ud83d\\ude00)?b", "äb b", ["ä"]),
        ("(?P<image>[^x]+)", "\udce4 \U0001f600", ["\udce4 \U0001f600"]),
    ],
)
def test_spans_of_the_group_are_found(pattern: str, text: str, found: list[str] | str) -> None:
    if isinstance(found, str):
        with pytest.raises(CannotTell, match=found):
            assert untrusted_regex.spans(pattern, text + "x")
    else:
        assert [text[start:end] for start, end in untrusted_regex.spans(pattern, text)] == found


def test_a_pattern_that_backtracks_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted_regex, "LIMIT", 1.0)
    with pytest.raises(CannotTell, match=r"did not end within 1 seconds on this file: it backtracks"):
        untrusted_regex.spans("(?P<image>(a+)+)b", "a" * 60)


@pytest.mark.parametrize(
    ("pattern", "says"),
    [("(", "cannot be used: missing ), unterminated"), ("a" * 1001, "has 1001 characters; expected at most 1000")],
)
def test_a_pattern_that_is_none_is_told(pattern: str, says: str) -> None:
    with pytest.raises(CannotTell, match=says.replace(")", r"\)")):
        untrusted_regex.spans(pattern, "a")


#: In a process of its own, whose children are none of other tests.
EVERYWHERE = """
import resource
from runbook_lib.errors import CannotTell
from runbook_lib.text import untrusted_regex
try:
    untrusted_regex.spans("(?P<image>)", "y" * 9_000_000)
except CannotTell as error:
    print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, error)
"""


def test_a_pattern_that_is_found_everywhere_is_given_up_with_little_memory() -> None:
    done = subprocess.run([sys.executable, "-c", EVERYWHERE], cwd=ROOT, capture_output=True, text=True)
    kilobytes, _, told = done.stdout.partition(" ")
    assert "is found more than 10000 times in this file" in told, done.stderr
    assert int(kilobytes) < 2**20


def test_a_pattern_that_needs_much_memory_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted_regex, "_MEMORY", 2**27)
    with pytest.raises(CannotTell, match=r"needs more than 128 MB of memory"):
        untrusted_regex.spans("(?P<image>(a|b)*)", "ab" * 3_000_000)


def test_a_text_that_is_too_large_is_not_tried() -> None:
    with pytest.raises(CannotTell, match="has 10000001 characters; a pattern is tried on at most 10000000"):
        untrusted_regex.spans("(?P<image>x)", "x" * 10_000_001)


def test_an_answer_is_remembered_without_the_text() -> None:
    text = "x" * 100_000
    before = untrusted_regex.spans("(?P<image>x{99999})", text)
    held = sys.getrefcount(text)
    assert untrusted_regex.spans("(?P<image>x{99999})", text) is before
    assert sys.getrefcount(text) == held
    assert all(len(key) == 64 for key in untrusted_regex._known)
