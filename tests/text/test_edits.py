import os
import subprocess
from pathlib import Path
from shutil import which

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runbook_lib.text.edits import Edit, diff, splice


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 1, "X")], "Xbcdef"),
        ([(5, 6, "")], "abcde"),
        ([(6, 6, "X")], "abcdefX"),
        ([(0, 2, "X"), (4, 6, "YYY")], "XcdYYY"),
        ([(4, 6, "YYY"), (0, 2, "X")], "XcdYYY"),
        ([(1, 3, "X"), (3, 5, "Y")], "aXYf"),
        ([(2, 2, "X"), (2, 4, "Y")], "abXYef"),
    ],
)
def test_splice_replaces_the_spans_and_nothing_else(spans, expected):
    assert splice("abcdef", spans) == expected


@pytest.mark.parametrize("spans", [[(0, 3, "X"), (2, 4, "Y")], [(0, 7, "")], [(-1, 2, "")], [(3, 2, "")]])
def test_splice_refuses_spans_that_overlap_or_lie_outside(spans):
    with pytest.raises(ValueError, match="span"):
        splice("abcdef", spans)


@pytest.mark.parametrize(
    ("before", "after", "body"),
    [
        ("a\n", "b\n", "@@ -1 +1 @@\n-a\n+b\n"),
        ("a", "b", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n"),
        ("a", "a\n", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"),
        ("a\r\nb\r\n", "a\r\nc\r\n", "@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\r\n"),
        ("a\x0bb\u2028c\x85d\re\n", "a\x0bb\u2028c\x85d\rf\n", None),
        ("", "a\n", "@@ -0,0 +1 @@\n+a\n"),
        ("a\nb\n", "", "@@ -1,2 +0,0 @@\n-a\n-b\n"),
    ],
)
def test_diff_is_unified_and_only_a_line_feed_ends_a_line(before, after, body):
    body = body or f"@@ -1 +1 @@\n-{before}+{after}"
    unchanged = Edit("g", after, after)
    assert diff([Edit("d/f", before, after), unchanged]) == f"--- a/d/f\n+++ b/d/f\n{body}"


_LINES = st.lists(
    st.sampled_from(["a", "b", "", "\r", "a\r", "x\x0by", "\u2028", "\x85", "-- a", "++ b", "é", "\\ No"])
)
_TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, _LINES, st.sampled_from(["", "\n"]))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(_TEXTS, _TEXTS), min_size=1, max_size=3))
@pytest.mark.parametrize(
    "tool",
    [
        "git apply --whitespace=nowarn -",
        pytest.param("patch -p1 --binary -s", marks=pytest.mark.skipif(not which("patch"), reason="no patch command")),
    ],
)
def test_diff_turns_before_into_after_when_applied(tmp_path: Path, tool, texts):
    edits = [Edit(f"f{number}", before, after) for number, (before, after) in enumerate(texts)]
    for edit in edits:
        (tmp_path / edit.path).write_bytes(edit.before.encode())
    if not (text := diff(edits)):
        return
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    subprocess.run(tool.split(), input=text.encode(), cwd=tmp_path, env=environment, check=True, capture_output=True)
    # An emptied file is removed by either tool: a diff without a date cannot tell the two apart.
    written = [(tmp_path / edit.path).read_bytes() if (tmp_path / edit.path).exists() else b"" for edit in edits]
    assert written == [edit.after.encode() for edit in edits]
