"""The rules of `runbook watch`: read, and refused with their line."""

import pytest

from runbook_lib.errors import RunbookError
from runbook_lib.pins import pins_file, watch_rules
from runbook_lib.pins.pins_file import SCHEMA
from runbook_lib.pins.watch_rules import WatchRules
from runbook_lib.text.user_file import load_schema

PINS = "version: 1\nimage: nvcr.io/nvidia/pytorch\npins:\n  - path: Dockerfile\n    find: {arg: BASE}\n"
RULES = "cool-down: 14\nhold:\n  - {tag: 26.04-py3, reason: slow}\n"


def parse(text: str) -> WatchRules:
    return watch_rules.parse(text, load_schema("runbook_lib.pins", SCHEMA))


@pytest.mark.parametrize("text", ["", "{}", "# nothing", "hold: []", "cool-down: 0"])
def test_no_rules(text: str) -> None:
    assert parse(text) == WatchRules()
    assert pins_file.parse(PINS, "o/r").watch == WatchRules()


def test_a_pins_file_and_a_file_of_its_own_have_the_same_rules() -> None:
    inside = "".join(f"  {line}\n" for line in RULES.splitlines())
    expected = WatchRules(14, (("26.04-py3", "slow"),))
    assert parse(RULES) == pins_file.parse(f"{PINS}watch:\n{inside}", "o/r").watch == expected


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("hold: [{tag: 26.04-py3}]", ":1:"),
        ("cool-down: 7\nhold: [{tag: 'a b', reason: x}]", ":2:"),
        ("hold: [{tag: 26.04-py3, reason: x, until: 2026-06-15}]", ":1:"),
        ("cool-down: -1", ":1:"),
        ("cool-down: 2026-06-15", ":1:"),
        ("cooldown: 3", "cool-down"),
    ],
)
def test_a_mistake_has_its_line(text: str, line: str) -> None:
    with pytest.raises(RunbookError) as caught:
        parse(text)
    assert line in str(caught.value)


def test_a_star_holds_every_tag() -> None:
    rules = WatchRules(holds=(("a", "slow"), ("*", "freeze")))
    assert [rules.hold(tag) for tag in ("a", "b")] == ["slow", "freeze"]
    assert WatchRules(holds=(("a", "slow"),)).hold("b") == ""
