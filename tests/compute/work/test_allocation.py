"""Requests to Slurm for nodes."""

import pytest

from runbook_lib.compute.work.allocation import Allocation
from runbook_lib.errors import RunbookError


@pytest.mark.parametrize(
    "text", ["nodes=2 gpus=4 partition=a,b", "nodes=2,gpus=4, partition=a,b", " gpus=4,partition=a,b,nodes=2"]
)
def test_an_allocation_may_name_several_partitions(text: str) -> None:
    assert Allocation.parse(text) == Allocation(2, 4, "", "a,b")


def test_all_parts_are_optional() -> None:
    assert Allocation.parse(" ") == Allocation()


@pytest.mark.parametrize(
    "text",
    ["partition=a,,b", "partition=a,$b", "partition=-x", "account=a,b", "account=a;b", "2", "time=soon", "nodes=0",
     "nodes=x", "gpus=-1", "moon=1", "nodes"],
)  # fmt: skip
def test_invalid_values_are_refused(text: str) -> None:
    with pytest.raises(RunbookError):
        Allocation.parse(text)
