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
        ("(?P<image>ä|\\ud83d\\ude00)?b", "äb b", ["ä"]),
        ("(?P<image>[^x]+)", "\udce4 \U0001f600", ["\udce4 \U0001f600"]),
        (r"\$\{\{ (?P<image>\w{2,5}) \}\}", "${{ ab }} ${{ a }}", ["ab"]),
    ],
)
def test_spans_are_those_of_the_group(pattern: str, text: str, expected: list[str]) -> None:
    assert [text[start:end] for start, end in untrusted_regex.spans(pattern, text)] == expected


@pytest.mark.parametrize("pattern", [r"(?P<image>(?:.*?,){50}x)", "(?P<image>(?:(?:.*?,){4}x|z))"])
def test_a_search_ends_at_its_limit(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted_regex, "LIMIT", 0.5)
    start = time.process_time()
    with pytest.raises(CannotTell, match="took longer"):
        untrusted_regex.spans(pattern, "a," * 1000 + ("a," * 60 + "z\n") * 60)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    "pattern",
    [
        "x",
        "(",
        "a" * 1001,
        "(?P<image>a)(?R)",
        "(?P<image>a){e<=3}",
        "(?P<image>a{ 9 })",
        "(?P<image>" + "(a)" * 10 + ")",
    ],
)
def test_a_pattern_outside_the_limits_is_refused(pattern: str) -> None:
    with pytest.raises(CannotTell):
        untrusted_regex.validate(pattern)


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
        ("(?P<image>" + "(a)?" * 8 + ")*", "aa"),
        ("(?P<image>(?:a{1000}){20000})", "a"),
        ("(?P<image>" + "(?:" * 100 + "a" + "){2}" * 100 + ")", "a"),
        ("(?x)(?P<image>(?: a{ 9999 9999 } ) # [\n)", "a"),
    ],
)
def test_no_pattern_takes_unbounded_memory(pattern: str, part: str) -> None:
    command = [sys.executable, "-c", PEAK, pattern, part]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert int(done.stdout) < 1.5 * 2**20, done  # KiB


def test_a_large_text_is_refused() -> None:
    with pytest.raises(CannotTell, match="1000001 characters"):
        untrusted_regex.spans("(?P<image>x)", "x" * 1_000_001)
