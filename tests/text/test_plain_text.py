"""Markdown as plain text."""

import pytest

from runbook_lib.text.markdown import code
from runbook_lib.text.plain_text import aligned, plain


@pytest.mark.parametrize("text", ["", "a sentence", "two\n\nparagraphs", "- a list\n- of 2 * 3 things", "a | b"])
def test_leaves_plain_text_alone(text: str) -> None:
    assert plain(text) == text


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("### Golden values", "Golden values"),
        ("**Renamed** (1): `a.json`", "Renamed (1): a.json"),
        ("| name | n |\n|---|---:|\n| `loss` | 77 |\n| b | 1 |", "name   n\nloss  77\nb      1"),
    ],
)
def test_removes_the_marks_and_aligns_tables(markdown: str, expected: str) -> None:
    assert plain(markdown) == expected


def test_aligns_columns_by_their_longest_cell() -> None:
    assert list(aligned([("a", "b", ""), ("longer", "c", "d")])) == ["a       b", "longer  c  d"]


@pytest.mark.parametrize("name", ["a|b", "|", "a\\|b", "a\\", "`a`|"])
def test_a_bar_in_a_name_does_not_end_its_cell(name: str) -> None:
    (_, row) = plain(f"| metric | n |\n|---|---:|\n| {code(name)} | 1 |").splitlines()
    assert row.endswith(" 1")
    assert row.count("|") == name.count("|")
