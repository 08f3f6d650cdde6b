"""The parallelism of a test, from its ``model_config.yaml``, and the problems of running it on some GPUs.  Pure.

The names and the rules are those of ``arguments.py``, ``parallel_state.py`` and ``transformer_config.py`` of
Megatron-LM; a test's ``MODEL_ARGS`` are that program's options, an absent one has its default there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runbook_lib.errors import CannotTell
from runbook_lib.text import yaml_spans

VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"
#: The option of Megatron-FSDP, and its earlier name, as in Megatron-LM's core_v0.12.0.
_MEGATRON_FSDP = ("--use-megatron-fsdp", "--use-custom-fsdp")


@dataclass(frozen=True)
class Parallelism:
    """Sizes count GPUs; numbers that the test does not set are 0.

    ``expert`` and ``expert_tensor`` are the sizes of its experts' parallelism.  ``connections`` is
    the test's own ``CUDA_DEVICE_MAX_CONNECTIONS``, None if it does not set it.
    """

    tensor: int = 1
    context: int = 1
    pipeline: int = 1
    heads: int = 0
    torch_fsdp2: bool = False
    megatron_fsdp: bool = False
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
        arguments, variables = _mapping(data, "MODEL_ARGS"), _mapping(data, "ENV_VARS")

        def size(name: str, default: int) -> int:
            value = arguments.get(name)
            return default if value is None else _integer(value, name, path)

        connections = variables.get(VARIABLE)
        return cls(
            tensor=size("--tensor-model-parallel-size", 1),
            context=size("--context-parallel-size", 1),
            pipeline=size("--pipeline-model-parallel-size", 1),
            heads=size("--num-attention-heads", 0),
            expert=size("--expert-model-parallel-size", 1),
            expert_tensor=size("--expert-tensor-parallel-size", 0),
            torch_fsdp2=_is_on(arguments, "--use-torch-fsdp2"),
            megatron_fsdp=any(_is_on(arguments, option) for option in _MEGATRON_FSDP),
            overlap_expert_communication=_is_on(arguments, "--overlap-moe-expert-parallel-comm"),
            connections=None if connections is None else _integer(connections, VARIABLE, path),
        )

    def problems(self, world_size: int) -> tuple[str, ...]:
        """Return the reasons, as sentences, why it cannot run on this many GPUs; empty if it can."""
        sizes = (("TP", self.tensor), ("CP", self.context), ("PP", self.pipeline), ("EP", self.expert))
        if wrong := [f"{name} is {size}" for name, size in sizes if size < 1]:
            return (f"{' and '.join(wrong)}; expected at least 1.",)
        problems = []
        if world_size < 1 or world_size % self.model:
            needed = f"{self.model} (TP {self.tensor} × CP {self.context} × PP {self.pipeline})"
            problems.append(f"WORLD_SIZE is {world_size}, which is not a multiple of {needed}.")
        if self.heads % self.tensor:
            problems.append(f"{self.heads} attention heads cannot be divided by TP {self.tensor}.")
        expert_tensor = self.expert_tensor or self.tensor
        expert_model = expert_tensor * self.expert * self.pipeline
        if (self.expert > 1 or self.expert_tensor) and world_size % expert_model:
            needed = f"{expert_model} (expert TP {expert_tensor} × EP {self.expert} × PP {self.pipeline})"
            problems.append(f"WORLD_SIZE is {world_size}, which is not a multiple of {needed}.")
        return tuple(problems)


def _mapping(data: Mapping[Any, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _is_on(arguments: Mapping[str, Any], name: str) -> bool:
    """Return True if the test's script passes the option, which it does for any value except false."""
    return arguments.get(name, False) not in (False, None, "false")


def _integer(value: object, name: str, path: str) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise CannotTell(f"{path} sets {name} to {text[:40]!r}; expected a whole number.")
    return int(text)
