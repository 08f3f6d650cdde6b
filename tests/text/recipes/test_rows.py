"""Rows of recipes: what CI reads of them, where their scopes stand, and the tests that people name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.decisions import Decision
from runbook_lib.errors import CannotTell, Refused
from runbook_lib.text.recipes.rows import RecipeRow, Target, problems, resolve, rows, target_of

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


def rows_on(*platforms: str) -> list[RecipeRow]:
    text = "spec: {model: gpt}\nproducts:\n  - test_case: [x]\n    products:\n"
    for platform in platforms:
        text += f"      - {{environment: [dev], platforms: [{platform}], scope: [mr]}}\n"
    return list(rows("r.yaml", text))


@pytest.mark.parametrize(
    ("subject", "expected"),
    [("x@dgx_h100", ("", "x", "dgx_h100")), ("gpt/x", ("gpt", "x", "")), ("gpt/x@y", ("gpt", "x", "y"))],
)
def test_a_decision_names_a_test(subject: str, expected: tuple[str, str, str]) -> None:
    target = target_of(Decision("broken", subject, "it hangs", issue=7), "dev")
    assert (target.model, target.case, target.platform) == expected
    assert (target.environment, target.reason, target.issue) == ("dev", "it hangs", 7)


def test_the_recipes_complete_a_name() -> None:
    expected = Target("x", "dgx_h100", "dev", "gpt", "why")
    assert resolve(Target("x", "", "dev", "", "why"), rows_on("dgx_h100")) == expected
    assert resolve(Target("x", "dgx_h100", "dev", "", "why"), rows_on("dgx_h100", "dgx_gb200")) == expected


@pytest.mark.parametrize(
    ("target", "platforms", "hint"),
    [
        (Target("xx", "", "dev"), ["dgx_h100"], "x"),
        (Target("x", "dgx_b200", "dev"), ["dgx_h100"], "dgx_h100"),
        (Target("x", "", "lts"), ["dgx_h100"], "none"),
        (Target("x", "", "dev", "moe"), ["dgx_h100"], "x"),
        (Target("x", "", "dev"), ["dgx_h100", "dgx_gb200"], "gpt/x@dgx_gb200, gpt/x@dgx_h100"),
    ],
)
def test_a_name_without_exactly_one_row_is_refused_with_a_hint(target: Target, platforms: list[str], hint: str) -> None:
    with pytest.raises(Refused, match=hint):
        resolve(target, rows_on(*platforms))
