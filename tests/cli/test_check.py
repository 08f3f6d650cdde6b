import json
import os
import subprocess
import sys

import pytest
from clones import commit, git, write
from layouts import DEV, DOCKERFILE, GITLAB, LINTING, LTS, dockerfile, image, layout

from runbook_lib.cli.__main__ import main


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A repository in layout 4, in sync, on the branch main."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    return commit(tmp_path / "clone", layout(4))


@pytest.fixture
def check(capsys):
    """Run ``runbook check`` and return its exit status, output and error output."""

    def run(*arguments):
        status = main(["check", *map(str, arguments)])
        return status, *capsys.readouterr()

    return run


# -- the work tree ---------------------------------------------------------------------------------------------------


def test_a_pin_out_of_sync_is_named_and_exit_status_1(clone, check):
    write(clone, {DEV: image("26.04-py3") + "\n", DOCKERFILE: dockerfile("26.04-py3")})
    status, out, _ = check(clone)
    assert status == 1
    for line, platform in ((30, "amd64"), (35, "arm64")):
        assert (
            f"{GITLAB}:{line} (BASE_IMAGE where IMAGE: CI_MCORE_DEV_IMAGE, PLATFORM: {platform}) "
            "names 26.02-py3, the dev pins should be 26.04-py3."
        ) in out
    assert out.endswith("Out of sync: 5 of 7 pins agree, 4 informational places not in sync (not counted).\n")
    assert check("--ref", "HEAD", clone)[0] == 0


LAGGING = {LINTING: dockerfile("26.01-py3")}


@pytest.mark.parametrize(
    ("texts", "options", "status", "line"),
    [
        ({}, "--pins megatron-lm", 0, "In sync: 7 of 7 pins agree."),
        ({}, "--tag 25.09-py3 --image-type lts", 0, "In sync: 7 of 7 pins agree."),
        ({}, "--tag 26.04-py3", 1, "names 26.02-py3, the dev pins should be 26.04-py3."),
        ({}, "--tag 26.4", 2, "runbook: '26.4' is not a tag"),
        ({LTS: None}, "", 2, f"{LTS} (lockstep lts): the file does not exist, but {DEV} does."),
        ({LTS: None}, "", 2, "Cannot tell: 6 of 7 pins agree, 1 cannot be read."),
        ({LTS: None, DOCKERFILE: dockerfile("26.01-py3")}, "", 1, "Out of sync: 5 of 7 pins agree"),
        (LAGGING, "", 0, "7 of 7 pins agree, 1 informational place not in sync (not counted). --verbose lists"),
        (LAGGING, "--verbose", 0, f"{LINTING}:3 (ARG FROM_IMAGE_NAME) names 26.01-py3, the dev pins 26.02-py3."),
        (LAGGING, "--strict", 1, "(counted: strict).\n"),
    ],
)
def test_the_work_tree(clone, check, texts, options, status, line):
    write(clone, texts)
    answered, out, err = check(clone, *options.split())
    assert answered == status, out
    assert line in out + err
    assert len(out.splitlines()) <= 1 or status or options == "--verbose"


def test_a_quarantine_past_its_review_date_is_named_if_strict(clone, check):
    recipe, unit = "tests/test_utils/recipes/h100/gpt.yaml", "tests/unit_tests/test_a.py"
    broken = "# Broken: it hangs — see issue #{}, review by {}.\n".format
    texts = {recipe: f"a: 1\n  {broken(7, '2026-01-31')}", unit: broken(8, "2999-01-01") + broken(9, "2026-02-01")}
    commit(clone, {**texts, LINTING: image("26.02-py3")})
    assert check(clone)[0] == 0
    status, out, _ = check(clone, "--strict", "--json")
    (ref,) = json.loads(out)["refs"]
    assert (status, ref["outcome"]) == (1, "out of sync")
    places = [(f"{recipe}:2", "2026-01-31 (issue #7)"), (f"{unit}:2", "2026-02-01 (issue #9)")]
    for sentence, (place, due) in zip(ref["overdue"], places, strict=True):
        assert sentence.startswith(f"{place}: the quarantine was to be reviewed by {due}. Re-enable the test")
    assert "2 quarantines past its review date" in check("--ref", "HEAD", clone / "docs", "--strict")[1]


