"""Which git will do: an old one is told before anything is done."""

import os
from pathlib import Path

import pytest
from stand_ins import stand_in

from runbook_lib.errors import RunbookError
from runbook_lib.practice.world import open_world
from runbook_lib.world.git import command
from runbook_lib.world.git.checkout import Checkout


@pytest.fixture(autouse=True)
def _anew() -> None:
    command.require.cache_clear()


def pretend(folder: Path, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A git that says this of its version, and else is the one of this machine."""
    (folder / "bin").mkdir()
    real = next(it for it in os.environ["PATH"].split(":") if (Path(it) / "git").exists())
    stand_in(folder / "bin", "git", f'[ "$1" != --version ] || {{ echo "{says}"; exit; }}\nexec "{real}/git" "$@"')
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")


@pytest.mark.parametrize("says", ["git version 2.31.0", "git version 2.39.5 (Apple Git-154)", "git version 3.0.0", "?"])
def test_a_git_that_will_do(tmp_path: Path, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tmp_path, says, monkeypatch)
    command.require()


@pytest.mark.parametrize("says", ["git version 2.30.2", "git version 1.8.3.1", "git version 2.9.windows.1"])
def test_an_older_one_is_reported(seeded: Path, tmp_path: Path, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tmp_path, says, monkeypatch)
    with pytest.raises(RunbookError) as told:
        Checkout.open(seeded / "checkout")
    assert str(told.value).startswith(f"The runbook needs git 2.31 or newer; the git on PATH is '{says}'. Nothing was")


def test_practice_needs_one_that_merges_without_a_work_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tmp_path, "git version 2.34.1", monkeypatch)
    with pytest.raises(
        RunbookError, match=r"The practice environment needs git 2\.38 or newer; the git on PATH is 'git ver"
    ):
        open_world(tmp_path / "practice")
