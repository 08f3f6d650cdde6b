import subprocess
import sys
import time
from pathlib import Path

import pytest

from runbook_lib.errors import CannotTell
from runbook_lib.text import untrusted_regex

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("(?P<image>a)", "", []),
        ("^(?P<image>a+)$", "aa\nb\na", ["aa", "a"]),
        ("(?P<image>ä)?b", "äb b", ["ä"]),
        ("(?P<image>[^x]+)", "\udce4 \U0001f600", ["\udce4 \U0001f600"]),
        (r"\$\{\{ (?P<image>\w{2,5}) \}\}", "${{ ab }} ${{ a }}", ["ab"]),
    ],
)
def test_spans_are_those_of_the_group(pattern: str, text: str, expected: list[str]) -> None:
    assert [text[start:end] for start, end in untrusted_regex.spans(pattern, text)] == expected


@pytest.mark.parametrize("pattern", [r"(?P<image>(?:.*?,){50}x)", "(?P<image>(?:(?:.*?,){4}x|z))", "(?P<image>(a+)+)$"])
def test_a_search_takes_linear_time(pattern: str) -> None:
    start = time.process_time()
    assert len(untrusted_regex.spans(pattern, "a," * 1000 + ("a," * 60 + "z\n") * 60)) in (0, 60)
    assert time.process_time() - start < 1


def test_many_searches_have_a_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted_regex, "_spent", 0.0)
    monkeypatch.setattr(untrusted_regex, "LIMIT", 0.3)
    with pytest.raises(CannotTell, match="all patterns took more"):
        untrusted_regex.spans("(?P<image>a(?:[^z]*z)?)", "a" * 1_000_000)
    with pytest.raises(CannotTell, match="all patterns took more"):
        untrusted_regex.spans("(?P<image>x)", "")


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("x", "no group"),
        ("(", "missing )"),
        ("a" * 1001, "1001 characters"),
        ("(?P<image>a)(?=b)", "no look-around"),
        ("(?P<image>a)(?P=image)", "no look-around, backreference"),
        ("(?P<image>a++)", "possessive"),
        ("(?x)(?P<image>a)", "(?x)"),
        (r"(?P<image>a)\Z", "\\Z"),
        ("(?P<image>a{2000})", "repetition size"),
        ("(?P<image>(?:x?a?){1000})", "repetitions are too many"),
        ("(?P<image>" + "(a)" * 10 + ")", "more than 10 groups"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused_with_a_hint(pattern: str, hint: str) -> None:
    with pytest.raises(CannotTell) as told:
        untrusted_regex.validate(pattern)
    assert hint in str(told.value)


#: Its own process, whose memory no other test has used.
PEAK = """
import resource, sys
from runbook_lib.errors import CannotTell
from runbook_lib.text import untrusted_regex
try:
    untrusted_regex.spans(sys.argv[1], sys.argv[2] * 500_000)
except CannotTell:
    pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.parametrize(
    ("pattern", "part"),
    [
        ("(?P<image>)", "y"),
        ("(?P<image>(?:" + "(" * 8 + "a" + ")" * 8 + "|b)*c)", "ab"),
        ("(?P<image>(?:a{1000}){20000})", "a"),
        ("(?P<image>" + "(?:" * 100 + "a" + "){2}" * 100 + ")", "a"),
        ("(?P<image>" + "(a*)*" * 9 + ")", "aa"),
    ],
)
def test_no_pattern_takes_unbounded_memory(pattern: str, part: str) -> None:
    command = [sys.executable, "-c", PEAK, pattern, part]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert int(done.stdout) < 1.5 * 2**20, done  # KiB


def test_a_large_text_is_refused() -> None:
    with pytest.raises(CannotTell, match="1000001 characters"):
        untrusted_regex.spans("(?P<image>x)", "x" * 1_000_001)
