"""SECURITY.md names tests that exist."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROWS = [line for line in (TESTS.parent / "SECURITY.md").read_text().splitlines() if line.startswith("| ")]


def test_every_named_test_exists() -> None:
    named = {name for row in ROWS for name in re.findall(r"`([\w/]+\.py)`", row)}
    assert len(named) > 30
    assert [name for name in sorted(named) if not (TESTS / name).is_file()] == []
