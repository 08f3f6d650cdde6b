"""The parameters of a search: what is accepted, and what is refused before anything runs."""

from dataclasses import replace
from typing import Any

import pytest

from runbook_lib.bisect.places import BisectRequest, parse
from runbook_lib.bisect.step import BisectImage
from runbook_lib.compute.slurm.site import Session, Site
from runbook_lib.errors import RunbookError
from runbook_lib.pins.bump import Bump

SITE = Site("/r")


def read(
    *, site: Site = SITE, tag: str = "26.05-py3", good: str = "26.04-py3", test: str = "true", **changes: Any
) -> BisectRequest:
    return parse(Bump.parse(tag=tag), site, good, test, **changes)


def test_without_a_good_tag_nothing_is_searched() -> None:
    world: Any = None  # it is not asked
    assert BisectImage("", "true", "exit", "40").look(world, Bump.parse(tag="26.05-py3")) is None


@pytest.mark.parametrize(
    ("test", "results", "here"),
    [
        ("gpt/a@dgx_h100", "/r", False),
        ("python3 x.py", "/r", False),
        ("run {image}", "/r", True),
        ("run {tag}", "", True),
        ("practice slow", "", True),
    ],
)
def test_what_is_measured_says_where(test: str, results: str, here: bool) -> None:
    request = read(test=test, site=replace(SITE, results=results), practice=True)
    assert (request.here, request.minutes) == (here, 30)


@pytest.mark.parametrize(
    ("metric", "test", "expected"),
    [
        ("exit", "", ("exit", True)),
        ("", "", ("exit", True)),
        ("value lower", "", ("value", False)),
        ("iteration-time lower", "gpt/a@dgx_h100", ("iteration-time", False)),
        ("throughput higher", "gpt/a@dgx_h100", ("throughput", True)),
    ],
)
def test_a_metric_has_a_direction(metric: str, test: str, expected: tuple[str, bool]) -> None:
    request = read(metric=metric, test=test or "true")
    assert (request.metric, request.higher_is_better) == expected


def test_further_components_make_another_search_but_not_the_budget_and_the_time_limit() -> None:
    limited = replace(SITE, session=Session(time="1:30:00"))
    request, usual = read(budget="60", site=limited), read()
    other = read(site=replace(SITE, components={"flash-attn": "2.7.4.post1", "apex": "25.04"}))
    assert (request.runs, request.minutes, request.key) == (60, 90, usual.key)
    assert other.key != usual.key


@pytest.mark.parametrize(
    "changes",
    [
        {"tag": ""},
        {"good": "26.05-py3", "tag": "26.04-py3"},
        {"good": "26.04-py3-igpu"},
        {"good": "yesterday"},
        {"good": ""},
        {"test": ""},
        {"site": replace(SITE, results="")},
        {"metric": "value"},
        {"metric": "iteration-time", "test": "gpt/a@dgx_h100"},
        {"metric": "speed higher"},
        {"metric": "exit lower", "test": "gpt/a@dgx_h100"},
        {"budget": "many"},
        {"budget": "3"},
        {"budget": "100000"},
    ],
)
def test_a_request_that_cannot_be_searched_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(RunbookError):
        read(**changes)
