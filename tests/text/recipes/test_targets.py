"""Tests as people name them, found in the rows of recipes."""

import pytest

from runbook_lib.decisions import Decision
from runbook_lib.errors import Refused
from runbook_lib.text.recipes.rows import RecipeRow, Target, resolve, rows, target_of


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
