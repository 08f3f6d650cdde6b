"""The value of ``CUDA_DEVICE_MAX_CONNECTIONS`` that a test needs for its hardware and parallelism.  Pure.

Sources in Megatron-LM: ``skills/mcore-run-on-slurm`` ("CUDA_DEVICE_MAX_CONNECTIONS"), and the assertions and warnings
of ``validate_args`` in ``megatron/training/arguments.py``: before Blackwell TP > 1 or CP > 1 asserts 1, unless FSDP or
overlapped expert communication is on; both kinds of FSDP assert that it is not 1, on any hardware.
"""

from dataclasses import dataclass
from typing import Literal

from runbook_lib.errors import CannotTell, Refused
from runbook_lib.recipes.parallelism import VARIABLE, Parallelism

Architecture = Literal["ampere", "hopper", "blackwell"]

#: The GPU generation of each platform of the recipes.
PLATFORMS: dict[str, Architecture] = {
    "dgx_a100": "ampere", "dgx_h100": "hopper", "dgx_h200": "hopper", "dgx_b200": "blackwell",
    "dgx_b300": "blackwell", "dgx_gb200": "blackwell", "dgx_gb300": "blackwell",
}  # fmt: skip
OVERLAPPED = 32


@dataclass(frozen=True)
class Connections:
    """``value`` is None if the variable must stay unset; ``reason`` is a sentence."""

    value: int | None
    reason: str


def architecture(platform: str) -> Architecture:
    """Return the GPU generation of a platform; blanks in its name, a typo of some recipes, are ignored.

    Raises CannotTell for an unknown platform.
    """
    name = "".join(platform.split())
    if name in PLATFORMS:
        return PLATFORMS[name]
    raise CannotTell(
        f"The GPUs of the platform {platform!r} are unknown, so {VARIABLE} cannot be chosen for it. Known are: "
        f"{', '.join(PLATFORMS)}."
    )


def choose(gpus: Architecture, parallelism: Parallelism) -> Connections:
    """Return the value to export: the test's own, if it sets one that contradicts no rule.

    Raises Refused, with the reason, where two settings of the test exclude each other or its own value is wrong.
    """
    if parallelism.torch_fsdp2 and parallelism.megatron_fsdp:
        raise Refused(
            f"No {VARIABLE} works for Torch-FSDP2 and Megatron-FSDP together: a test must use only one of them."
        )
    fsdp = ""
    if parallelism.torch_fsdp2:
        fsdp = "Torch-FSDP2"
    elif parallelism.megatron_fsdp:
        fsdp = "Megatron-FSDP"
    overlapped, own = parallelism.overlap_expert_communication, parallelism.connections
    sizes = (("TP", parallelism.tensor), ("CP", parallelism.context))
    split = " and ".join(f"{name} {size}" for name, size in sizes if size > 1)
    if split and not fsdp and overlapped and (gpus != "blackwell" or own == 1):
        # Before Blackwell one setting needs 1 and the other 32, and only a person can weigh.  A test has one
        # configuration for all platforms, so its choice of 1 applies to Blackwell too.
        if own in (1, OVERLAPPED):
            return Connections(own, f"{split} needs 1, overlapped expert communication {OVERLAPPED}; the test chose.")
        raise Refused(
            f"{split} on {gpus.title()} requires {VARIABLE}=1, and overlapped MoE expert-parallel communication "
            f"{OVERLAPPED}. Set the more important one under ENV_VARS in the test's model_config.yaml, or leave one "
            "of the two out."
        )
    rule = _rule(gpus, split, fsdp, overlapped)
    if own is None or own == rule.value:
        return rule
    if rule.value is not None or (fsdp and own <= 1):
        raise Refused(f"The test sets {VARIABLE} to {own}, which contradicts the rule: {rule.reason}")
    return Connections(own, f"The test sets it, and no rule forbids {own}.")


def _rule(gpus: Architecture, split: str, fsdp: str, overlapped: bool) -> Connections:
    if overlapped:
        reason = f"Overlapped MoE expert-parallel communication needs {OVERLAPPED} for its streams."
        return Connections(OVERLAPPED, reason)
    if fsdp:
        return Connections(None, f"{fsdp} must not run with 1: leave it unset, or set a greater value.")
    if split and gpus != "blackwell":
        return Connections(1, f"{split} on {gpus.title()} without FSDP requires 1: Megatron-LM asserts it.")
    if gpus == "blackwell":
        return Connections(None, "Blackwell does not need it.")
    return Connections(None, "Neither TP nor CP is greater than 1, so nothing requires it.")
