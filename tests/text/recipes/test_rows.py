"""Rows of recipes: what CI reads of them, and where their scopes stand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.errors import CannotTell
from runbook_lib.text.recipes.rows import problems, rows

HEAD = "spec:\n  model: gpt\n  platforms: dgx_a100\nproducts:\n"


def recipe(body: str) -> str:
    return HEAD + body


@pytest.mark.parametrize(
    "text",
    ["", "[]", "a: 1", "products:", "products: {}", HEAD, recipe("  - a\n"), recipe("  - test_case: []\n"),
     recipe("  - test_case: [x]\n"), recipe("  - products: [{scope: [mr]}]\n"),
     recipe("  - test_case: [x]\n    products: [a]\n")],
)  # fmt: skip
def test_a_file_in_another_format_has_no_rows(text: str) -> None:
    assert rows("r.yaml", text) == ()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("\n      - {environment: [dev], scope: [mr, nightly], platforms: [dgx_h100]}",
         (("dev",), ("dgx_h100",), ("mr", "nightly"))),
        ("\n      [\n      {environment: [lts, dev], scope: mr}\n      ]", (("lts", "dev"), ("dgx_a100",), ("mr",))),
        ("\n      - environment: [dev]\n        scope:\n          - mr  # why\n          - 'nightly'",
         (("dev",), ("dgx_a100",), ("mr", "nightly"))),
    ],
)  # fmt: skip
def test_the_fields_of_a_row(body: str, expected: tuple[tuple[str, ...], ...]) -> None:
    text = recipe(f"  - test_case: [x]\n    products: {body}\n")
    (row,) = rows("r.yaml", text)
    assert (row.environments, row.platforms, tuple(cell.value for cell in row.scopes)) == expected
    assert (row.model, row.case) == ("gpt", "x")
    assert [text[cell.start : cell.end] for cell in row.scopes] == [cell.value for cell in row.scopes]
    assert text[row.key :].startswith("scope")


def test_platforms_and_entries_that_ci_does_not_read_are_reported() -> None:
    text = recipe("  - test_case: [x, y]\n    products: [{scope: [mr], platforms: [dg  x_h100]}]\n")
    platform, unread = problems(rows("r.yaml", text))
    assert "'dg  x_h100'" in platform
    assert "y" in unread


@pytest.mark.parametrize(
    ("text", "says"),
    [("a: [", "r.yaml cannot be read"), ("a: b: c", "in line 1"), ("\x00", "r.yaml")],
)
def test_a_recipe_that_does_not_parse_is_refused(text: str, says: str) -> None:
    with pytest.raises(CannotTell, match=says):
        rows("r.yaml", text)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        rows("r.yaml", text)
    except CannotTell:
        return
