"""Verification of an archive: each change is noticed, and named with its place."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from archives import BUMP, edit, executed, record
from clones import git

from runbook_lib.record import archive, run_file
from runbook_lib.record.store import RecordStore, verify

PIN, CI = "01-github-pin", "04-run-ci"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive, to be copied for each test."""
    root = tmp_path_factory.mktemp("made") / "audit"
    for at, name in enumerate((PIN, CI, "bump")):
        record(root, name, "done", "Done.", at=at)
        (root.joinpath(*BUMP.parts) / "decisions.yaml").write_text(f"hold: [] # {at}")
    record(root, "bump", "running", at=9)
    assert verify(root)[0] == []
    return root


@pytest.fixture
def audit(made: Path, tmp_path: Path) -> Path:
    root = shutil.copytree(made, tmp_path / "audit")
    store = RecordStore(root)
    store.remember(store.head())
    return root


def folder(audit: Path, name: str) -> Path:
    return sorted(audit.joinpath(*BUMP.parts).glob(f"*-{name}-*"))[0]


def link(path: Path) -> None:
    moved = shutil.move(path, path.parents[5] / "elsewhere")
    path.symlink_to(moved)


def rewrite(audit: Path, change: Callable[[Path], object]) -> None:
    """Change a record, make its digests fit, and commit that like the runbook."""
    place = folder(audit, CI)
    change(place)
    git(audit, "add", "-A", "-f", str(place))
    git(audit, "commit", "-q", "-m", "x")


def sealed(place: Path, state: str) -> None:
    """Close a record in this state, with a notebook."""
    (place / "executed.ipynb").write_text("x")
    run_file.seal(place, run_file.read(place) | {"state": state})


def without_first_commits(audit: Path) -> None:
    tree = git(audit, "rev-parse", "HEAD^{tree}")
    git(audit, "update-ref", "HEAD", git(audit, "commit-tree", "-m", "all", tree))


def removed_object(audit: Path) -> None:
    blob = git(audit, "rev-parse", f"HEAD:{folder(audit, PIN).relative_to(audit)}/report.html")
    (audit / ".git/objects" / blob[:2] / blob[2:]).unlink()


