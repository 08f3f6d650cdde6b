"""Dumps of the Flight Recorder: which ranks are behind; a dump that would run code is refused."""

import os
import pickle
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.errors import CannotTell
from runbook_lib.triage import flight_recorder, read_logs


def dump(number: int, ranks: str = "[0, 1, 2, 3]") -> bytes:
    entry = {"process_group": ("7", "TENSOR"), "collective_seq_id": number, "is_p2p": False, "state": "scheduled"}
    groups = {"7": {"desc": "TENSOR", "ranks": ranks}}
    return pickle.dumps({"version": "2.10", "pg_config": groups, "entries": [entry] if number else []})


@pytest.mark.parametrize(
    ("numbers", "behind"),
    [
        ((9, 9, 9, 9), {}),
        ((9, 9, 7, 9), {2: "TENSOR"}),
        ((9, 9, 0, 9), {2: "TENSOR"}),
        ((9, 5, 0, 9), {1: "TENSOR", 2: "TENSOR"}),
        ((9,), {}),
        ((9, 1, 1, 1), {}),  # most are behind one: that explains nothing
    ],
)
def test_the_ranks_that_issued_fewer_collectives_are_behind(numbers: tuple[int, ...], behind: dict[int, str]) -> None:
    dumps = {rank: flight_recorder.read(dump(number)) for rank, number in enumerate(numbers)}
    assert flight_recorder.ranks_behind(dumps) == behind


class Attack:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("attacked",)


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(Attack()),
        pickle.dumps([1]),
        b"",
        b"\x80\x04r\xff\xff\xff\x7f.",
        b"{}",
        b"[",
        b"\x80\x05cos\nsystem\n.",
    ],
)
def test_anything_else_is_refused(data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CannotTell):
        flight_recorder.read(data)
    assert not list(tmp_path.iterdir())


def test_a_memo_is_bounded() -> None:
    with pytest.raises(CannotTell, match="memo"):
        flight_recorder.read(b"\x80\x04]r" + (2**25).to_bytes(4, "little") + b".")


@given(st.binary(max_size=60))
def test_no_bytes_are_trusted(data: bytes) -> None:
    with suppress(CannotTell):
        assert "entries" in flight_recorder.read(data)


def test_dumps_beside_logs_name_the_rank(tmp_path: Path) -> None:
    for rank, number in enumerate((9, 9, 9, 6)):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(dump(number))
    (tmp_path / "job.log").write_text(
        "[rank0]:[E] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=X)\n"
    )
    failure = read_logs.diagnose_folder(tmp_path)
    assert (failure.kind, failure.rank) == ("hang", 3)
    assert "3" in failure.cause
