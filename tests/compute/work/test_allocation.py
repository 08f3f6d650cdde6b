"""Requests to Slurm for nodes."""

import pytest

from runbook_lib.compute.work.allocation import Allocation
from runbook_lib.errors import RunbookError


@pytest.mark.parametrize(
    "named", [{"partition": "a,,b"}, {"partition": "a,$b"}, {"partition": "-x"}, {"account": "a,b"}, {"time": "soon"}]
)
def test_invalid_values_are_refused(named: dict[str, str]) -> None:
    with pytest.raises(RunbookError):
        Allocation(1, 8, **named)


def test_a_shell_opens_on_one_node() -> None:
    several = Allocation(2, 4, partition="a,b")
    assert list(several.options(gpus=True)) == [
        "--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=4", "--partition=a,b",
    ]  # fmt: skip
    assert "--nodes=1" in several.options(gpus=True, terminal=True)
