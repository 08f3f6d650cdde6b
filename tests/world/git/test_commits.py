"""Commits made without a work tree: nothing that a user has configured or left there changes them."""

import shutil
from pathlib import Path

import pytest
from clones import git
from stand_ins import stand_in

from runbook_lib.errors import Refused
from runbook_lib.text.edits import Edit
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.git.commits import create_commit, merged_tree, move_branch, tree_with

EDITS = (
    Edit("docker/pin", "26.02\r\n", "26.04\r\n"),
    Edit("run.sh", "old\n", "new\n"),
    Edit("new/file", None, "\udcff\n"),
)


@pytest.fixture
def clone(tmp_path: Path) -> Checkout:
    place = tmp_path / "clone"
    (place / "docker").mkdir(parents=True)
    git(place, "init", "-q")
    (place / "docker" / "pin").write_bytes(b"26.02\r\n")
    (place / "run.sh").write_text("old\n")
    (place / "run.sh").chmod(0o755)
    (place / "link").symlink_to("run.sh")
    git(place, "add", "-A")
    git(place, "commit", "-qm", "one")
    return Checkout.open(place)


def commit(clone: Checkout, branch: str = "bump", edits: tuple[Edit, ...] = EDITS) -> str:
    head = clone.resolve("HEAD")
    made = create_commit(clone, tree_with(clone, head, edits), [head], "Move the pin\n\n- docker/pin")
    move_branch(clone, branch, made, clone.branch_tip(branch))
    return made


def test_no_edits_leave_the_tree_as_it_is(clone: Checkout) -> None:
    assert tree_with(clone, "HEAD", ()) == clone.git("rev-parse", "HEAD^{tree}")
    assert tree_with(clone, "HEAD^{tree}", ()) == clone.git("rev-parse", "HEAD^{tree}")


def test_the_commit_has_exactly_the_planned_contents(clone: Checkout) -> None:
    before = clone.resolve("HEAD")
    made = commit(clone)
    assert clone.read([edit.path for edit in EDITS], made) == {edit.path: edit.after for edit in EDITS}
    modes = {line.split("\t")[1]: line.split()[0] for line in clone.git("ls-tree", "-r", made).splitlines()}
    assert modes == {"docker/pin": "100644", "run.sh": "100755", "new/file": "100644", "link": "120000"}
    message = "Move the pin\n\n- docker/pin\n\nSigned-off-by: Ada Tester <ada@example.org>"
    assert clone.git("log", "-1", "--format=%P%n%B", made).strip() == f"{before}\n{message}"
    assert clone.branch_tip("bump") == made


def _hooks(place: Path) -> None:
    for name in ("pre-commit", "commit-msg", "prepare-commit-msg", "reference-transaction", "post-checkout"):
        stand_in(place / ".git/hooks", name, "exit 1")


def _filter(place: Path) -> None:
    (place / ".git" / "info" / "attributes").write_text("* filter=shout text eol=crlf ident\n")
    git(place, "config", "filter.shout.clean", "tr a-z A-Z")


def _dirty(place: Path) -> None:
    (place / "docker" / "pin").write_text("mine\n")
    (place / "run.sh").write_text("staged\n")
    git(place, "add", "run.sh")


STATES = {
    "hooks that fail": _hooks,
    "a filter and attributes": _filter,
    "autocrlf": lambda place: git(place, "config", "core.autocrlf", "true"),
    "a dirty work tree": _dirty,
    "a sparse work tree": lambda place: git(place, "sparse-checkout", "set", "new"),
    "a detached HEAD": lambda place: git(place, "switch", "-q", "--detach"),
    "a bare repository": lambda place: git(place, "config", "core.bare", "true"),
    "an unfinished merge": lambda place: (place / ".git" / "MERGE_HEAD").write_text(git(place, "rev-parse", "HEAD")),
    "another git that runs": lambda place: (place / ".git" / "index.lock").touch(),
}


@pytest.mark.parametrize("state", STATES)
def test_the_state_of_the_clone_changes_nothing(clone: Checkout, state: str) -> None:
    expected = tree_with(clone, "HEAD", EDITS)
    STATES[state](clone.path)
    listed = ["-c", "core.bare=false", "--work-tree", ".", "--no-optional-locks", "status", "--porcelain=v2"]
    before = git(clone.path, *listed), git(clone.path, "rev-parse", "HEAD")
    made = commit(clone)
    assert clone.git("rev-parse", f"{made}^{{tree}}") == expected
    assert (git(clone.path, *listed), git(clone.path, "rev-parse", "HEAD")) == before


