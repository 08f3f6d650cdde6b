"""Tests as people name them, found in the rows of recipes."""

import pytest

from runbook_lib.errors import Refused
from runbook_lib.recipes.rows import RecipeRow, rows
from runbook_lib.recipes.targets import Target, parse_targets, resolve
from runbook_lib.text.redact import Redactor


def rows_on(*platforms: str) -> list[RecipeRow]:
    text = "spec: {model: gpt}\nproducts:\n  - test_case: [x]\n    products:\n"
    for platform in platforms:
        text += f"      - {{environment: [dev], platforms: [{platform}], scope: [mr]}}\n"
    return list(rows("r.yaml", text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" ; ", []),
        ("x@dgx_h100: it hangs", [("", "x", "dgx_h100", "it hangs")]),
        ("gpt/x: why; y @ dgx_a100: no: memory", [("gpt", "x", "", "why"), ("", "y", "dgx_a100", "no: memory")]),
    ],
)
def test_a_list_is_parsed(text: str, expected: list[tuple[str, str, str, str]]) -> None:
    targets = parse_targets(text, "dev", Redactor({}))
    assert [(target.model, target.case, target.platform, target.reason) for target in targets] == expected
    assert all(target.environment == "dev" for target in targets)


@pytest.mark.parametrize("text", ["x@dgx_h100", "x: ", ": why", "x: a; x: b", "a b@c: why", "x@a-b: why", "-- x: why"])
def test_a_list_in_another_format_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        parse_targets(text, "dev", Redactor({}))


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
