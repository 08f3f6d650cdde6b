import pytest

from runbook_lib.text.lists import aligned, join_first, shorten


@pytest.mark.parametrize(
    ("names", "text"), [([], ""), (["a"], "a"), (["a", "b"], "a, b"), (["a", "b", "c"], "a, b and 1 more")]
)
def test_names_beyond_the_limit_are_counted(names: list[str], text: str) -> None:
    assert join_first(names, 2) == text


@pytest.mark.parametrize(("text", "expected"), [("", ""), ("abcd", "abcd"), ("abcde", "abc…"), ("x" * 9, "xxx…")])
def test_a_long_text_is_cut(text: str, expected: str) -> None:
    assert shorten(text, 4) == expected


def test_columns_are_aligned_by_their_longest_cell() -> None:
    assert list(aligned([("a", "b", ""), ("longer", "c", "d")])) == ["a       b", "longer  c  d"]
