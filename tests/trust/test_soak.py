"""Bumps in a row and side by side: nothing stays behind, and a late one costs what an early one did."""

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from figures import Figures
from small_runbooks import ROOT, command, environ

from runbook_lib.records.verify import verify
from runbook_lib.runner.kernel import Kernel

#: Bumps in a row, and side by side; outside the whole run about a tenth of them.
ROW, ROW_DRAWN = 200, 20
SIDE, SIDE_DRAWN = 20, 3
#: The share of those side by side that keep their records in one archive.
SHARING = 3


@pytest.fixture
def places(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the test's own, with all that bumps put anywhere; temporary files are gone at the end."""
    home = tmp_path_factory.mktemp("soak")
    # A short path: kernels listen on sockets that are files in it, and their paths may not be long.
    temporary = tmp_path_factory.mktemp("t")
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("RUNBOOK_AUDIT", str(home / "audit"))
    monkeypatch.setenv("RUNBOOK_PRACTICE_HOME", str(home / "practice"))
    yield home
    assert [it.name for it in temporary.iterdir()] == []


@pytest.mark.timeout(3600)
def test_bumps_in_a_row_leave_nothing_behind(places: Path, whole: bool, figures: Figures) -> None:
    bumps = ROW if whole else ROW_DRAWN
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    soaking = [sys.executable, "-P", str(Path(__file__).with_name("soaking.py")), str(bumps)]
    with subprocess.Popen(soaking, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = [json.loads(line) for line in process.stdout]
    assert process.returncode == 0
    assert len(told) == bumps
    assert {(it["state"], *it["problems"]) for it in told} == {("waiting",)}, told[-1]["sentence"]
    for name in ("threads", "open", "children", "temporary"):
        assert [it[name] for it in told[1:] if it[name] != told[0][name]] == [], name
    assert (told[0]["threads"], told[0]["children"], told[0]["temporary"]) == (["MainThread"], [], [])
    window = max(5, bumps // 10)  # the first ones still fill what is filled once
    early, late = told[window : 2 * window], told[-window:]
    for name, unit, allowed in (("objects", 1, 1.01), ("blocks", 1, 1.01), ("resident", 1e6, 1.1)):
        before, after = (statistics.median(it[name] for it in those) / unit for those in (early, late))
        print(f"{name}: {before:.1f}, then {after:.1f}")
        assert after < allowed * before, name
    print(f"a bump: {statistics.median(it['cpu'] for it in told):.2f} s of processor time")
    figures["bumps"] += bumps


def test_a_kernel_ends_with_its_run(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", None)  # or that of another test is remembered
    before = psutil.Process().children(recursive=True)
    with Kernel(dict(os.environ), places) as kernel:
        kernel.begin({}, places)
        assert psutil.Process().children(recursive=True) != before
        assert list(Path(os.environ["TMPDIR"]).iterdir())
    assert psutil.Process().children(recursive=True) == before
    assert "kernel" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.timeout(1800)
def test_bumps_side_by_side_leave_nothing_behind(places: Path, whole: bool, figures: Figures) -> None:
    """As many people would start them at once on one machine, a third of them with one archive."""
    bumps = SIDE if whole else SIDE_DRAWN
    notebook = ROOT / "runbooks/bump.ipynb"
    started = []
    for number in range(bumps):
        audit = places / ("audit" if number % SHARING == 0 else f"audit-{number}")
        env = environ(RUNBOOK_PRACTICE_HOME=str(places / f"practice-{number}"), RUNBOOK_AUDIT=str(audit))
        del env["GITHUB_REPOSITORY"]
        order = command(notebook, places / f"bump-{number}.ipynb", "-p", "tag", "26.04-py3")
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        started.append(subprocess.Popen(order, env=env, text=True, **pipes))
    said = [process.communicate()[0] for process in started]
    for process, text in zip(started, said, strict=True):
        assert (process.returncode, "Traceback" in text) == (0, False), text
    for audit in sorted(places.glob("audit*")):
        problems, counts = verify(audit)
        runs = len(range(0, bumps, SHARING)) if audit.name == "audit" else 1
        assert (problems, counts.running, counts.records % runs) == ([], 0, 0)
        assert counts.records // runs >= 9
    assert _of_these(places) == []
    figures["bumps"] += bumps


def _of_these(places: Path) -> list[str]:
    """Processes of these bumps that are still there a moment after all of them have ended."""
    give_up = time.monotonic() + 60
    while (found := [it for it in psutil.process_iter() if _works_in(it, places)]) and time.monotonic() < give_up:
        time.sleep(0.1)
    return [str(it) for it in found]


def _works_in(process: psutil.Process, places: Path) -> bool:
    try:
        return str(places) in process.environ().get("RUNBOOK_AUDIT", "")
    except psutil.Error:
        return False
