"""The rule for CUDA_DEVICE_MAX_CONNECTIONS, as one full decision table."""

import itertools

import pytest

from runbook_lib.errors import CannotTell, Refused
from runbook_lib.recipes.parallelism import PLATFORMS, Architecture, Parallelism, architecture, choose

# FSDP → overlapped → what each hardware gets: without a split, with TP > 1, with CP > 1, with both.
# "-" unset, "?" refused: 1 or 32, a person must choose.
TABLE: dict[tuple[str, bool], dict[Architecture, str]] = {
    ("", False): {"ampere": "- 1 1 1", "hopper": "- 1 1 1", "blackwell": "- - - -"},
    ("", True): {"ampere": "32 ? ? ?", "hopper": "32 ? ? ?", "blackwell": "32 32 32 32"},
    ("torch", False): {"ampere": "- - - -", "hopper": "- - - -", "blackwell": "- - - -"},
    ("torch", True): {"ampere": "32 32 32 32", "hopper": "32 32 32 32", "blackwell": "32 32 32 32"},
    ("megatron", False): {"ampere": "- - - -", "hopper": "- - - -", "blackwell": "- - - -"},
    ("megatron", True): {"ampere": "32 32 32 32", "hopper": "32 32 32 32", "blackwell": "32 32 32 32"},
}
CASES = [
    (gpus, fsdp, overlapped, tensor, context, expected)
    for (fsdp, overlapped), row in TABLE.items()
    for gpus, values in row.items()
    for (context, tensor), expected in zip(itertools.product((1, 2), (1, 2)), values.split(), strict=True)
]


def spread(fsdp: str, overlapped: bool, tensor: int, context: int, given: int | None = None) -> Parallelism:
    kind = {"torch": "Torch-FSDP2", "megatron": "Megatron-FSDP"}.get(fsdp, "")
    return Parallelism(tensor, context, fsdp=kind, overlap_expert_communication=overlapped, connections=given)


def test_every_case() -> None:
    for gpus, fsdp, overlapped, tensor, context, expected in CASES:
        test = spread(fsdp, overlapped, tensor, context)
        if expected == "?":
            with pytest.raises(Refused, match="requires CUDA_DEVICE_MAX_CONNECTIONS=1, and"):
                choose(gpus, test)
        else:
            chosen = choose(gpus, test)
            assert chosen.value == (None if expected == "-" else int(expected)), (gpus, test)
            assert chosen.reason.endswith(".")


@pytest.mark.parametrize("given", [0, 1, 8, 32])
def test_the_tests_own_value_holds_unless_it_contradicts(given: int) -> None:
    for gpus, fsdp, overlapped, tensor, context, expected in CASES:
        test = spread(fsdp, overlapped, tensor, context, given)
        chosen = overlapped and not fsdp and given == 1 and max(tensor, context) > 1  # on Blackwell as elsewhere
        stands = {
            "1": given == 1,
            "32": given == 32 or chosen,
            "-": not fsdp or given > 1,
            "?": not fsdp and given in (1, 32),
        }
        if stands[expected]:
            assert choose(gpus, test).value == given, (gpus, test)
        else:
            with pytest.raises(Refused):
                choose(gpus, test)


@pytest.mark.parametrize(
    ("gpus", "test", "says"),
    [
        ("hopper", spread("megatron", False, 1, 1, 1), "sets .* to 1, .*: Megatron-FSDP must not run with 1"),
        ("blackwell", spread("torch", False, 1, 1, 1), "sets .* to 1, .*: Torch-FSDP2 must not run with 1"),
        ("ampere", spread("", False, 4, 1, 32), "sets .* to 32, .*: TP 4 on Ampere without FSDP requires 1"),
        ("hopper", spread("", True, 1, 1, 1), "sets .* to 1, .* needs 32"),
        ("hopper", spread("", True, 2, 4), "TP 2 and CP 4 on Hopper requires .*=1, .* 32"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(gpus: Architecture, test: Parallelism, says: str) -> None:
    with pytest.raises(Refused, match=says):
        choose(gpus, test)


def test_platforms() -> None:
    assert {name: architecture(name) for name in PLATFORMS} == PLATFORMS
    assert architecture("dg  x_h100") == "hopper"  # as a recipe has it
    with pytest.raises(CannotTell, match=r"'dgx_h10'.*dgx_a100"):
        architecture("dgx_h10")
