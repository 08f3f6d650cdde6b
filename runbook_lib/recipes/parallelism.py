"""How a test spreads its model over GPUs, from its ``model_config.yaml``, and whether that fits the GPUs.  Pure.

The names and the rules are those of ``arguments.py``, ``parallel_state.py`` and ``transformer_config.py`` of
Megatron-LM; a test's ``MODEL_ARGS`` are that program's options, an absent one has its default there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runbook_lib.errors import CannotTell
from runbook_lib.text import yaml_spans

VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"
#: The option of Megatron-FSDP, and its name of before, as in Megatron-LM's core_v0.12.0.
_MEGATRON_FSDP = ("--use-megatron-fsdp", "--use-custom-fsdp")


@dataclass(frozen=True)
class Parallelism:
    """Sizes count GPUs; ``data`` is 0 where it follows from the others.  Numbers that the test does not give are 0.

    ``groups`` are the query groups of its attention, ``expert`` and ``expert_tensor`` how its experts are spread.

    ``connections`` is what the test itself sets ``CUDA_DEVICE_MAX_CONNECTIONS`` to, None where it sets nothing.
    """

    tensor: int = 1
    context: int = 1
    pipeline: int = 1
    data: int = 0
    heads: int = 0
    torch_fsdp2: bool = False
    megatron_fsdp: bool = False
    overlap_expert_communication: bool = False
    connections: int | None = None
    groups: int = 0
    experts: int = 0
    expert: int = 1
    expert_tensor: int = 0

    @property
    def model(self) -> int:
        """The GPUs that one copy of the model takes."""
        return self.tensor * self.context * self.pipeline

    @classmethod
    def parse(cls, text: str, path: str = "model_config.yaml") -> "Parallelism":
        """From the text of a ``model_config.yaml``.  Raises CannotTell, with the path, for what cannot be read."""
        try:
            data = yaml_spans.load(text)
        except CannotTell as error:
            raise CannotTell(f"{path} does not parse as YAML. Mend it before the test is submitted.") from error
        if not isinstance(data, dict):
            raise CannotTell(f"{path} holds no settings (expected MODEL_ARGS and ENV_VARS).")
        arguments, variables = _mapping(data, "MODEL_ARGS"), _mapping(data, "ENV_VARS")

        def size(name: str, default: int) -> int:
            value = arguments.get(name)
            return default if value is None else _integer(value, name, path)

        given = variables.get(VARIABLE)
        return cls(
            tensor=size("--tensor-model-parallel-size", 1),
            context=size("--context-parallel-size", 1),
            pipeline=size("--pipeline-model-parallel-size", 1),
            heads=size("--num-attention-heads", 0),
            groups=size("--num-query-groups", 0) if _on(arguments, "--group-query-attention") else 0,
            experts=size("--num-experts", 0),
            expert=size("--expert-model-parallel-size", 1),
            expert_tensor=size("--expert-tensor-parallel-size", 0),
            torch_fsdp2=_on(arguments, "--use-torch-fsdp2"),
            megatron_fsdp=any(_on(arguments, it) for it in _MEGATRON_FSDP),
            overlap_expert_communication=_on(arguments, "--overlap-moe-expert-parallel-comm"),
            connections=None if given is None else _integer(given, VARIABLE, path),
        )

    def problems(self, world_size: int) -> tuple[str, ...]:
        """Why it cannot run on that many GPUs, as sentences; none where it can."""
        sizes = (("TP", self.tensor), ("CP", self.context), ("PP", self.pipeline), ("EP", self.expert))
        if wrong := [f"{name} is {size}" for name, size in sizes if size < 1]:
            return (f"{' and '.join(wrong)}; expected at least 1.",)
        told = []
        spread = f"TP {self.tensor} × CP {self.context} × PP {self.pipeline}"
        if self.data and world_size != self.data * self.model:
            told.append(f"WORLD_SIZE is {world_size}, and {spread} × DP {self.data} needs {self.data * self.model}.")
        elif world_size < 1 or world_size % self.model:
            told.append(f"WORLD_SIZE is {world_size}, which is no multiple of {self.model} ({spread}).")
        if self.heads % self.tensor:
            told.append(f"{self.heads} attention heads cannot be divided by TP {self.tensor}.")
        if self.groups and self.groups % self.tensor and self.tensor % self.groups:
            told.append(f"{self.groups} query groups are neither a multiple nor a divisor of TP {self.tensor}.")
        return (*told, *self._of_experts(world_size))

    def _of_experts(self, world_size: int) -> tuple[str, ...]:
        tensor = self.expert_tensor or self.tensor
        size = tensor * self.expert * self.pipeline
        told = []
        if self.experts % self.expert:
            told.append(f"{self.experts} experts cannot be divided by EP {self.expert}.")
        if (self.expert > 1 or self.expert_tensor) and world_size % size:
            spread = f"expert TP {tensor} × EP {self.expert} × PP {self.pipeline}"
            told.append(f"WORLD_SIZE is {world_size}, which is no multiple of {size} ({spread}).")
        return tuple(told)


def _mapping(data: Mapping[Any, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _on(arguments: Mapping[str, Any], name: str) -> bool:
    """As the test's script passes it: any value but false gives the option."""
    return arguments.get(name, False) not in (False, None, "false")


def _integer(value: object, name: str, path: str) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise CannotTell(f"{path} sets {name} to {text[:40]!r}; expected a whole number.")
    return int(text)
