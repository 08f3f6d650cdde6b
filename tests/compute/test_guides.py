"""Every command and every pitfall of the projects' guides is a row, a rule or a documented line, by ``guides.toml``."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from runbook_lib.compute.tasks import TABLE
from runbook_lib.failures.patterns import read_table

ROOT = Path(__file__).parents[2]
GUIDES: dict[str, dict[str, Any]] = tomllib.loads((Path(__file__).with_name("guides.toml")).read_text())
ENTRIES = {f"{guide}: {name}": entry for guide, entries in GUIDES.items() for name, entry in entries.items()}
PROBLEMS = {problem["id"] for problem in read_table("known_problems.toml")["problem"]}


def row(path: str) -> object:
    """Return the part of the table of tasks with this dotted name; a key may contain dots."""
    found: Any = TABLE
    words = path.split(".")
    while words:
        length = next(size for size in range(len(words), 0, -1) if ".".join(words[:size]) in found)
        found, words = found[".".join(words[:length])], words[length:]
    return found


@pytest.mark.parametrize("name", ENTRIES)
def test_each_is_a_row_a_rule_or_a_documented_line(name: str) -> None:
    entry = ENTRIES[name]
    if "problem" in entry:
        assert entry["problem"] in PROBLEMS
        return
    text = str(row(entry["row"])) if "row" in entry else (ROOT / entry["file"]).read_text()
    text = " ".join(text.split())
    assert [part for part in entry["has"] if part not in text] == []


def test_no_step_of_the_table_is_unlisted() -> None:
    listed = {entry["row"].split(".")[1] for entry in ENTRIES.values() if entry.get("row", "").startswith("steps.")}
    assert set(TABLE["steps"]) == listed
