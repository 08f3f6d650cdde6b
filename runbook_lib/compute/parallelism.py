"""The parallelism of a test, from its ``model_config.yaml``: what it needs of its GPUs and their connections.  Pure.

The names and the rules are those of ``arguments.py``, ``parallel_state.py`` and ``transformer_config.py`` of
Megatron-LM; a test's ``MODEL_ARGS`` are that program's options, an absent one has its default there.  Sources of the
value of ``CUDA_DEVICE_MAX_CONNECTIONS``: ``skills/mcore-run-on-slurm``, and the assertions and warnings of
``validate_args``: before Blackwell TP > 1 or CP > 1 asserts 1, unless FSDP or overlapped expert communication is on;
both kinds of FSDP assert that it is not 1, on any hardware.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runbook_lib.compute.workloads import mapping, whole_number
from runbook_lib.errors import CannotTell, Refused
from runbook_lib.text import yaml_spans

VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"
#: The options of the sizes.
_SIZES = {
    "tensor": "--tensor-model-parallel-size", "context": "--context-parallel-size",
    "pipeline": "--pipeline-model-parallel-size", "heads": "--num-attention-heads",
    "expert": "--expert-model-parallel-size", "expert_tensor": "--expert-tensor-parallel-size",
}  # fmt: skip
#: The options of the kinds of FSDP, which exclude each other.
_FSDP = {"--use-torch-fsdp2": "Torch-FSDP2", "--use-megatron-fsdp": "Megatron-FSDP"}


@dataclass(frozen=True)
class Parallelism:
    """Sizes count GPUs; numbers that the test does not set are 0.

    ``fsdp`` is its kind, empty without.  ``expert`` and ``expert_tensor`` are the sizes of its experts' parallelism.
    ``connections`` is the test's own ``CUDA_DEVICE_MAX_CONNECTIONS``, None if it does not set it.
    """

    tensor: int = 1
    context: int = 1
    pipeline: int = 1
    heads: int = 0
    fsdp: str = ""
    overlap_expert_communication: bool = False
    connections: int | None = None
    expert: int = 1
    expert_tensor: int = 0

    @property
    def model(self) -> int:
        """Return the number of GPUs of one copy of the model."""
        return self.tensor * self.context * self.pipeline

    @classmethod
    def parse(cls, text: str, path: str = "model_config.yaml") -> "Parallelism":
        """Parse the text of a ``model_config.yaml``.  Raises CannotTell, with the path, if it cannot be read."""
        try:
            data = yaml_spans.load(text)
        except CannotTell as error:
            raise CannotTell(f"{path} is not valid YAML. Fix it before the test is submitted.") from error
        if not isinstance(data, dict):
            raise CannotTell(f"{path} has no settings (expected MODEL_ARGS and ENV_VARS).")
        arguments, variables = mapping(data.get("MODEL_ARGS")), mapping(data.get("ENV_VARS"))
        sizes = {}
        for field, option in _SIZES.items():
            if (value := arguments.get(option)) is not None:
                sizes[field] = whole_number(value, f"{path} sets {option}")
        connections = variables.get(VARIABLE)
        return cls(
            **sizes,
            fsdp=next((kind for option, kind in _FSDP.items() if _is_on(arguments, option)), ""),
            overlap_expert_communication=_is_on(arguments, "--overlap-moe-expert-parallel-comm"),
            connections=None if connections is None else whole_number(connections, f"{path} sets {VARIABLE}"),
        )

    def problems(self, world_size: int) -> tuple[str, ...]:
        """Return the reasons, as sentences, why it cannot run on this many GPUs; empty if it can."""
        sizes = (("TP", self.tensor), ("CP", self.context), ("PP", self.pipeline), ("EP", self.expert))
        if wrong := [f"{name} is {size}" for name, size in sizes if size < 1]:
            return (f"{' and '.join(wrong)}; expected at least 1.",)
        tensor = self.expert_tensor or self.tensor
        needed = {f"TP {self.tensor} × CP {self.context} × PP {self.pipeline}": self.model}
        if self.expert > 1 or self.expert_tensor:
            factors = f"expert TP {tensor} × EP {self.expert} × PP {self.pipeline}"
            needed[factors] = tensor * self.expert * self.pipeline
        problems = [
            f"WORLD_SIZE is {world_size}, which is not a multiple of {number} ({factors})."
            for factors, number in needed.items() if world_size < 1 or world_size % number
        ]  # fmt: skip
        if self.heads % self.tensor:
            problems.append(f"{self.heads} attention heads cannot be divided by TP {self.tensor}.")
        return tuple(problems)


def _is_on(arguments: Mapping[str, Any], name: str) -> bool:
    """Return True if the test's script passes the option, which it does for any value except false."""
    return arguments.get(name, False) not in (False, None, "false")


#: The platforms of the recipes, by whether their GPUs are Blackwell's or older.
_BLACKWELL = ("dgx_b200", "dgx_b300", "dgx_gb200", "dgx_gb300")
_OLDER = ("dgx_a100", "dgx_h100", "dgx_h200")
OVERLAPPED = 32


def choose(platform: str, test: Parallelism) -> int | None:
    """Return the value of CUDA_DEVICE_MAX_CONNECTIONS: the test's own, if it contradicts no rule; None to unset it.

    Blackwell does not need it.  Blanks in the platform's name, a typo of some recipes, are ignored.  Raises CannotTell
    for an unknown platform, and Refused where two settings of the test exclude each other or its own value is wrong.
    """
    name = "".join(platform.split())
    if name not in (*_BLACKWELL, *_OLDER):
        raise CannotTell(
            f"The GPUs of the platform {platform!r} are unknown, so {VARIABLE} cannot be chosen. Known: "
            f"{', '.join((*_OLDER, *_BLACKWELL))}."
        )
    sizes = (("TP", test.tensor), ("CP", test.context))
    split = "" if test.fsdp else " and ".join(f"{kind} {size}" for kind, size in sizes if size > 1)
    own, rules = test.connections, dict[int, str]()
    if split and name in _OLDER:
        rules[1] = f"Before Blackwell {split} without FSDP requires 1: Megatron-LM asserts it."
    if test.overlap_expert_communication:
        rules[OVERLAPPED] = f"Overlapped MoE expert-parallel communication needs {OVERLAPPED} for its streams."
    if own is None and len(rules) > 1:
        raise Refused(
            f"Two settings of the test exclude each other. {' '.join(rules.values())} Set {VARIABLE} to the more "
            "important one under ENV_VARS in its model_config.yaml, or leave one of the two out."
        )
    if own is None:
        return next(iter(rules), None)
    # A test has one configuration for all platforms, so where it overlaps, its choice of 1 applies to Blackwell too.
    is_chosen = own in rules or (own == 1 and split and rules)
    if not is_chosen and (rules or (test.fsdp and own <= 1)):
        rule = " ".join(rules.values()) or f"{test.fsdp} must not run with 1."
        raise Refused(f"The test sets {VARIABLE} to {own}, which contradicts the rule: {rule}")
    return own
