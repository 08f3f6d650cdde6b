"""The rules of `runbook watch`: read, refused with their line, and judged by the day."""

from datetime import date

import pytest

from runbook_lib.errors import RunbookError
from runbook_lib.pins import pins_file, watch_rules
from runbook_lib.pins.pins_file import SCHEMA
from runbook_lib.pins.watch_rules import Hold, WatchRules
from runbook_lib.text.user_file import load_schema

PINS = "version: 1\nimage: nvcr.io/nvidia/pytorch\npins:\n  - path: Dockerfile\n    find: {arg: BASE}\n"
RULES = "report: issue\ncool-down: 14\nhold:\n  - {tag: 26.04-py3, reason: slow, until: 2026-06-15}\n"
EXPECTED = WatchRules("issue", 14, (Hold("26.04-py3", "slow", date(2026, 6, 15)),))


def parse(text: str) -> WatchRules:
    return watch_rules.parse(text, load_schema("runbook_lib.pins", SCHEMA))


@pytest.mark.parametrize("text", ["", "{}", "# nothing", "hold: []", "cool-down: 0"])
def test_no_rules(text: str) -> None:
    assert parse(text) == WatchRules()
    assert pins_file.parse(PINS, "o/r").watch == WatchRules()


def test_a_pins_file_and_a_file_of_its_own_have_the_same_rules() -> None:
    assert parse(RULES) == parse(RULES.replace("2026-06-15", "'2026-06-15'")) == EXPECTED
    inside = "".join(f"  {line}\n" for line in RULES.splitlines())
    assert pins_file.parse(f"{PINS}watch:\n{inside}", "o/r").watch == EXPECTED


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("hold: [{tag: 26.04-py3, reason: x, until: 2026-02-30}]", "cannot be read"),
        ("hold: [{tag: 26.04-py3, reason: x, until: '2026-02-30'}]", ":1:"),
        ("hold: [{tag: 26.04-py3, reason: x, until: soon}]", ":1:"),
        ("hold: [{tag: 26.04-py3, reason: x, until: 2026-06-15 12:00:00}]", ":1:"),
        ("hold: [{tag: 26.04-py3}]", ":1:"),
        ("cool-down: 7\nhold: [{tag: 'a b', reason: x}]", ":2:"),
        ("cool-down: -1", ":1:"),
        ("cool-down: 2026-06-15", ":1:"),
        ("cooldown: 3", "cool-down"),
        ("report: mail", ":1:"),
    ],
)
def test_a_mistake_has_its_line(text: str, line: str) -> None:
    with pytest.raises(RunbookError) as caught:
        parse(text)
    assert line in str(caught.value)


def test_a_hold_ends_on_its_day_and_the_longest_counts() -> None:
    holds = (Hold("a", "short", date(2026, 1, 2)), Hold("*", "long", date(2026, 1, 4)))
    reasons = []
    for day in range(1, 6):
        hold = watch_rules.active(holds, "a", date(2026, 1, day))
        reasons.append(hold.reason if hold else "")
    assert reasons == ["long", "long", "long", "", ""]
    assert watch_rules.active(holds[:1], "b", date(2026, 1, 1)) is None
    assert watch_rules.active((*holds, Hold("a", "never")), "a", date(2030, 1, 1)) == Hold("a", "never")
