"""Where a bump stands, and how the checkout gets onto its branch, in real clones."""

import os
import subprocess
from pathlib import Path

import pytest

from runbook_lib.bump import Bump
from runbook_lib.errors import Refused, RunbookError, Unreachable
from runbook_lib.git.checkout import Checkout
from runbook_lib.text.edits import Edit
from runbook_lib.workflow import bump_branch

BUMP = Bump.parse(tag="26.04-py3", apply=True)
EDIT = Edit("pin", "old\n", "new\n")


def git(place: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(place), *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    subprocess.run(["git", "init", "-q", "-b", "main", str(source)], check=True)
    (source / "pin").write_text("old\n")
    (source / "other").write_text("old\n")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "first")
    bare = tmp_path / "remote.git"
    subprocess.run(["git", "clone", "-q", "--bare", str(source), str(bare)], check=True)
    return bare


@pytest.fixture
def checkout(tmp_path: Path, remote: Path) -> Checkout:
    subprocess.run(["git", "clone", "-q", str(remote), str(tmp_path / "clone")], check=True)
    return Checkout.open(tmp_path / "clone")


def state(checkout: Checkout) -> tuple[str, ...]:
    files = [f"{path.name}={path.read_bytes()!r}" for path in sorted(checkout.path.iterdir()) if path.is_file()]
    return (*files, checkout.git("status", "--porcelain=v2", "--branch"), checkout.git("for-each-ref"))


def test_looking_changes_nothing(checkout: Checkout) -> None:
    before = state(checkout)
    found = bump_branch.find(checkout, BUMP)
    assert (found.tip, found.start) == (None, checkout.resolve("main"))
    assert found.texts(["pin", "gone"]) == {"pin": "old\n", "gone": None}
    assert state(checkout) == before


def test_a_stale_clone_plans_on_the_newest_base(checkout: Checkout, remote: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "clone", "-q", str(remote), str(tmp_path / "other")], check=True)
    (tmp_path / "other/pin").write_text("newer\n")
    git(tmp_path / "other", "commit", "-qam", "newer")
    git(tmp_path / "other", "push", "-q")
    assert bump_branch.find(checkout, BUMP).texts(["pin"]) == {"pin": "newer\n"}


def test_edits_land_on_the_bumps_branch_and_again_nothing_is_to_do(checkout: Checkout) -> None:
    (checkout.path / "other").write_text("a person's own work\n")
    assert bump_branch.apply_edits(bump_branch.find(checkout, BUMP), [EDIT]) == [EDIT]
    assert checkout.current_branch() == BUMP.branch
    assert checkout.read(["pin", "other"]) == {"pin": "new\n", "other": "a person's own work\n"}
    assert bump_branch.apply_edits(bump_branch.find(checkout, BUMP), [EDIT]) == []
    checkout.commit(["pin"], "move")
    found = bump_branch.find(checkout, BUMP)
    assert found.texts(["pin"]) == {"pin": "new\n"}
    assert found.on_branch


def test_uncommitted_edits_that_equal_the_plan_are_taken_up_from_another_branch(checkout: Checkout) -> None:
    (checkout.path / "pin").write_text("new\n")
    checkout.git("add", "pin")
    bump_branch.apply_edits(bump_branch.find(checkout, BUMP), [EDIT])
    assert checkout.current_branch() == BUMP.branch
    assert checkout.git("diff", "--name-only", "HEAD") == "pin"


def test_a_killed_runs_incomplete_files_are_removed(checkout: Checkout) -> None:
    with subprocess.Popen(["true"]) as gone:
        pass
    left = checkout.path / f".other.{gone.pid}-01234567.tmp"
    mine, foreign = checkout.path / f".pin.{os.getpid()}-01234567.tmp", checkout.path / ".pin.tmp"
    for file in (left, mine, foreign):
        file.write_text("ol")
    bump_branch.apply_edits(bump_branch.find(checkout, BUMP), [EDIT])
    assert [file.exists() for file in (left, mine, foreign)] == [False, True, True]


