"""How a test spreads its model, and whether that fits."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.errors import CannotTell
from runbook_lib.recipes.parallelism import Parallelism

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


@pytest.mark.parametrize("text", ["{}", "MODEL_ARGS:\nENV_VARS:\n", "MODEL_ARGS: []\n"])
def test_a_missing_setting_has_its_default(text: str) -> None:
    assert Parallelism.parse(text) == Parallelism()


def test_a_config_is_read() -> None:
    read = Parallelism.parse(CONFIG)
    assert read == Parallelism(2, 4, 8, 16, "Megatron-FSDP", True, 1)
    assert read.model == 64
    more = "  --expert-model-parallel-size: 2\n"
    more += "  --expert-tensor-parallel-size: 1\n"
    experts = Parallelism.parse(CONFIG + more)
    assert (experts.expert, experts.expert_tensor) == (2, 1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "x.yaml"),
        ("just words", "x.yaml"),
        ("", "x.yaml"),
        ("MODEL_ARGS: {--context-parallel-size: many}", "sets --context-parallel-size to 'many'"),
        ("MODEL_ARGS: {--num-attention-heads: true}", "sets --num-attention-heads to 'True'"),
        ("ENV_VARS: {CUDA_DEVICE_MAX_CONNECTIONS: -1}", "sets CUDA_DEVICE_MAX_CONNECTIONS to '-1'"),
    ],
)
def test_a_config_that_cannot_be_read_is_refused(text: str, says: str) -> None:
    with pytest.raises(CannotTell, match=says):
        Parallelism.parse(text, "x.yaml")


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(CannotTell):
        parallelism = Parallelism.parse(f"MODEL_ARGS:\n  --tensor-model-parallel-size: {text}")
        assert parallelism.tensor >= 1 or f"TP is {parallelism.tensor}" in parallelism.problems(8)[0]


@pytest.mark.parametrize(
    ("parallelism", "world_size", "words"),
    [
        (Parallelism(), 1, []),
        (Parallelism(), 8, []),
        (Parallelism(2, 2, 2), 8, []),
        (Parallelism(2, 2, 2), 32, []),
        (Parallelism(4, heads=8), 4, []),
        (Parallelism(2, 2, 2), 12, ["multiple of 8 (TP 2 × CP 2 × PP 2)"]),
        (Parallelism(4), 2, ["multiple of 4 (TP 4 × CP 1 × PP 1)"]),
        (Parallelism(), 0, ["WORLD_SIZE is 0"]),
        (Parallelism(3, heads=8), 3, ["8 attention heads"]),
        (Parallelism(2, expert=4, expert_tensor=1), 4, []),
        (Parallelism(2, expert=4), 8, []),
        (Parallelism(2, expert=4), 4, ["multiple of 8 (expert TP 2 × EP 4 × PP 1)"]),
        (Parallelism(expert_tensor=2), 1, ["multiple of 2 (expert TP 2 × EP 1 × PP 1)"]),
        (Parallelism(expert=0), 3, ["EP is 0"]),
        (Parallelism(0, pipeline=0), 3, ["TP is 0 and PP is 0"]),
    ],
)
def test_the_problems_of_a_number_of_gpus(parallelism: Parallelism, world_size: int, words: list[str]) -> None:
    problems = parallelism.problems(world_size)
    assert len(problems) == len(words)
    assert all(word in problem for word, problem in zip(words, problems, strict=True))