def copied(audit: Path) -> None:
    shutil.copytree(folder(audit, PIN), folder(audit, PIN).with_name("20260401T000100Z-x-00000000"))


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a byte": (lambda a: (folder(a, PIN) / "executed.ipynb").write_text("x"), "executed.ipynb: was changed"),
    "a file removed": (lambda a: (folder(a, PIN) / "report.html").unlink(), "report.html: was removed"),
    "a file added": (lambda a: (folder(a, PIN) / "new").write_text("x"), "new: was added"),
    "a file beside the records": (lambda a: folder(a, PIN).with_name("new").write_text("x"), "new: was added"),
    "a file in the root": (lambda a: (a / "new").write_text("x"), "new: was added"),
    "a file by a link": (lambda a: link(folder(a, PIN) / "report.html"), "report.html: was changed"),
    "a linked folder": (lambda a: (a / "new").symlink_to(a.parent), "new: was added"),
    "run.json": (lambda a: edit(folder(a, PIN) / "run.json", lambda r: r.update(state="failed")), "was changed"),
    "run.json removed": (lambda a: (folder(a, PIN) / "run.json").unlink(), "run.json: was removed"),
    "a record removed": (lambda a: shutil.rmtree(folder(a, PIN)), f"-{PIN}-00000000: was removed"),
    "a record renamed": (lambda a: folder(a, PIN).rename(folder(a, PIN).with_name("x")), "-00000000: was removed"),
    "a record copied": (copied, "was added or damaged"),
    "a bump removed": (lambda a: shutil.rmtree(a / "o-r"), "was removed"),
    "an open record closed": (
        lambda a: edit(sorted(a.rglob("*-00000009"))[0] / "run.json", lambda r: r.update(files={"x": ""}, process={})),
        "has other files than",
    ),
    "committed: a change": (
        lambda a: rewrite(a, lambda it: edit(it / "run.json", lambda r: r.update(state="failed"))), "changed or removed"
    ),
    "committed: a removal": (lambda a: rewrite(a, lambda it: shutil.rmtree(it)), "changed or removed"),
    "committed: an addition": (lambda a: rewrite(a, lambda it: (it / "new").write_text("x")), "has other files"),
    "committed: decisions of a record": (
        lambda a: rewrite(a, lambda it: (it / "decisions.yaml").write_text("x")), "has other files"
    ),
    "committed: a field, as a notebook is attached": (
        lambda a: (record(a, CI, "done", notebook=False), rewrite(a, lambda it: sealed(it, "failed"))),
        "changed or removed",
    ),
    "amended": (lambda a: git(a, "commit", "-q", "--amend", "-m", "x"), "does not contain the commit"),
    "a commit removed": (lambda a: git(a, "reset", "-q", "--hard", "HEAD~1"), "does not contain the commit"),
    "history rewritten": (without_first_commits, "does not contain the commit"),
    "another repository": (lambda a: (shutil.rmtree(a / ".git"), git(a, "init", "-q")), "does not contain the commit"),
    "the repository removed": (lambda a: shutil.rmtree(a / ".git"), "does not contain the commit"),
    "an object removed": (removed_object, "is damaged"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_named_with_its_place(audit: Path, name: str) -> None:
    change, words = CHANGES[name]
    change(audit)
    problems, _ = verify(audit)
    assert [problem for problem in problems if words in problem], problems
    assert all(problem.startswith(str(audit)) for problem in problems)


@pytest.mark.parametrize("name", ["amended", "a commit removed"])
def test_a_later_commit_hides_nothing(audit: Path, name: str) -> None:
    CHANGES[name][0](audit)
    record(audit, PIN, "done", at=30)
    assert ["does not contain the commit" in problem for problem in verify(audit)[0]] == [True]


def test_a_new_archive_in_place_of_a_removed_one(audit: Path) -> None:
    shutil.rmtree(audit)
    record(audit, PIN, "done")
    (problem,) = verify(audit)[0]  # whoever removed it knows that
    RecordStore(audit).seen_file.unlink()
    assert ("does not contain the commit" in problem, verify(audit)[0]) == (True, [])


def test_what_is_no_tampering(audit: Path) -> None:
    (audit.joinpath(*BUMP.parts) / "decisions.yaml").write_text("accept: []")
    (audit / "index.html").unlink()
    (folder(audit, PIN) / ".ipynb_checkpoints").mkdir()
    record(audit, PIN, "running", at=40, live=False)
    record(audit, "killed", "running", at=41, live=False)
    sealed(folder(audit, "killed"), "done")  # its engine was killed before the commit
    problems, counts = verify(audit)
    assert (problems, str(counts)) == ([], "3 records, 9 files, 1 running, 2 killed")


def test_an_attached_notebook_is_the_only_later_change(tmp_path: Path) -> None:
    name = record(tmp_path, PIN, "done", notebook=False)
    notebook = executed(name)
    place = archive.attach(tmp_path, notebook)
    archive.attach(tmp_path, notebook)  # again, which changes nothing
    assert verify(tmp_path)[0] == []
    assert git(tmp_path, "rev-list", "--count", "HEAD") == "2"
    assert {"executed.ipynb", "report.html"} <= {file.name for file in place.iterdir()}
    with pytest.raises(Exception, match="already has another"):
        archive.attach(tmp_path, notebook | {"nbformat_minor": 4})


def test_signatures(audit: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    (tmp_path / "signers").write_text(f"* {key.with_suffix('.pub').read_text()}")
    for name, value in {
        "gpg.format": "ssh", "user.signingKey": str(key), "commit.gpgSign": "true",
        "gpg.ssh.allowedSignersFile": str(tmp_path / "signers"),
    }.items():  # fmt: skip
        git(audit, "config", name, value)
    record(audit, PIN, "done", at=50)
    assert git(audit, "log", "-1", "--format=%G?") == "G"
    assert verify(audit)[0] == []
    git(audit, "config", "commit.gpgSign", "false")
    record(audit, PIN, "done", at=51)
    assert ["signature" in it for it in verify(audit)[0]] == [True]


@pytest.mark.parametrize("name", ["\xff", "a\nb", "a\r\x1b[2Jb", "\u202eb", "\udcff"])
def test_a_name_is_not_a_line_of_the_answer(audit: Path, name: str) -> None:
    (folder(audit, PIN) / name).write_text("x")
    problems, _ = verify(audit)
    assert [problem.isprintable() for problem in problems] == [True, True]


def test_writes_nothing_into_the_archive(audit: Path) -> None:
    def tree() -> dict[Path, int]:
        return {path: os.lstat(path).st_mtime_ns for path in audit.rglob("*")}

    before = tree()
    verify(audit)
    assert tree() == before
