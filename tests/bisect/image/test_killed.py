"""Searches that are killed at random moments and continued."""

import random
from collections import Counter
from pathlib import Path

import pytest
from bisect_world import TEST, World, kill_search

from runbook_lib.bisect.image.ledger import LEDGER
from runbook_lib.bisect.image.report import sentence

KILLS = 15


def moment(folder: Path) -> tuple[int, str]:
    """Return how far a search was: the size of its ledger, and what the newest run has written."""
    ledgers = list(folder.glob(f"results/*/{LEDGER}"))
    size = ledgers[0].stat().st_size if ledgers else 0
    runs = sorted(folder.glob("results/*/runs/*"), key=lambda path: int(path.name))
    names = {path.name for path in runs[-1].iterdir()} if runs else set()
    return size, next((name for name in ("ended", "claim", "run.sh") if name in names), "nothing")


@pytest.mark.slow
def test_killed_at_random_moments_no_run_is_paid_twice(tmp_path: Path) -> None:
    calm = World(tmp_path / "calm")
    expected = calm.go(calm.plan())[0]
    generator, moments, searches = random.Random(7), Counter[tuple[int, int, str]](), 0
    while moments.total() < KILLS:
        searches += 1
        world = World(tmp_path / str(searches), test=TEST.replace("case", "sleep 0.15; case", 1))
        while kill_search(lambda world=world: world.go(world.plan()), generator.uniform(0, 0.5)):  # type: ignore[misc]
            moments[searches, *moment(world.folder)] += 1
            assert len(world.starts) <= len(expected.ledger.runs)
        result, entries = world.go(world.plan())
        assert sentence(result) == sentence(expected)
        assert [(run.point, run.value) for run in result.ledger.runs] == [
            (run.point, run.value) for run in expected.ledger.runs
        ]
        assert len(world.starts) == len(result.ledger.runs)
        assert {entry["status"] for entry in entries if entry["kind"] == "check"} == {"passed"}
    assert len(moments) >= KILLS / 2
    assert {state for _, _, state in moments} >= {"claim", "ended"}
    print(f"{moments.total()} kills at {len(moments)} moments of {searches} searches: {sorted(moments)}")
