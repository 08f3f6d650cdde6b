"""What Slurm's answers say, in the forms of its versions."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runbook_lib.compute.slurm.states import ArrayElement, Partition, elements, partitions, seconds
from runbook_lib.errors import CannotTell, Unreachable


def answer(*jobs: dict[str, Any]) -> str:
    return json.dumps({"meta": {}, "errors": [], "jobs": jobs})


def old(index: int | None = 0, state: str = "RUNNING", **more: object) -> dict[str, Any]:
    """As squeue 22.05 prints it."""
    return {"name": "n", "job_id": 9, "array_job_id": 7, "array_task_id": index, "array_task_string": "",
            "job_state": state, "state_reason": "None", "exit_code": 0, "restart_cnt": 0, **more}  # fmt: skip


def number(value: int | None) -> dict[str, Any]:
    return {"set": value is not None, "infinite": False, "number": value or 0}


def new(index: int | None = 0, *states: str, **more: object) -> dict[str, Any]:
    """As squeue 23.11 and later print it."""
    return {"name": "n", "job_id": 9, "array_job_id": number(7), "array_task_id": number(index),
            "array_task_string": "", "job_state": list(states or ("RUNNING",)), "state_reason": "None",
            "restart_cnt": 0, **more}  # fmt: skip


def status(code: int, signal: int | None = None) -> dict[str, Any]:
    return {"status": ["SUCCESS"], "return_code": number(code), "signal": {"id": number(signal), "name": ""}}


@pytest.mark.parametrize("job", [old(array_job_id=0), new(array_job_id=number(0)), new(array_job_id=number(None)), {},
                                 new(array_job_id={"set": True, "infinite": True, "number": 7})])  # fmt: skip
def test_jobs_without_an_array_are_left_out(job: dict[str, Any]) -> None:
    assert elements(answer(job), "squeue") == ()


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (old(0), ArrayElement("n", 7, 0, "RUNNING")),
        (new(3), ArrayElement("n", 7, 3, "RUNNING")),
        (old(1, "FAILED", exit_code=256, state_reason="Why"), ArrayElement("n", 7, 1, "FAILED", "Why", 1)),
        (old(1, "CANCELLED", exit_code=15), ArrayElement("n", 7, 1, "CANCELLED", "", 143)),
        (new(1, "FAILED", exit_code=status(3)), ArrayElement("n", 7, 1, "FAILED", "", 3)),
        (new(1, "CANCELLED", exit_code=status(0, 9)), ArrayElement("n", 7, 1, "CANCELLED", "", 137)),
        (new(1, "COMPLETED", "COMPLETING", exit_code=status(0)), ArrayElement("n", 7, 1, "COMPLETED", "", 0)),
        (new(1, "CONFIGURING", "RUNNING"), ArrayElement("n", 7, 1, "RUNNING")),
        (new(1, "PREEMPTED", "REQUEUED", restart_cnt=2), ArrayElement("n", 7, 1, "PENDING", "", None, 2)),
        (old(1, "REQUEUE_HOLD"), ArrayElement("n", 7, 1, "PENDING")),
        (old(1, "BRAND_NEW"), ArrayElement("n", 7, 1, "BRAND_NEW")),
        (old(None, "PENDING"), ArrayElement("n", 7, None, "PENDING")),
        (old(None, "PENDING", array_task_string="0-3,5,7,..."), ArrayElement("n", 7, None, "PENDING")),
    ],
)  # fmt: skip
def test_an_element_is_read(job: dict[str, Any], expected: ArrayElement) -> None:
    assert elements(answer(job), "squeue") == (expected,)


@pytest.mark.parametrize("job", [old(None, "PENDING", array_task_string="0-2,5,8-12:2%3"),
                                 new(0, "PENDING", array_task_string="0-2,5,8-12:2%3")])  # fmt: skip
def test_elements_that_wait_are_listed_together(job: dict[str, Any]) -> None:
    assert [it.index for it in elements(answer(job), "squeue")] == [0, 1, 2, 5, 8, 10, 12]


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "instead of JSON"), ("slurm_load_jobs error", "instead of JSON"), ("[]", "listed no jobs"),
     ('{"jobs": {}}', "listed no jobs")],
)  # fmt: skip
def test_another_format_is_reported(text: str, says: str) -> None:
    with pytest.raises(CannotTell, match=f"squeue --json .*{says}" if says[0] != "l" else says):
        elements(text, "squeue --json")


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        (
            [{"description": "Failed", "error_number": -1, "error": "Unspecified error"}],
            "'Failed, Unspecified error'",
        ),
        ([{"description": "", "error": 3}], "error"),
        (["odd"], "odd"),
        ({"odd": 1}, "odd"),
    ],
)
def test_errors_in_an_answer_are_quoted(errors: object, told: str) -> None:
    with pytest.raises(Unreachable) as error:
        elements(json.dumps({"errors": errors, "jobs": []}), "squeue --json")
    assert told in str(error.value)


def test_an_answer_with_errors_says_nothing_about_jobs() -> None:
    text = json.dumps({"errors": [{"description": "Failed while looking for jobs"}], "jobs": []})
    with pytest.raises(Unreachable, match="Failed while looking for jobs"):
        elements(text, "squeue")


_KEYS = st.sampled_from([
    "array", "array_job_id", "array_task_id", "array_task_string", "job_state", "state", "current", "exit_code",
    "signal", "id", "set", "number", "job_id", "task_id",
])  # fmt: skip
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=6),
    max_leaves=12,
)


@example([{"array_job_id": -1}, {"array_job_id": 7, "array_task_id": -1}])
@given(st.lists(_JSON, max_size=3))
def test_any_answer_is_read_or_refused(jobs: list[Any]) -> None:
    with contextlib.suppress(CannotTell):
        for element in elements(json.dumps({"jobs": jobs}), "squeue"):
            assert element.job >= 0
            assert element.index is None or element.index >= 0
            assert isinstance(element.state, str)


def test_a_list_of_a_thousand_million_elements_ends() -> None:
    assert len(elements(answer(old(None, array_task_string="0-9999999,0-9999999")), "squeue")) == 100_000


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
