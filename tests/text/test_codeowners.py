"""Owners of paths, as GitHub reads CODEOWNERS."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.text.codeowners import owners


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("", "a.py", ()),
        ("# * @all", "a.py", ()),
        ("\\ @x", "a.py", ()),
        ("!a.py @x\n[ab].py @y", "a.py", ()),
        ("* @all", "a/b.py", ("@all",)),
        ("* @all\n*.py @py @two # why", "a/b.py", ("@py", "@two")),
        ("*.py @py\n* @all", "a/b.py", ("@all",)),
        ("* @all\na/b.py", "a/b.py", ()),
        ("/* @root", "a.py", ("@root",)),
        ("/* @root", "a/b.py", ()),
        ("docs/* @d", "docs/a.md", ("@d",)),
        ("docs/* @d", "docs/a/b.md", ()),
        ("docs/ @d", "x/docs/a/b.md", ("@d",)),
        ("/docs/ @d", "x/docs/b.md", ()),
        ("**/logs @l", "x/logs/b", ("@l",)),
    ],
)
def test_the_last_pattern_that_matches_decides(text: str, path: str, expected: tuple[str, ...]) -> None:
    assert owners(text, [path]) == {path: expected}


@given(st.text(), st.text(min_size=1))
def test_no_text_breaks_it(text: str, path: str) -> None:
    assert list(owners(text, [path])) == [path]
