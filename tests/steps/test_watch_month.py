"""A month of daily `runbook watch` runs, with three new tags, one of them held."""

from collections import Counter
from datetime import date
from pathlib import Path

import pytest
from watched import watched


@pytest.mark.slow
def test_a_month_of_runs_opens_one_pull_request_per_tag(tmp_path: Path) -> None:
    with watched(tmp_path) as place:
        place.offer("26.02")
        place.rules("hold: [{tag: 26.05-py3, reason: no driver yet, until: 2026-07-18}]")
        seen: dict[int, str] = {}
        for day in range(1, 32):
            if day == 3:
                place.offer("26.02", "26.04")
            if day == 8:
                place.merge(place.pulls()[-1].number)
            if day == 11:
                place.offer("26.02", "26.04", "26.05")
            if day == 24:
                place.offer("26.02", "26.04", "26.05", "26.06")
            result = place.watch(date(2026, 7, day))
            assert result.exit_status == 0
            seen[day] = f"{result.state} {result.tag}".strip()
        assert Counter(seen.values()) == {
            "up to date": 2 + 3,  # days 1 and 2; 8 to 10, after the merge
            "open 26.04-py3": 5,
            "waiting": 7,  # days 11 to 17: held
            "open 26.05-py3": 6,  # from the day on which the hold ends
            "open 26.06-py3": 8,
        }
        assert [pull.title.rpartition(" ")[2] for pull in place.pulls()] == ["26.04-py3", "26.05-py3", "26.06-py3"]
