"""What recipes ask of a cluster."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.errors import CannotTell
from runbook_lib.recipes.workloads import read

RECIPE = """\
type: basic
spec:
  name: "{test_case}_{environment}"
  model: gpt
  nodes: 2
  gpus: 4
  n_repeat: 5
  platforms: dgx_a100
  script: |-
    A=({test_case} {model} {platforms} {n_repeat})
    echo ${{A[@]}} > {assets_dir}/x
products:
  - test_case: [tp1]
    products:
      - environment: [dev, lts]
        scope: [mr, nightly]
        platforms: [dgx_h100]
        n_repeat: [1]
  - test_case: [tp2, never read]
    products:
      - environment: [dev]
        scope: [nightly]
        time_limit: [3600]
        gpus: 8
  - test_case: []
    products:
      - environment: [dev]
"""


@pytest.mark.parametrize(
    "text",
    ["", "[]", "type: build\nspec:\n  name: x\n", "products:\n", "products:\n- test_case: [a]\n  products: []\n"],
)
def test_recipes_without_tests(text: str) -> None:
    assert read("x.yaml", text) == ()


def test_a_recipe_is_read() -> None:
    found = read("r.yaml", RECIPE)
    assert [(it.case, it.environment, it.platform, it.scopes) for it in found] == [
        ("tp1", "dev", "dgx_h100", ("mr", "nightly")),
        ("tp1", "lts", "dgx_h100", ("mr", "nightly")),
        ("tp2", "dev", "dgx_a100", ("nightly",)),
    ]
    assert [(it.nodes, it.gpus, it.world_size, it.time_limit) for it in found] == [(2, 4, 8, 1800)] * 2 + [
        (2, 8, 16, 3600)
    ]
    assert [it.name for it in found][::2] == ["gpt-tp1-dev-dgx_h100", "gpt-tp2-dev-dgx_a100"]
    assert str(found[0]) == "gpt/tp1@dgx_h100 (dev)"


def test_the_script_gets_the_values_of_its_row() -> None:
    first, _, last = read("r.yaml", RECIPE)
    assert first.command(assets_dir="/out") == "A=(tp1 gpt dgx_h100 1)\necho ${A[@]} > /out/x"
    assert last.command(assets_dir="/out").startswith("A=(tp2 gpt dgx_a100 5)")
    assert first.command(assets_dir="{model}").endswith("> {model}/x")  # a value is not read again


def test_a_key_without_a_value_is_ignored() -> None:
    (row,) = read("r.yaml", f"spec:\n  n_repeat:\n  time_limit:\n  script: '{{n_repeat}}'\n{ONE}")
    assert (row.command(), row.time_limit) == ("1", 1800)


@pytest.mark.parametrize("place", ["{nothing}", "{}", "{", "}", "{a b}", "{model.x}"])
def test_a_field_without_a_value_is_refused(place: str) -> None:
    (row,) = read("r.yaml", f"spec:\n  script: |-\n    one\n    two {place}\n{ONE}")
    with pytest.raises(CannotTell, match=r"r\.yaml: line 2 of the script of /a@\S* \(dev\) has [{}]"):
        row.command()


ONE = "products:\n- test_case: [a]\n  products:\n  - {environment: [dev]}\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("products: [", r"r\.yaml"),
        (f"spec: {{nodes: two}}\n{ONE}", r"r\.yaml: a sets nodes to 'two'"),
        (f"spec: {{gpus: -1}}\n{ONE}", "a sets gpus to '-1'"),
        (f"{ONE}---\n{ONE}", r"r\.yaml"),
    ],
)
def test_a_recipe_that_cannot_be_read_is_refused(text: str, says: str) -> None:
    with pytest.raises(CannotTell, match=says):
        read("r.yaml", text)


@given(st.text(alphabet="abc:-[]{}&*<! \n'\"", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for candidate in (text, f"spec: {text}\n{ONE}", ONE.replace("dev", text)):
        with contextlib.suppress(CannotTell):
            for workload in read("r.yaml", candidate):
                assert workload.nodes > 0
                assert min(workload.gpus, workload.time_limit) >= 0
                assert workload.recipe == "r.yaml"
