"""Which value ``CUDA_DEVICE_MAX_CONNECTIONS`` must have for a test: a rule over hardware and parallelism.  Pure.

Sources in Megatron-LM: ``skills/mcore-run-on-slurm`` ("CUDA_DEVICE_MAX_CONNECTIONS"), and the assertions and warnings
of ``validate_args`` in ``megatron/training/arguments.py``: before Blackwell TP > 1 or CP > 1 asserts 1, unless FSDP or
overlapped expert communication is on; both kinds of FSDP assert that it is not 1, on any hardware.
"""

from dataclasses import dataclass
from typing import Literal

from runbook_lib.errors import CannotTell, Refused
from runbook_lib.recipes.parallelism import VARIABLE, Parallelism

Architecture = Literal["ampere", "hopper", "blackwell"]

#: What a platform of the recipes is built with.
PLATFORMS: dict[str, Architecture] = {
    "dgx_a100": "ampere",
    "dgx_h100": "hopper",
    "dgx_h200": "hopper",
    "dgx_b200": "blackwell",
    "dgx_b300": "blackwell",
    "dgx_gb200": "blackwell",
    "dgx_gb300": "blackwell",
}
OVERLAPPED = 32


@dataclass(frozen=True)
class Connections:
    """``value`` is None where the variable must stay unset; ``reason`` is a sentence."""

    value: int | None
    reason: str


def architecture(platform: str) -> Architecture:
    """The GPU generation of a platform, blanks in its name left out: recipes have such slips of the pen.

    Raises CannotTell for a platform that is not known.
    """
    if found := PLATFORMS.get("".join(platform.split())):
        return found
    raise CannotTell(
        f"{platform!r} is no platform whose GPUs are known, so {VARIABLE} cannot be chosen for it. Known are: "
        f"{', '.join(PLATFORMS)}."
    )


def choose(gpus: Architecture, spread: Parallelism) -> Connections:
    """The value to export; where the test sets one itself and nothing speaks against it, that one.

    Raises Refused, with the reason, where two settings of the test exclude each other or its own value is wrong.
    """
    if spread.torch_fsdp2 and spread.megatron_fsdp:
        raise Refused(f"No {VARIABLE} fits Torch-FSDP2 and Megatron-FSDP together: a test uses one of them.")
    fsdp = "Torch-FSDP2" if spread.torch_fsdp2 else "Megatron-FSDP" if spread.megatron_fsdp else ""
    split, given = _split(spread), spread.connections
    if split and not fsdp and spread.overlap_expert_communication and (gpus != "blackwell" or given == 1):
        return _either(gpus, split, given)
    rule = _rule(gpus, split, fsdp, spread.overlap_expert_communication)
    if given is None or given == rule.value:
        return rule
    if rule.value is not None or (fsdp and given <= 1):
        raise Refused(f"The test sets {VARIABLE} to {given}, which contradicts the rule: {rule.reason}")
    return Connections(given, f"The test sets it, and nothing speaks against {given}.")


def _rule(gpus: Architecture, split: str, fsdp: str, overlapped: bool) -> Connections:
    if overlapped:
        return Connections(
            OVERLAPPED, f"Overlapped MoE expert-parallel communication needs {OVERLAPPED} for its streams."
        )
    if fsdp:
        return Connections(None, f"{fsdp} must never run with 1: unset, or greater than 1.")
    if split and gpus != "blackwell":
        return Connections(1, f"{split} on {gpus.title()} without FSDP requires 1: Megatron-LM asserts it.")
    if gpus == "blackwell":
        return Connections(None, "Blackwell does not need it.")
    return Connections(None, "Neither TP nor CP is greater than 1, so nothing requires it.")


def _either(gpus: Architecture, split: str, given: int | None) -> Connections:
    """Before Blackwell one wants 1 and the other 32: only a person can say which matters more.

    Such a test has one configuration for all platforms, so its choice of 1 stands on Blackwell too.
    """
    if given in (1, OVERLAPPED):
        return Connections(given, f"{split} wants 1, overlapped expert communication {OVERLAPPED}; the test chose.")
    raise Refused(
        f"{split} on {gpus.title()} requires {VARIABLE}=1, and overlapped MoE expert-parallel communication "
        f"{OVERLAPPED}. Set the one that matters more under ENV_VARS in the test's model_config.yaml, or leave one "
        "of the two out."
    )


def _split(spread: Parallelism) -> str:
    sizes = (("TP", spread.tensor), ("CP", spread.context))
    return " and ".join(f"{name} {size}" for name, size in sizes if size > 1)
