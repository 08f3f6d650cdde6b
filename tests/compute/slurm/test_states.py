"""Answers of Slurm, as its commands print them."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.compute.slurm.client import QueuedJob, queued_jobs
from runbook_lib.errors import CannotTell


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("\n", ()),
        ("7 |RUNNING |None |n\n", (QueuedJob("n", 7, "RUNNING"),)),
        ("7   |FAILED |NonZeroExitCode |a|b \n", (QueuedJob("a|b", 7, "FAILED", "NonZeroExitCode"),)),
        ("7 |A_NEW_STATE |None |n\n8|PENDING|Priority|", (
            QueuedJob("n", 7, "A_NEW_STATE"), QueuedJob("", 8, "PENDING", "Priority"),
        )),
    ],
)  # fmt: skip
def test_the_queue_is_read(text: str, expected: tuple[QueuedJob, ...]) -> None:
    assert queued_jobs(text) == expected


def test_another_format_is_reported() -> None:
    with pytest.raises(CannotTell, match="not the fields"):
        queued_jobs("Invalid field requested\n")


@given(st.text(alphabet="0123456789|:RUNING \n", max_size=80))
def test_any_answer_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(CannotTell):
        assert all(job.id >= 0 for job in queued_jobs(text))
