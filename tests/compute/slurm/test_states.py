"""Answers of Slurm, as its commands print them."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.compute.slurm.client import ArrayElement, Partition, elements, partitions, seconds
from runbook_lib.errors import CannotTell


@pytest.mark.parametrize("text", ["", "\n", "7 |N/A |RUNNING |0 |None |n \n", "|1 |RUNNING |0 |None |n"])
def test_jobs_without_an_array_are_left_out(text: str) -> None:
    assert elements(text) == ()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("7 |0 |RUNNING |0 |None |n", ArrayElement("n", 7, 0, "RUNNING")),
        ("7   |1  |FAILED |256 |NonZeroExitCode |a|b ", ArrayElement("a|b", 7, 1, "FAILED", "NonZeroExitCode", 1)),
        ("7 |1 |CANCELLED |15 |None |n", ArrayElement("n", 7, 1, "CANCELLED", "", 143)),
        ("7 |1 |FAILED |3:0 |None |n", ArrayElement("n", 7, 1, "FAILED", "", 3)),
        ("7 |1 |FAILED |0:9 |None |n", ArrayElement("n", 7, 1, "FAILED", "", 137)),
        ("7 |1 |COMPLETED |0 |None |n", ArrayElement("n", 7, 1, "COMPLETED", "", 0)),
        ("7 |1 |TIMEOUT | |TimeLimit |n", ArrayElement("n", 7, 1, "TIMEOUT", "TimeLimit")),
        ("7 |1 |BRAND_NEW |0 |None |n", ArrayElement("n", 7, 1, "BRAND_NEW")),
    ],
)
def test_an_element_is_read(line: str, expected: ArrayElement) -> None:
    assert elements(f"{line}\n") == (expected,)


def test_another_format_is_reported() -> None:
    with pytest.raises(CannotTell, match="not the fields"):
        elements("Invalid field requested\n")


@given(st.text(alphabet="0123456789|:RUNING \n", max_size=80))
def test_any_answer_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(CannotTell):
        assert all(element.name is not None for element in elements(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("infinite", None), ("n/a", None), ("30:00", 1800), ("4:00:00", 14400), ("1-00:00:00", 86400), ("", None)],
)
def test_time_limits_as_slurm_writes_them(text: str, expected: int | None) -> None:
    assert seconds(text) == expected


def test_partitions_with_nodes_of_several_kinds() -> None:
    told = "batch*|4:00:00|2|gpu:h100:8(S:0-1)\nbatch*|4:00:00|1|(null)\ngrace|infinite|10+|gpu:4,shard:16\nodd\n"
    assert partitions(told) == (Partition("batch", 14400, 3, 8, True), Partition("grace", None, 10, 4))
    assert partitions("") == ()
