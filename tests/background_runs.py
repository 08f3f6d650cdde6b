"""Background runs of small notebooks, for the tests of those who start and follow them."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import small_runbooks as small

from runbook_lib.records import run_view
from runbook_lib.records.run_view import RunView
from runbook_lib.runner import background

TAG = "26.04-py3"
SLOW = "print('begun', flush=True)\ntime.sleep(600)"


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def folder(place: Path) -> Path:
    return next(iter((place / "audit").rglob("run.json"))).parents[1]


def run_of(place: Path, launched: background.BackgroundRun) -> RunView:
    run = run_view.find_run(folder(place), process=launched.process)
    assert run is not None
    return run


def start(notebook: Path, *, apply: bool = True) -> background.BackgroundRun:
    return background.start(notebook, {"tag": TAG, "repo": ".", "wait": False, "mode": "local" if apply else "preview"})


def prepare(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set the environment of a form in JupyterLab, with its archive in ``folder``."""
    for name, value in small.environ(RUNBOOK_AUDIT=str(folder / "audit"), JPY_SESSION_NAME="/x/lab.ipynb").items():
        monkeypatch.setenv(name, value)
    return folder