def test_other_uncommitted_changes_in_a_file_to_edit_are_refused(checkout: Checkout) -> None:
    (checkout.path / "pin").write_text("mine\n")
    before = state(checkout)
    with pytest.raises(Refused, match="uncommitted changes that are not part of this bump"):
        bump_branch.apply_edits(bump_branch.find(checkout, BUMP), [EDIT])
    assert state(checkout) == before


@pytest.mark.parametrize("detached", [False, True])
@pytest.mark.parametrize("uncommitted", [False, True])
def test_when_an_edit_fails_the_checkout_is_as_it_was(checkout: Checkout, detached: bool, uncommitted: bool) -> None:
    if detached:
        checkout.git("switch", "--quiet", "--detach")
    if uncommitted:
        (checkout.path / "pin").write_text("new\n")
    before = state(checkout)
    with pytest.raises(Refused, match="has changed since the plan was made"):
        bump_branch.apply_edits(bump_branch.find(checkout, BUMP), [EDIT, Edit("gone", "a", "b")])
    assert state(checkout) == before


def test_a_branch_that_only_the_remote_has_is_continued(checkout: Checkout, remote: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "clone", "-q", str(remote), str(tmp_path / "other")], check=True)
    other = Checkout.open(tmp_path / "other")
    bump_branch.apply_edits(bump_branch.find(other, BUMP), [EDIT])
    made = other.commit(["pin"], "move")
    other.push("origin", BUMP.branch, BUMP.branch)
    found = bump_branch.find(checkout, BUMP)
    assert found.start == made
    bump_branch.switch_to(found)
    assert checkout.resolve("HEAD") == made


def test_a_branch_that_another_checkout_pushed_meanwhile_is_caught_up_with(
    checkout: Checkout, remote: Path, tmp_path: Path
) -> None:
    branch = bump_branch.find(checkout, BUMP)
    assert not bump_branch.fast_forward(branch)
    bump_branch.apply_edits(branch, [EDIT])  # on its own branch, and not committed yet
    git(tmp_path, "clone", "-q", str(remote), "other")
    git(tmp_path / "other", "switch", "-qc", BUMP.branch)
    (tmp_path / "other" / "pin").write_text("new\n")
    git(tmp_path / "other", "commit", "-qam", "theirs")
    git(tmp_path / "other", "push", "-q", "origin", BUMP.branch)
    branch = bump_branch.find(checkout, BUMP)
    assert bump_branch.fast_forward(branch)
    assert git(checkout.path, "rev-parse", "HEAD") == branch.start
    assert git(checkout.path, "status", "--porcelain") == ""
    assert not bump_branch.fast_forward(branch)


def test_two_branches_of_one_name_that_differ_are_refused(checkout: Checkout, remote: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "clone", "-q", str(remote), str(tmp_path / "other")], check=True)
    for place in (Checkout.open(tmp_path / "other"), checkout):
        place.switch(BUMP.branch, "main")
        place.empty_commit(f"by {place.path.name}")
    git(tmp_path / "other", "push", "-q", "origin", BUMP.branch)
    with pytest.raises(Refused, match="have diverged"):
        bump_branch.find(checkout, BUMP)


def test_a_missing_base_is_reported(checkout: Checkout) -> None:
    with pytest.raises(RunbookError, match="'gone' does not exist"):
        bump_branch.find(checkout, Bump.parse(tag="26.04-py3", base="gone"))


def test_without_the_remote_only_a_local_run_continues(checkout: Checkout, remote: Path) -> None:
    remote.rename(remote.with_name("away"))
    found = bump_branch.find(checkout, BUMP)
    assert found.start == checkout.resolve("origin/main")
    assert any("could not be read" in warning for warning in found.warnings)
    with pytest.raises(Unreachable):
        bump_branch.find(checkout, Bump.parse(tag="26.04-py3", apply=True, publish=True))


def test_a_clone_without_remotes_plans_on_its_own_base(checkout: Checkout) -> None:
    checkout.git("remote", "remove", "origin")
    assert bump_branch.find(checkout, BUMP).start == checkout.resolve("main")


def test_a_missing_push_remote_is_reported(checkout: Checkout) -> None:
    with pytest.raises(RunbookError, match="no remote named 'fork'"):
        bump_branch.find(checkout, Bump.parse(tag="26.04-py3", remote="fork", apply=True, publish=True))
