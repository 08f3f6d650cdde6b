"""What recipes ask of a cluster."""

import pytest

from runbook_lib.compute.workloads import read
from runbook_lib.errors import CannotTell

RECIPE = """\
type: basic
spec:
  name: "{test_case}_{environment}"
  model: gpt
  nodes: 2
  gpus: 4
  n_repeat: 5
  time_limit:
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
ONE = "products:\n- test_case: [a]\n  products:\n  - {environment: [dev]}\n"


def test_a_recipe_is_read() -> None:
    found = read("r.yaml", RECIPE)
    assert [(str(it), it.scopes, it.nodes, it.gpus, it.time_limit, it.name) for it in found] == [
        ("gpt/tp1@dgx_h100 (dev)", ("mr", "nightly"), 2, 4, 1800, "gpt-tp1-dev-dgx_h100"),
        ("gpt/tp1@dgx_h100 (lts)", ("mr", "nightly"), 2, 4, 1800, "gpt-tp1-lts-dgx_h100"),
        ("gpt/tp2@dgx_a100 (dev)", ("nightly",), 2, 8, 3600, "gpt-tp2-dev-dgx_a100"),
    ]
    assert found[0].command(assets_dir="/out") == "A=(tp1 gpt dgx_h100 1)\necho ${A[@]} > /out/x"
    assert found[2].command(assets_dir="/out").startswith("A=(tp2 gpt dgx_a100 5)")
    assert found[0].command(assets_dir="{model}").endswith("> {model}/x")  # a value is not read again
    for text in ("", "[]", "type: build\nspec:\n  name: x\n", "products:\n- test_case: [a]\n  products: []\n"):
        assert read("x.yaml", text) == ()


@pytest.mark.parametrize("place", ["{nothing}", "{}", "{", "}", "{a b}", "{model.x}"])
def test_a_field_without_a_value_is_refused(place: str) -> None:
    (row,) = read("r.yaml", f"spec:\n  script: |-\n    one\n    two {place}\n{ONE}")
    with pytest.raises(CannotTell, match=r"r\.yaml: line 2 of the script of /a@\S* \(dev\) has [{}]"):
        row.command()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("products: [", r"r\.yaml"),
        (f"spec: {{nodes: two}}\n{ONE}", r"r\.yaml: a sets nodes to 'two'"),
        (f"spec: {{gpus: -1}}\n{ONE}", "a sets gpus to '-1'"),
        (f"{ONE}---\n{ONE}", r"r\.yaml"),
        (f"spec: {{a: {list(range(40))}, b: {list(range(40))}}}\n{ONE}", "a row of a has more than 1000 combinations"),
    ],
)
def test_a_recipe_that_cannot_be_read_is_refused(text: str, says: str) -> None:
    with pytest.raises(CannotTell, match=says):
        read("r.yaml", text)
