"""`runbook watch` on a practice repository: what it proposes, what it leaves and why, and that it proposes once."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from bumping import BRANCH, CONTRIBUTOR, bump_to, git
from clones import commit
from watched import Watched, watched

from runbook_lib.cli.__main__ import main


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Watched]:
    with watched(tmp_path, listen=request.node.get_closest_marker("slow") is not None) as made:
        yield made


@pytest.mark.parametrize(
    ("months", "held", "state", "why"),
    [
        (["26.02"], [], "up to date", "26.02-py3 is the newest release"),
        (["26.04"], ["26.04-py3"], "waiting", "26.04-py3: It is held: slow."),
        (["26.04", "26.06"], ["*"], "waiting", "26.06-py3: It is held: slow. 26.04-py3: It is held"),
    ],
)
def test_nothing_is_proposed(place: Watched, months: list[str], held: list[str], state: str, why: str) -> None:
    place.offer(*months)
    if held:
        place.hold(*held)
    before = place.world.state()
    result = place.watch()
    assert (result.state, result.exit_status, result.tag, why in result.sentence) == (state, 0, "", True)
    assert place.world.state() == before


@pytest.mark.parametrize(("held", "tag"), [("26.05-py3", "26.06-py3"), ("26.06-py3", "26.04-py3")])
def test_the_newest_tag_that_nothing_holds_back_is_proposed(place: Watched, held: str, tag: str) -> None:
    place.offer("26.02", "26.04", "26.06")
    place.hold(held)
    before = place.world.state()
    result = place.watch(publish=False)
    assert (result.tag, result.state, result.exit_status) == (tag, "new", 1)
    assert f"-r tag {tag} " in result.sentence
    assert ("26.06-py3: It " in result.sentence) is (tag == "26.04-py3")
    assert place.world.state() == before


def test_the_drivers_of_the_runners_decide_whether_a_person_is_needed(
    place: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNBOOK_DRIVERS", "450.80.02")
    result = place.watch(publish=False)
    assert (result.state, result.exit_status, "450.80.02" in result.sentence) == ("needs a person", 1, True)
    monkeypatch.setenv("RUNBOOK_DRIVERS", "610.10")
    assert place.watch(publish=False).state == "new"


@pytest.mark.slow
def test_a_tag_has_one_pull_request_whatever_becomes_of_it(place: Watched) -> None:
    checkout = place.world.home / "checkout"
    before = git(checkout, "status", "--porcelain", "--branch")
    first = place.watch()
    assert (first.state, first.tag, first.exit_status) == ("open", "26.04-py3", 0)
    state = place.world.state()
    assert place.watch().url == first.url
    assert place.world.state() == state
    (pull,) = place.pulls()
    assert (pull.draft, first.url.endswith(f"/pull/{pull.number}")) == (True, True)
    assert git(checkout, "status", "--porcelain", "--branch") == before
    place.close(pull.number)
    closed = place.watch()
    assert (closed.state, closed.exit_status, "closed without a merge" in closed.sentence) == ("waiting", 0, True)
    assert len(place.pulls()) == 1


def test_a_merged_tag_that_was_taken_back_is_not_proposed_again(place: Watched) -> None:
    made = place.world.open_pr()
    place.merge(made.pull.number)
    checkout = place.world.home / "checkout"
    git(checkout, "fetch", "-q", "origin")
    git(checkout, "switch", "-q", "--detach", "origin/main")
    git(checkout, "revert", "--no-edit", "--mainline", "1", "HEAD")
    git(checkout, "push", "-q", "origin", "HEAD:main")
    taken = place.watch(publish=False)
    assert (taken.state, taken.exit_status, "was merged, but main no longer" in taken.sentence) == ("waiting", 0, True)


def of_a_fork(place: Watched) -> None:
    """A fork's pull request with the branch name, the title and the marker of the bump."""
    git(place.world.home / "checkout", "push", "-q", str(place.world.fork), f"main:refs/heads/{BRANCH}")
    other = place.world.home / "other"
    git(place.world.home, "clone", "-q", "-b", BRANCH, str(place.world.fork), str(other))
    commit(other, {"x": "x"})
    git(other, "push", "-q", "origin", BRANCH)
    title, marker = bump_to().title, "<!-- base-image-runbook:begin main/dev-26.04-py3 -->"
    place.world.github("contributor-token").open_pull(title, f"{CONTRIBUTOR}:{BRANCH}", "main", marker)


@pytest.mark.usefixtures("colleague")
def test_a_pull_request_of_a_colleague_is_enough(place: Watched) -> None:
    of_a_fork(place)
    result = place.watch()
    assert (result.state, "by outside-contributor" in result.sentence) == ("open", True)
    assert len(place.pulls()) == 1


@pytest.mark.slow
def test_a_pull_request_of_a_stranger_neither_stops_nor_steers(place: Watched) -> None:
    of_a_fork(place)
    (theirs,) = place.pulls()
    assert place.watch(publish=False).state == "new"
    for _ in range(2):
        result = place.watch()
        assert result.state == "open"
        before, ours = place.pulls()
        assert before == theirs
        assert (ours.head_owner, ours.author) == ("practice", "release-engineer")
        assert result.url.endswith(f"/pull/{ours.number}")
    place.close(theirs.number)
    assert place.watch().url == result.url


def test_pins_that_disagree_need_a_person(place: Watched) -> None:
    place.world.commit_on("main", "docker/.ngc_version.dev", "nvcr.io/nvidia/pytorch:26.01-py3\n")
    result = place.watch()
    assert (result.state, result.exit_status, "26.01-py3" in result.sentence) == ("needs a person", 1, True)


def test_what_cannot_be_told_is_said(place: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNBOOK_REGISTRY", "http://127.0.0.1:9")
    result = place.watch()
    assert (result.state, result.exit_status, "gave no usable answer" in result.sentence) == ("cannot tell", 2, True)


def test_a_preview_without_a_token_says_what_it_does_not_know(place: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_TOKEN")
    result = place.watch(publish=False)
    assert (result.state, "unknown without a token" in result.sentence) == ("new", True)


def test_the_command_prints_json(place: Watched, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(place.world.home / "checkout"), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    (result,) = document["results"]
    assert (document["version"], result["state"], result["tag"]) == (1, "new", "26.04-py3")


@pytest.mark.slow
def test_each_image_has_a_pull_request_of_its_own(place: Watched) -> None:
    place.several()
    names = ["nvcr.io/nvidia/pytorch", "mirror.example.com/nvidia/pytorch"]
    for _ in range(2):
        results = place.watch_images()
        assert [(each.image, each.state, each.tag) for each in results] == [
            (name, "open", "26.04-py3") for name in names
        ]
        files = [changed(place, pull.head_ref) for pull in place.pulls()]
        assert files == [["docker/.ngc_version.dev"], ["b.txt"]]


def test_an_image_that_cannot_be_compared_hides_no_other(place: Watched, capsys: pytest.CaptureFixture[str]) -> None:
    place.several()
    place.world.commit_on("main", "b.txt", "two words\n")
    assert main(["watch", str(place.world.home / "checkout")]) == 2
    shown = capsys.readouterr().out
    assert "nvcr.io/nvidia/pytorch (dev) on main: new. Would open" in shown
    assert "mirror.example.com/nvidia/pytorch (dev) on main: cannot tell. main has no readable" in shown


def changed(place: Watched, head: str) -> list[str]:
    """The files that a branch on the remote changes."""
    checkout = place.world.home / "checkout"
    git(checkout, "fetch", "-q", "origin")
    return git(checkout, "diff", "--name-only", f"origin/main...origin/{head}").split()
