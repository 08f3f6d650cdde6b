"""Where a bump stands, in real clones."""

from pathlib import Path

import pytest
from clones import git, state

from runbook_lib.errors import Refused, RunbookError, Unreachable
from runbook_lib.pins.bump import Bump
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.git.checkout import Checkout

BUMP = Bump.parse(tag="26.04-py3", mode="local")


def test_looking_changes_nothing(checkout: Checkout) -> None:
    before = state(checkout)
    found = BumpBranch.find(checkout, BUMP)
    assert (found.tip, found.start) == (None, checkout.resolve("main"))
    assert found.texts(["pin", "gone"]) == {"pin": "old\r\n", "gone": None}
    assert state(checkout) == before


def test_a_stale_clone_plans_on_the_newest_base(checkout: Checkout, remote: Path, tmp_path: Path) -> None:
    git(remote, "clone", "-q", ".", str(tmp_path / "other"))
    (tmp_path / "other/pin").write_text("newer\n")
    git(tmp_path / "other", "commit", "-qam", "newer")
    git(tmp_path / "other", "push", "-q")
    assert BumpBranch.find(checkout, BUMP).texts(["pin"]) == {"pin": "newer\n"}


def test_a_branch_that_only_the_remote_has_is_continued(checkout: Checkout, remote: Path, tmp_path: Path) -> None:
    git(remote, "clone", "-q", ".", str(tmp_path / "other"))
    git(tmp_path / "other", "switch", "-qc", BUMP.branch)
    git(tmp_path / "other", "commit", "-q", "--allow-empty", "-m", "move")
    git(tmp_path / "other", "push", "-q", "origin", BUMP.branch)
    found = BumpBranch.find(checkout, BUMP)
    assert found.start == found.tip == found.remote_tip == git(remote, "rev-parse", BUMP.branch)
    assert any("missing from this clone" in warning for warning in found.warnings)


def test_two_branches_of_one_name_that_differ_are_refused(checkout: Checkout, remote: Path, tmp_path: Path) -> None:
    git(remote, "clone", "-q", ".", str(tmp_path / "other"))
    for place in (tmp_path / "other", checkout.path):
        git(place, "switch", "-qc", BUMP.branch)
        git(place, "commit", "-q", "--allow-empty", "-m", f"by {place.name}")
    git(tmp_path / "other", "push", "-q", "origin", BUMP.branch)
    with pytest.raises(Refused, match="have diverged"):
        BumpBranch.find(checkout, BUMP)


def test_without_the_remote_only_a_local_run_continues(checkout: Checkout, remote: Path) -> None:
    remote.rename(remote.with_name("away"))
    found = BumpBranch.find(checkout, BUMP)
    assert found.start == checkout.resolve("origin/main")
    assert sum("could not be read" in warning for warning in found.warnings) == 1
    with pytest.raises(Unreachable):
        BumpBranch.find(checkout, Bump.parse(tag="26.04-py3", mode="publish"))


def test_a_clone_without_remotes_plans_on_its_own_base(checkout: Checkout) -> None:
    checkout.git("remote", "remove", "origin")
    assert BumpBranch.find(checkout, BUMP).start == checkout.resolve("main")
    with pytest.raises(RunbookError, match="'gone' does not exist"):
        BumpBranch.find(checkout, Bump.parse(tag="26.04-py3", base="gone"))


def test_a_missing_push_remote_is_reported(checkout: Checkout) -> None:
    with pytest.raises(RunbookError, match="no remote named 'fork'"):
        BumpBranch.find(checkout, Bump.parse(tag="26.04-py3", remote="fork", mode="publish"))