@pytest.mark.parametrize(
    ("path", "named"),
    [("link", "link"), ("link/file", "link"), ("run.sh/file", "run.sh"), ("docker", "docker"), ("sub", "sub")],
)
def test_only_ordinary_files_are_edited(clone: Checkout, path: str, named: str) -> None:
    git(clone.path, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    git(clone.path, "commit", "-qm", "a submodule")
    with pytest.raises(Refused, match=named):
        tree_with(clone, "HEAD", [Edit(path, None, "text")])


@pytest.mark.parametrize("attribute", ["lfs", "git-crypt", "crypt"])
def test_pointers_and_encrypted_files_are_refused(clone: Checkout, attribute: str) -> None:
    (clone.path / ".gitattributes").write_text(f"docker/* filter={attribute}\n")
    git(clone.path, "add", ".gitattributes")
    git(clone.path, "commit", "-qm", "attributes")
    with pytest.raises(Refused, match="docker/pin"):
        tree_with(clone, "HEAD", EDITS)


def test_a_file_that_changed_since_the_plan_is_refused(clone: Checkout) -> None:
    with pytest.raises(Refused, match="docker/pin"):
        tree_with(clone, "HEAD", [Edit("docker/pin", "other", "26.04")])


def test_a_branch_that_moved_meanwhile_is_not_overwritten(clone: Checkout) -> None:
    head, made = clone.resolve("HEAD"), commit(clone)
    for old in (None, head):
        with pytest.raises(Refused):
            move_branch(clone, "bump", head, old)
    assert clone.branch_tip("bump") == made


def test_a_work_tree_that_has_the_branch_follows(clone: Checkout) -> None:
    (clone.path / "untracked").write_text("mine")
    made = commit(clone, branch=str(clone.current_branch()))
    assert clone.resolve("HEAD") == made
    assert (clone.path / "docker" / "pin").read_bytes() == b"26.04\r\n"
    assert git(clone.path, "status", "--porcelain") == "?? untracked"


def test_a_work_tree_whose_folder_was_deleted_follows_nothing(clone: Checkout, tmp_path: Path) -> None:
    git(clone.path, "worktree", "add", "-q", "-b", "bump", str(tmp_path / "deleted"))
    shutil.rmtree(tmp_path / "deleted")
    assert clone.branch_tip("bump") == clone.resolve("HEAD") != commit(clone) == clone.branch_tip("bump")


def test_a_run_killed_between_the_files_and_the_branch_is_continued(clone: Checkout) -> None:
    head, branch = clone.resolve("HEAD"), str(clone.current_branch())
    made = create_commit(clone, tree_with(clone, head, EDITS), [head], "Move the pin")
    git(clone.path, "read-tree", "-m", "-u", head, made)
    move_branch(clone, branch, made, head)
    assert git(clone.path, "status", "--porcelain") == ""


def test_a_work_tree_that_cannot_follow_stops_the_commit(clone: Checkout) -> None:
    branch, head = str(clone.current_branch()), clone.resolve("HEAD")
    _dirty(clone.path)
    with pytest.raises(Refused, match=str(clone.path)):
        commit(clone, branch=branch)
    assert clone.resolve("HEAD") == head
    assert (clone.path / "docker" / "pin").read_text() == "mine\n"


def test_it_is_signed_where_git_is_configured_to_sign(clone: Checkout, tmp_path: Path) -> None:
    stand_in(tmp_path, "gpg", "cat >/dev/null; echo '[GNUPG:] SIG_CREATED ' >&2; echo SIGNED")
    git(clone.path, "config", "gpg.program", str(tmp_path / "gpg"))
    assert "SIGNED" not in clone.git("cat-file", "commit", commit(clone))
    git(clone.path, "config", "commit.gpgSign", "true")
    assert "SIGNED" in clone.git("cat-file", "commit", commit(clone))


def test_a_merge_is_git_s_own_and_a_conflict_is_refused(clone: Checkout) -> None:
    ours = commit(clone)
    (clone.path / "other").write_text("theirs\n")
    git(clone.path, "add", "other")
    git(clone.path, "commit", "-qm", "two")
    theirs = clone.resolve("HEAD")
    tree = merged_tree(clone, ours, theirs)
    assert clone.read(["other", "run.sh"], tree) == {"other": "theirs\n", "run.sh": "new\n"}
    (clone.path / "run.sh").write_text("conflict\n")
    git(clone.path, "commit", "-qam", "three")
    with pytest.raises(Refused):
        merged_tree(clone, ours, clone.resolve("HEAD"))
