"""The plan of a bump: each commit is read and planned once, however many parts of a bump need its plan."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from whole_bump import playing

from runbook_lib.pins.repositories import MEGATRON_LM
from runbook_lib.world.git.checkout import Checkout


def test_no_notebook_of_a_bump_plans_a_commit_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: Counter[str] = Counter()
    every_commit: set[str] = set()
    read = Checkout.read

    def counting(checkout: Checkout, paths: Iterable[str], ref: str | None = None) -> dict[str, str | None]:
        listed = tuple(paths)
        if listed == MEGATRON_LM.sites.paths and ref is not None:
            planned[ref] += 1
        return read(checkout, listed, ref)

    monkeypatch.setattr(Checkout, "read", counting)
    with playing(tmp_path) as played:
        for notebook in ("00-preflight", "01-github-pin", "02-gitlab-pin", "03-open-pr", "04-run-ci"):
            planned.clear()
            played.play(notebook)
            assert set(planned.values()) <= {1}, notebook
            every_commit |= planned.keys()
    assert len(every_commit) == 2  # the base, and the commit of the bump
