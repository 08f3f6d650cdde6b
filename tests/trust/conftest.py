"""What the attacks on the project share: which of them run, what they count, and the table at the end.

All of them run where this folder is named on the command line; elsewhere, so in CI, a tenth that the commit draws.
"""

import os
import random
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from figures import LINES, Figures, table

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
_SHARE = 10
#: What the tests counted that passed, in all processes; a hook that gets reports gets no config to keep it in.
_total: Counter[str] = Counter()
_MEMORY, _ROOM = Path("/dev/shm"), 4 * 2**30  # bytes
_IN_MEMORY = pytest.StashKey[Path]()
_failed: set[str] = set()
_FIGURES = re.compile(r"(?<=<!-- figures -->\n).*?(?=<!-- end of figures -->)", re.DOTALL)


def _whole(config: pytest.Config) -> bool:
    """Whether this folder, or a part of it, is named."""
    return any(HERE in [place := Path(arg.split("::")[0]).resolve(), *place.parents] for arg in config.args)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Keep the temporary files of the whole, hundreds of thousands, in memory where there is enough of it.

    On a disk a run waits for what other tests write each time that it makes its own writes durable.
    """
    if not _whole(config) or config.option.basetemp or hasattr(config, "workerinput") or not _MEMORY.is_dir():
        return
    room = os.statvfs(_MEMORY)
    if room.f_bavail * room.f_frsize > _ROOM and not room.f_flag & os.ST_NOEXEC and os.access(_MEMORY, os.W_OK):
        config.option.basetemp = config.stash[_IN_MEMORY] = Path(tempfile.mkdtemp(prefix="runbook-trust-", dir=_MEMORY))


def pytest_unconfigure(config: pytest.Config) -> None:
    if place := config.stash.get(_IN_MEMORY, None):
        shutil.rmtree(place, ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave a tenth of each test's cases, at least one; a case is what its last brackets say."""
    # The longest test begins first: other workers take all the others meanwhile, but the one that is next in its line.
    first = ("test_bumps_in_a_row_leave_nothing_behind", "test_the_points_are_of_all_steps_signals_and_processes")
    items.sort(key=lambda item: first.index(item.name) if item.name in first else len(first))
    if _whole(config):
        return
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if HERE in item.path.parents:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    draw = random.Random(commit)
    left = {it for all_ in cases.values() for it in draw.sample(all_, len(all_) - max(1, len(all_) // _SHARE))}
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=list(left))


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Much of the time a fault is waited for, and one has the longest test; asked only where this folder is named."""
    return 2 * (os.cpu_count() or 1) + 1


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let the longest test, which comes first, end with the others: they get what it leaves of the processors.

    Where Linux groups processes by session, that holds within a session only, so not for kernels and git.
    """
    if _whole(item.config) and item.path.name != "test_soak.py" and hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


@pytest.fixture(scope="session")
def whole(request: pytest.FixtureRequest) -> bool:
    """Whether all of the attacks run; else a test that is one long case does about a tenth of it."""
    return _whole(request.config)


@pytest.fixture
def figures(record_property: Any) -> Iterator[Figures]:
    """Counts what this test tried; it goes into the table only where the test passes."""
    counted = Figures()
    yield counted
    record_property("figures", dict(counted))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed.add(report.nodeid)
    if report.when == "teardown" and report.nodeid not in _failed:
        for name, counted in report.user_properties:
            if name == "figures" and isinstance(counted, dict):
                _total.update(counted)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    if not _total:
        return
    whole = _whole(config)
    terminalreporter.section("what was attacked" if whole else "what was attacked (a tenth, drawn by the commit)")
    text = table(_total)
    terminalreporter.write_line(text)
    page = ROOT / "SECURITY.md"
    # A part of the tests, and tests that failed, prove less than the figures there say.
    if whole and exitstatus == 0 and set(LINES) <= set(_total) and page.is_file():
        before = page.read_text()
        after = _FIGURES.sub(lambda _: text + "\n", before)
        if after != before:
            page.write_text(after)
            terminalreporter.write_line("SECURITY.md tells these figures now.")
