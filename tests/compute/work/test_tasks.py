"""The table of tasks and steps."""

import tomllib
from importlib import resources
from string import Formatter

import pytest

from runbook_lib.compute.work.tasks import make_step

TABLE = tomllib.loads(resources.files("runbook_lib.compute.work").joinpath("tasks.toml").read_text("utf-8"))


@pytest.mark.parametrize("name", TABLE["steps"])
def test_every_step_of_the_table_is_complete(name: str) -> None:
    row = TABLE["steps"][name]
    assert set(row) <= {"title", "command", "place", "reason", "gpus", "terminal", "env"}
    assert row["place"] in ("host", "container")
    texts = [row["title"], row["command"], row["reason"], *row.get("env", {}).values()]
    fields = {field for text in texts for _, field, _, _ in Formatter().parse(text) if field}
    step = make_step(name, **dict.fromkeys(fields, "one two"))
    assert step.command
    assert step.reason.endswith(".") or step.reason.endswith("one two")
    assert "{" not in f"{step.title}{step.command}{step.reason}{step.env}"


def test_a_value_is_one_word_and_a_tuple_is_as_many_as_it_has() -> None:
    step = make_step("add", package="x", location="extra dev", options=("--optional", "dev"), requirement="x; {y} 'z")
    assert step.command == ("uv", "add", "--no-sync", "--optional", "dev", "x; {y} 'z")
    assert make_step("sync-here", options=()).command == ("uv", "sync")
