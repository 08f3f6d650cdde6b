"""What recipes ask of a cluster, and how a test spreads its model: the rule for its connections as one full table."""

import itertools

import pytest

from runbook_lib.compute.slurm.site import Resources
from runbook_lib.compute.workloads import Parallelism, choose, read
from runbook_lib.errors import CannotTell, Refused

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
    assert [(str(it), it.scopes, it.needs, it.name) for it in found] == [
        ("gpt/tp1@dgx_h100 (dev)", ("mr", "nightly"), Resources(2, 4, 30), "gpt-tp1-dev-dgx_h100"),
        ("gpt/tp1@dgx_h100 (lts)", ("mr", "nightly"), Resources(2, 4, 30), "gpt-tp1-lts-dgx_h100"),
        ("gpt/tp2@dgx_a100 (dev)", ("nightly",), Resources(2, 8, 60), "gpt-tp2-dev-dgx_a100"),
    ]
    assert found[0].command(assets_dir="/out") == "A=(tp1 gpt dgx_h100 1)\necho ${A[@]} > /out/x"
    assert found[2].command(assets_dir="/out").startswith("A=(tp2 gpt dgx_a100 5)")
    assert found[0].command(assets_dir="{model}").endswith("> {model}/x")  # a value is not read again
    for text in ("", "[]", "type: build\nspec:\n  name: x\n", "products:\n- test_case: [a]\n  products: []\n"):
        assert read("x.yaml", text) == ()


def test_a_time_limit_is_rounded_up_to_minutes() -> None:
    for seconds, minutes in ((0, 1), (60, 1), (61, 2), (90000, 1500)):
        assert [it.needs.minutes for it in read("r.yaml", f"spec: {{time_limit: {seconds}}}\n{ONE}")] == [minutes]


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


CONFIG = """\
ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: "1"
MODEL_ARGS:
  --tensor-model-parallel-size: 2
  --context-parallel-size: 4
  --pipeline-model-parallel-size: 8
  --num-attention-heads: 16
  --use-megatron-fsdp: true
  --use-torch-fsdp2: false
  --overlap-moe-expert-parallel-comm: true
"""
EXPERTS = "  --expert-model-parallel-size: 2\n  --expert-tensor-parallel-size: 1\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((text, Parallelism()) for text in ("{}", "MODEL_ARGS:\nENV_VARS:\n", "MODEL_ARGS: []\n")),
        (CONFIG, Parallelism(2, 4, 8, 16, "Megatron-FSDP", True, 1)),
        (CONFIG + EXPERTS, Parallelism(2, 4, 8, 16, "Megatron-FSDP", True, 1, 2, 1)),
    ],
)
def test_a_config_is_read(text: str, expected: Parallelism) -> None:
    assert Parallelism.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "x.yaml"),
        ("just words", "x.yaml"),
        ("MODEL_ARGS: {--context-parallel-size: many}", "sets --context-parallel-size to 'many'"),
        ("MODEL_ARGS: {--num-attention-heads: true}", "sets --num-attention-heads to 'True'"),
        ("ENV_VARS: {CUDA_DEVICE_MAX_CONNECTIONS: -1}", "sets CUDA_DEVICE_MAX_CONNECTIONS to '-1'"),
    ],
)
def test_a_config_that_cannot_be_read_is_refused(text: str, says: str) -> None:
    with pytest.raises(CannotTell, match=says):
        Parallelism.parse(text, "x.yaml")


@pytest.mark.parametrize(
    ("parallelism", "world_size", "problem"),
    [
        (Parallelism(), 8, ""),
        (Parallelism(2, 2, 2), 32, ""),
        (Parallelism(4, heads=8), 4, ""),
        (Parallelism(2, 2, 2), 12, "multiple of 8 (TP 2 × CP 2 × PP 2)"),
        (Parallelism(), 0, "WORLD_SIZE is 0"),
        (Parallelism(3, heads=8), 3, "8 attention heads"),
        (Parallelism(2, expert=4, expert_tensor=1), 4, ""),
        (Parallelism(2, expert=4), 8, ""),
        (Parallelism(2, expert=4), 4, "multiple of 8 (expert TP 2 × EP 4 × PP 1)"),
        (Parallelism(expert_tensor=2), 1, "multiple of 2 (expert TP 2 × EP 1 × PP 1)"),
        (Parallelism(0, pipeline=0), 3, "TP is 0 and PP is 0"),
    ],
)
def test_the_problems_of_a_number_of_gpus(parallelism: Parallelism, world_size: int, problem: str) -> None:
    problems = parallelism.problems(world_size)
    assert len(problems) == bool(problem)
    assert problem in "".join(problems)


# FSDP, overlapped → what each hardware gets: without a split, with TP > 1, with CP > 1, with both.
# "-" unset, "?" refused: 1 or 32, a person must choose.
TABLE = {
    ("", False): {"dgx_a100": "- 1 1 1", "dg  x_h100": "- 1 1 1", "dgx_gb200": "- - - -"},  # a blank as a recipe has it
    ("", True): {"dgx_a100": "32 ? ? ?", "dgx_h200": "32 ? ? ?", "dgx_b200": "32 32 32 32"},
    ("Torch-FSDP2", False): dict.fromkeys(("dgx_a100", "dgx_h100", "dgx_gb200"), "- - - -"),
    ("Megatron-FSDP", True): dict.fromkeys(("dgx_a100", "dgx_h100", "dgx_gb200"), "32 32 32 32"),
}


@pytest.mark.parametrize("own", [None, 0, 1, 8, 32])
def test_every_case_of_the_connections(own: int | None) -> None:
    """The test's own value holds unless it contradicts."""
    for (fsdp, overlapped), row in TABLE.items():
        for platform, values in row.items():
            for (context, tensor), expected in zip(itertools.product((1, 2), (1, 2)), values.split(), strict=True):
                test = Parallelism(tensor, context, 1, 0, fsdp, overlapped, own)
                chosen = overlapped and not fsdp and own == 1 and max(tensor, context) > 1  # on Blackwell as elsewhere
                holds = {
                    "1": own in (None, 1),
                    "32": own in (None, 32) or chosen,
                    "-": own is None or not fsdp or own > 1,
                    "?": own in (1, 32),
                }[expected]
                if holds:
                    by_rule = None if expected == "-" else int(expected.replace("?", "0"))
                    assert choose(platform, test) == (by_rule if own is None else own), (platform, test)
                else:
                    with pytest.raises(Refused, match=r"contradicts|exclude each other.* TP 2|exclude each other.* CP"):
                        choose(platform, test)
