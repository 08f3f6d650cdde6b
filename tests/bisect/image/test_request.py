"""The parameters of a search: what is accepted, and what is refused before anything runs."""

from typing import Any

import pytest

from runbook_lib.bisect.image.request import BisectRequest, SearchOptions, parse
from runbook_lib.errors import RunbookError
from runbook_lib.pins.bump import Bump

GIVEN = {
    "good": "26.04-py3", "bad": "26.05-py3", "test": "", "command": "true", "metric": "exit", "where": "local",
    "image": "", "budget": "40", "minutes": "30",
}  # fmt: skip


def read(**changes: Any) -> BisectRequest | None:
    return parse(Bump.parse(tag=""), SearchOptions(**{**GIVEN, **changes}))


def test_without_tags_nothing_is_searched() -> None:
    assert read(good="", bad="") is None
    assert read(good="") is None


@pytest.mark.parametrize(
    ("metric", "test", "expected"),
    [
        ("exit", "", ("exit", True)),
        ("", "", ("exit", True)),
        ("value lower", "", ("value", False)),
        ("value higher", "", ("value", True)),
        ("iteration-time", "gpt/a@dgx_h100", ("iteration-time", False)),
        ("throughput higher", "gpt/a@dgx_h100", ("throughput", True)),
    ],
)
def test_a_metric_has_a_direction(metric: str, test: str, expected: tuple[str, bool]) -> None:
    request = read(metric=metric, test=test, command="" if test else "true", where="slurm" if test else "local")
    assert request is not None
    assert (request.measure.metric, request.measure.higher_is_better) == expected


@pytest.mark.parametrize(
    ("budget", "expected"), [("40", (40, None)), ("40 runs", (40, None)), ("40 runs, 6.5 GPU hours", (40, 6.5))]
)
def test_a_budget_has_runs_and_gpu_hours(budget: str, expected: tuple[int, float | None]) -> None:
    request = read(budget=budget)
    assert request is not None
    assert (request.budget.runs, request.budget.gpu_hours) == expected
    assert request.key == read().key  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "changes",
    [
        {"bad": ""},
        {"good": "26.05-py3", "bad": "26.04-py3"},
        {"good": "26.05-py3"},
        {"good": "26.04-py3-igpu"},
        {"good": "yesterday"},
        {"components": "flash-attn"},
        {"components": "flash-attn=2.7, driver=595"},
        {"components": "apex=25.04; id"},
        {"command": ""},
        {"test": "gpt/a"},
        {"test": "gpt/a", "command": ""},
        {"where": "cloud"},
        {"where": "command"},
        {"metric": "value"},
        {"metric": "speed higher"},
        {"budget": "many"},
        {"budget": "3"},
        {"budget": "100000"},
        {"minutes": "0"},
        {"image": "registry.example/mcore:latest"},
    ],
)
def test_a_request_that_cannot_be_searched_is_refused(changes: dict[str, str]) -> None:
    with pytest.raises(RunbookError):
        read(**changes)


def test_further_components_have_a_version_and_make_another_search() -> None:
    request = read(components="flash-attn=2.7.4.post1, apex=25.04")
    assert request is not None
    named = [(component.name, component.old) for component in request.components]
    assert named == [("flash-attn", "2.7.4.post1"), ("apex", "25.04")]
    assert request.inputs["components"] == "flash-attn=2.7.4.post1, apex=25.04"
    assert request.key != read().key  # type: ignore[union-attr]
