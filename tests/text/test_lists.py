import pytest

from runbook_lib.text.lists import join_first


@pytest.mark.parametrize(
    ("names", "text"), [([], ""), (["a"], "a"), (["a", "b"], "a, b"), (["a", "b", "c"], "a, b and 1 more")]
)
def test_names_beyond_the_limit_are_counted(names: list[str], text: str) -> None:
    assert join_first(names, 2) == text