def test_any_folder_names_its_repository_which_may_have_no_commit(tmp_path, clone, check, monkeypatch):
    monkeypatch.chdir(clone / "docs")
    assert check()[0] == 0
    git(tmp_path, "init", "-q", "fresh")
    write(tmp_path / "fresh", layout(2))
    assert check(tmp_path / "fresh" / "docker")[0] == 0
    status, _, err = check(tmp_path / "fresh", "--ref", "HEAD")
    assert status == 2
    assert "'HEAD' is not a commit" in err


# -- refs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def branches(clone):
    """The clone with a branch for each layout, one out of sync and one from before all layouts."""
    for number, dev in ((1, "25.06-py3"), (2, "25.11-py3"), (3, "26.02-py3")):
        git(clone, "switch", "-q", "--orphan", f"core_r0.{number + 8}.0")
        commit(clone, layout(number, dev=dev))
    git(clone, "switch", "-q", "-c", "dev")
    commit(clone, layout(3) | {DEV: image("26.04-py3")})
    git(clone, "switch", "-q", "--orphan", "core_r0.1.0")
    commit(clone, {"README.md": "old\n"})
    git(clone, "switch", "-q", "main")
    return clone


#: Refs, the exit status, and what is printed.  ``broken`` has a pin that cannot be read, ``core_r0.1.0`` none.
REFS = [
    ("main dev", 1, f"dev: {GITLAB}:32 (BASE_IMAGE where"),
    # A ref out of sync decides even if another is undecided.
    ("broken main", 2, "1 cannot be read"),
    ("broken dev", 1, "dev: "),
    # A branch that cannot be judged decides unless it is left out by its name.
    ("core_r*", 2, "Cannot tell: 12 of 12 pins agree, 1 of 4 refs cannot be judged."),
    ("core_r*", 2, "core_r0.1.0 has no known pin site"),
    ("core_r* ^core_r0.1.*", 0, "In sync: 12 of 12 pins agree."),
    ("core_r* ^core_r*", 2, "The refs exclude every branch."),
    ("core_r* refs/heads/core_r0.1.0", 2, "No known pin site was found in"),
    ("core_r0.1.0", 2, f"none of {DEV}, {GITLAB}"),
    ("core_r0.1.*", 2, "No known pin site was found in"),
    # A pattern is matched with short names, and a ref named twice is checked once.
    ("r*", 2, "No local or remote-tracking branch matches 'r*'."),
    ("heads/*", 2, "matches 'heads/*'."),
    ("main ma* main refs/heads/main", 0, "In sync: 7 of 7 pins agree."),
]


def test_what_refs_are_checked_and_decide(branches, check):
    git(branches, "switch", "-q", "-c", "broken")
    commit(branches, layout(4) | {LTS: None})
    write(branches, {DEV: "being edited"})
    for refs, status, said in REFS:
        answered, out, err = check(branches, *(f"--ref={word}" for word in refs.split()))
        assert (refs, answered) == (refs, status)
        assert said in out + err, refs
        assert "main: " not in out, refs
    assert (branches / DEV).read_text() == "being edited"
    assert git(branches, "branch", "--show-current") == "broken"


def test_a_branch_is_read_before_a_tag_of_its_name(branches, tmp_path, check):
    git(branches, "tag", "dev", "main")
    git(branches, "tag", "core_r0.9.0", "dev")
    status, out, _ = check(branches, "--ref", "dev")
    assert status == 1
    assert "dev is a branch and a tag: the branch was read. The tag is refs/tags/dev." in out
    assert check(branches, "--ref", "refs/tags/dev")[0] == 0
    git(branches, "branch", "other/x", "refs/heads/dev")  # no branch x of a remote
    git(branches, "tag", "x", "main")
    assert check(branches, "--ref", "x")[0] == 0
    git(tmp_path, "clone", "-q", branches.as_uri(), "second")  # its branches are remote-tracking ones
    assert check(tmp_path / "second", "--ref", "dev")[0] == 1
    assert check(tmp_path / "second", "--ref", "main")[0] == 0
    git(tmp_path / "second", "remote", "add", "fork", branches.as_uri())
    git(tmp_path / "second", "fetch", "-q", "fork")
    status, out, err = check(tmp_path / "second", "--ref", "dev")
    assert (status, out) == (2, "")
    assert "origin/dev" in err
    assert "fork/dev" in err


