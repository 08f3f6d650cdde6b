"""Plots that are not drawn, for the tests of steps."""

import pytest

from runbook_lib.display import Picture
from runbook_lib.golden import plots


@pytest.fixture(autouse=True)
def nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put one line in the place of each curve: `golden/test_plots.py` draws them, which takes as long as a step."""
    for name in ("decision", "shift"):
        monkeypatch.setattr(plots, name, lambda *_: Picture("<svg xmlns='http://www.w3.org/2000/svg'/>", "a curve"))
