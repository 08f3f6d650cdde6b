import pytest
from clones import commit, git

from runbook_lib.errors import CannotTell
from runbook_lib.world.git import blobs


@pytest.fixture
def clone(tmp_path):
    texts = {"docker/one": "one\r\n", "with space": "\udcff\udcfe no utf-8\n\nmissing\n", "empty": ""}
    place = commit(tmp_path / "a clone", texts)
    git(place, "branch", "core_r0.9")
    git(place, "branch", "core_r0.10")
    commit(place, {"docker/one": "two"})
    git(place, "tag", "-am", "x", "annotated")
    git(place, "update-ref", "refs/remotes/origin/main", "HEAD~1")
    git(place, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    return place


def test_files_of_several_refs_are_read_as_they_are(clone):
    wanted = [("main", "docker/one"), ("HEAD~1", "docker/one"), ("main", "with space"), ("main", "empty")]
    found = blobs.read_files(clone, wanted)
    assert list(found.values()) == ["two", "one\r\n", "\udcff\udcfe no utf-8\n\nmissing\n", ""]
    assert list(found) == wanted


@pytest.mark.parametrize("missing", ["main:docker/one", "main:docker"])
def test_a_file_whose_object_is_missing_is_not_called_absent(clone, missing):
    identity = git(clone, "rev-parse", missing)
    (clone / ".git" / "objects" / identity[:2] / identity[2:]).unlink()
    assert blobs.read_files(clone, [("main", "none"), ("main", "empty/x")])["main", "none"] is None
    with pytest.raises(CannotTell, match=r"docker/one in main of .* its object is missing"):
        blobs.read_files(clone, [("main", "none"), ("main", "docker/one")])


@pytest.mark.parametrize("missing", ["main", "main^{tree}"])
def test_a_commit_whose_objects_are_missing_has_no_absent_files(clone, missing):
    commit, identity = git(clone, "rev-parse", "main"), git(clone, "rev-parse", missing)
    (clone / ".git" / "objects" / identity[:2] / identity[2:]).unlink()
    with pytest.raises(CannotTell, match="its object is missing"):
        blobs.read_files(clone, [(commit, "docker/one")])


@pytest.mark.parametrize(
    ("ref", "path"),
    [
        ("main", "none"), ("main", "docker"), ("main", "docker/one/x"), ("none", "docker/one"), ("main", "x\ny"),
        ("main\nmain:empty", "x"), ("no such thing", "empty"), ("main", "x missing"), ("", "unknown"), ("-x", "empty"),
    ],
)  # fmt: skip
def test_a_path_that_is_not_a_file_is_none_and_does_not_affect_the_others(clone, ref, path):
    found = blobs.read_files(clone, [("main", "empty"), (ref, path), ("main", "docker/one")])
    assert list(found.values()) == ["", None, "two"]


def test_a_large_object_is_left_out_and_not_read(clone, monkeypatch):
    names = [git(clone, "rev-parse", f"main:{path}") for path in ("docker/one", "with space", "empty")]
    read, outputs = blobs.output, []
    monkeypatch.setattr(blobs, "output", lambda *words, **rest: outputs.append(read(*words, **rest)) or outputs[-1])
    assert blobs.read_objects(clone, [*names, "0" * 40], 3) == {names[0]: b"two", names[2]: b""}
    assert not any(b"no utf-8" in output for output in outputs)


def test_refs_name_commits(clone):
    head = git(clone, "rev-parse", "main")
    found = blobs.commits(clone, ["main", "HEAD", head[:12], "annotated", "none", "main:empty", "", "a b"])
    assert list(found.values()) == [head, head, head, head, None, None, None, None]


def test_branches_are_listed_by_version_without_a_remotes_head(clone):
    assert blobs.branches(clone) == [
        "refs/heads/core_r0.9",
        "refs/heads/core_r0.10",
        "refs/heads/main",
        "refs/remotes/origin/main",
    ]


def test_a_folder_without_a_repository_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(CannotTell, match=r"`git cat-file --batch` failed in .*: fatal: not a git repository"):
        blobs.read_files(tmp_path, [("main", "x")])


@pytest.mark.parametrize("has_file", [False, True])
def test_a_machine_without_git_is_reported(clone, monkeypatch, has_file):
    if has_file:
        (clone / "git").write_text("not a program")
    monkeypatch.setenv("PATH", str(clone))
    with pytest.raises(CannotTell, match="git was not found"):
        blobs.commits(clone, ["main"])