def test_refs_of_another_clone(branches, tmp_path, check):
    git(tmp_path, "clone", "-q", branches.as_uri(), "second")
    for pattern in ("origin/core_r0.9*", "refs/remotes/origin/core_r0.9*"):
        status, out, _ = check(tmp_path / "second", "--ref", pattern, "--json")
        assert status == 0
        assert [ref["ref"] for ref in json.loads(out)["refs"]] == ["origin/core_r0.9.0"]
    for ref, said in {
        "none": "'none' is not a commit in ", "dev": "Did you mean origin/dev?", "": "'' is not a commit",
        "-x": "'-x' is not a commit", "main:docker": "is not a commit", "*/HEAD": "matches '*/HEAD'",
        "release_*": "No local or remote-tracking branch matches 'release_*'.",
    }.items():  # fmt: skip
        status, out, err = check(tmp_path / "second", f"--ref={ref}")
        assert (status, out) == (2, "")
        assert said in err
    status, out, err = check(tmp_path / "second", "--ref=none", "--json")
    document = json.loads(out)
    assert (status, document["version"]) == (2, 1)
    assert document["error"]["message"] in err


def test_bare_shallow_and_detached_clones_are_checked(branches, tmp_path, check):
    git(tmp_path, "clone", "-q", "--bare", branches.as_uri(), "bare")
    status, out, _ = check(tmp_path / "bare")
    assert status == 0
    assert f"{tmp_path / 'bare'} is a bare repository, so its HEAD was checked." in out
    assert check(tmp_path / "bare", "--ref", "dev")[0] == 1
    git(tmp_path, "clone", "-q", "--depth=1", "--no-single-branch", branches.as_uri(), "shallow")
    git(tmp_path / "shallow", "checkout", "-q", "--detach")
    assert check(tmp_path / "shallow")[0] == 0
    assert check(tmp_path / "shallow", "--ref", "origin/dev")[0] == 1
    git(branches, "worktree", "add", "-q", str(tmp_path / "tree"), "dev")
    assert check(tmp_path / "tree")[0] == 1


# -- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("", "There is no folder"),
        ("mkdir place", "not a git checkout"),
        ("git init -q place", "No known pin site"),
        ("git init -q --bare place", "'HEAD' is not a commit"),
    ],
)
def test_a_place_without_pins_is_undecided(tmp_path, clone, check, made, said):
    if made:
        subprocess.run(made.split(), cwd=tmp_path, check=True)
    status, out, err = check(tmp_path / "place")
    assert (status, out) == (2, "")
    assert err.startswith("runbook: ")
    assert said in err
    assert "Traceback" not in err


# -- for machines ----------------------------------------------------------------------------------------------------


def test_json_has_everything_in_the_table(branches, check):
    status, out, _ = check(branches, "--ref", "main", "--ref", "dev", "--json")
    told = json.loads(out)
    assert status == 1
    assert {key: told[key] for key in ("version", "repository", "strict", "outcome")} == {
        "version": 1, "repository": str(branches), "strict": False, "outcome": "out of sync",
    }  # fmt: skip
    assert [(ref["ref"], ref["commit"], ref["outcome"]) for ref in told["refs"]] == [
        ("main", git(branches, "rev-parse", "main"), "in sync"),
        ("dev", git(branches, "rev-parse", "dev"), "out of sync"),
    ]
    assert told["refs"][1]["pins"][1] == {
        "path": GITLAB,
        "line": 32,
        "selector": "BASE_IMAGE where IMAGE: CI_MCORE_DEV_IMAGE, PLATFORM: amd64",
        "image": image("26.02-py3"),
        "role": "lockstep dev",
        "verdict": "out of sync",
        "detail": f"{GITLAB}:32 (BASE_IMAGE where IMAGE: CI_MCORE_DEV_IMAGE, PLATFORM: amd64) names 26.02-py3, "
        "the dev pins should be 26.04-py3.",
    }


# -- as a process ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unbuffered", [{}, {"PYTHONUNBUFFERED": "1"}])
def test_a_reader_that_has_seen_enough_gets_no_traceback(clone, unbuffered):
    command = [sys.executable, "-m", "runbook_lib.cli", "check", str(clone)]
    # Whether output is buffered decides where the closed pipe is noticed.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | unbuffered
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_a_command_that_is_interrupted_ends_without_a_traceback(clone, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("runbook_lib.bump.sync_survey.survey", interrupt)
    assert main(["check", str(clone)]) == 130


def test_too_few_file_descriptors_are_named(clone):
    command = f'ulimit -n 9; exec "{sys.executable}" -P -m runbook_lib.cli check "{clone}"'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("runbook: too many files are open.")
    assert "Traceback" not in done.stderr
