"""Unit tests that CI leaves out: two lines are added, nothing else changes, and they come off again."""

import ast

import pytest

from runbook_lib.errors import Refused
from runbook_lib.text.recipes.rows import Target
from runbook_lib.text.recipes.unit_tests import is_skipped, mark, unmark

FILE = "tests/unit_tests/test_a.py"
TEXT = '''\
"""Words: # not a comment."""
from __future__ import annotations

import os, pytest


@pytest.mark.parametrize("x", [1, 2])
@pytest.mark.internal
def test_plain(x): pass


class TestOne:
    def setup(self):
        def test_inner(): ...

    async def test_method(self):  # why
        assert """
def test_plain(): pass
"""
'''


def marked(node: str, text: str = TEXT, marker: str = "flaky_in_dev", reason: str = "it hangs", issue: int = 7) -> str:
    return mark(FILE, text, named(node, reason), issue, "2026-12-27", marker=marker)


def named(node: str, reason: str = "") -> Target:
    return Target(f"{FILE}::{node}", "", "dev", "", reason)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("node", "before", "indent"),
    [
        ("test_plain[1]", '@pytest.mark.parametrize("x"', ""),
        ("TestOne", "class TestOne:", ""),
        ("TestOne::test_method", "    async def test_method", "    "),
    ],
)
def test_a_test_is_left_out_and_comes_back(node: str, before: str, indent: str, end: str) -> None:
    text = TEXT.replace("\n", end)
    added = (
        f"{indent}# Broken: it hangs — see issue #7, review by 2026-12-27.{end}{indent}@pytest.mark.flaky_in_dev{end}"
    )
    after = marked(node, text)
    assert after == text.replace(before, added + before, 1)
    assert marked(node, after) == after
    assert [is_skipped({FILE: each}, f"{FILE}::{node}", "flaky_in_dev") for each in (text, after)] == [False, True]
    assert unmark(FILE, after, [named(node)], marker="flaky_in_dev") == text


def test_without_a_marker_of_the_repository_it_is_skipped_with_its_issue() -> None:
    after = marked("test_plain", marker="", issue=0)
    assert '\n@pytest.mark.skip(reason="broken, see issue #(new)")\n' in after
    assert is_skipped({FILE: after}, f"{FILE}::test_plain", "")
    assert unmark(FILE, after, [named("test_plain")], marker="") == TEXT


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("def test_a(): ...\n", "import pytest"),
        ('"""Words."""\nfrom __future__ import annotations\n@decorated\ndef test_a(): ...\n', '"""Words."""'),
        ("import os\ndef test_a(): ...\n", "import pytest"),
    ],
)
def test_a_missing_import_is_added(text: str, first: str) -> None:
    after = marked("test_a", text)
    assert after.startswith(first)
    assert after.count("import pytest\n") == 1
    ast.parse(after)


@pytest.mark.parametrize(
    ("node", "text", "says"),
    [
        ("test_other", TEXT, "defines test_other nowhere"),
        ("TestOne::test_inner", TEXT, "defines test_inner nowhere"),
        ("test_a", "def test_a(): ...\ndef test_a(): ...\n", "twice"),
        ("test_a", "def test_a(:\n", "cannot be parsed"),
        ("test_a", "x = '\\\n'\rdef test_a(): ...\n", "by hand"),
        ("test_a", "from __future__ import annotations; import os\ndef test_a(): ...\n", "by hand"),
    ],
)
def test_a_file_that_cannot_be_edited_is_refused(node: str, text: str, says: str) -> None:
    with pytest.raises(Refused, match=says):
        marked(node, text)


def test_what_others_left_out_counts_and_is_not_taken_back() -> None:
    for text in (
        "import pytest\npytestmark = [pytest.mark.flaky_in_dev]\ndef test_a(): ...\n",
        "import pytest\n@pytest.mark.skip(reason='x')\ndef test_a(): ...\n",
    ):
        assert marked("test_a", text) == text
        with pytest.raises(Refused, match="by hand"):
            unmark(FILE, text, [named("test_a")], marker="flaky_in_dev")


def test_a_long_reason_is_cut_and_none_escapes_its_comment() -> None:
    after = marked("test_plain", reason="a\nb" * 200)
    (comment,) = [line for line in after.split("\n") if line.startswith("# Broken: ")]
    assert len(comment) <= 100
    assert comment.endswith("… — see issue #7, review by 2026-12-27.")
