"""`runbook watch` on a practice repository: what it proposes, what it leaves, and that it proposes once."""

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from bumping import BRANCH, CONTRIBUTOR, bump_to, colleague, git
from watched import TODAY, Watched, watched

from runbook_lib.cli.__main__ import main
from runbook_lib.errors import CannotTell, RunbookError

__all__ = ["colleague"]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Watched]:
    with watched(tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    ("months", "rules", "state"),
    [
        (["26.02"], "", "up to date"),
        (["26.02", "25.12"], "", "up to date"),
        (["26.04"], "cool-down: 60", "waiting"),
        (["26.04"], "hold: [{tag: 26.04-py3, reason: no driver yet, until: 2026-06-02}]", "waiting"),
        (["26.04"], "hold: [{tag: '*', reason: release freeze}]", "waiting"),
    ],
)
def test_nothing_is_proposed(place: Watched, months: list[str], rules: str, state: str) -> None:
    place.offer(*months)
    place.rules(rules)
    before = place.world.state()
    result = place.watch()
    assert (result.state, result.exit_status, result.tag) == (state, 0, "")
    assert place.world.state() == before


@pytest.mark.parametrize(
    ("rules", "options", "tag"),
    [
        ("", {}, "26.06-py3"),
        ("cool-down: 20", {}, "26.04-py3"),
        ("cool-down: 20", {"cool_down": 0}, "26.06-py3"),
        ("hold: [{tag: 26.06-py3, reason: slow}]", {}, "26.04-py3"),
        ("hold: [{tag: 26.06-py3, reason: slow, until: 2026-06-01}]", {}, "26.06-py3"),
        ("hold: [{tag: 26.05-py3, reason: slow}]", {}, "26.06-py3"),
    ],
)
def test_the_newest_tag_that_nothing_holds_back_is_proposed(
    place: Watched, rules: str, options: dict[str, int], tag: str
) -> None:
    place.offer("26.02", "26.04", "26.06")
    place.rules(rules)
    result = place.watch(date(2026, 7, 1) if "cool" in rules else TODAY, publish=False, **options)
    assert (result.tag, result.state, result.exit_status) == (tag, "new", 1)
    assert f"nvcr.io/nvidia/pytorch:{tag}" in result.text
    assert not place.pulls()


def test_the_drivers_of_the_runners_decide_whether_a_person_is_needed(
    place: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNBOOK_DRIVERS", "450.80.02")
    result = place.watch(publish=False)
    assert (result.state, result.exit_status) == ("needs a person", 1)
    assert "450.80.02" in result.text
    monkeypatch.setenv("RUNBOOK_DRIVERS", "610.10")
    assert place.watch(publish=False).state == "new"


def test_an_issue_where_the_rules_want_one(place: Watched) -> None:
    place.rules("report: issue")
    first = place.watch()
    assert first.state == "open"
    assert place.watch() == place.watch()
    assert [issue["title"] for issue in _issues(place)] == ["Base image 26.04-py3 is available for main"]
    number = _issues(place)[0]["number"]
    place.close(number)
    assert place.watch().state == "waiting"
    assert len(_issues(place)) == 1


def _issues(place: Watched) -> list[dict[str, object]]:
    github = place.world.github()
    params = {"labels": "base-image", "state": "all"}
    listed: list[dict[str, object]] = github.get("list", "/issues", lambda found: found, params)
    return listed


@pytest.mark.slow
def test_a_tag_has_one_pull_request_whatever_becomes_of_it(place: Watched) -> None:
    checkout = place.world.home / "checkout"
    before = (git(checkout, "status", "--porcelain", "--branch"), git(checkout, "for-each-ref", "refs/heads"))
    assert place.watch().state == "open"
    state = place.world.state()
    again = place.watch()
    assert (again.state, "up to date" in again.sentence) == ("open", True)
    assert place.world.state() == state
    (pull,) = place.pulls()
    assert pull.draft
    assert (git(checkout, "status", "--porcelain", "--branch"), git(checkout, "for-each-ref", "refs/heads")) == before
    assert git(checkout, "worktree", "list").count("\n") == 0

    place.world.github().update_pull(
        pull.number, f"Words of a person.\n\n{pull.body}".replace("26.02-py3", "26.99-py3")
    )
    place.watch()
    (updated,) = place.pulls()
    assert updated.body == f"Words of a person.\n\n{pull.body}"

    place.close(pull.number)
    closed = place.watch()
    assert (closed.state, closed.exit_status, len(place.pulls())) == ("waiting", 0, 1)


def of_a_fork(place: Watched) -> None:
    """A fork's pull request with the branch name, the title and the marker of the bump."""
    git(place.world.home / "checkout", "push", "-q", str(place.world.fork), f"main:refs/heads/{BRANCH}")
    other = place.world.home / "other"
    git(place.world.home, "clone", "-q", "-b", BRANCH, str(place.world.fork), str(other))
    (other / "x").write_text("x")
    git(other, "add", "x")
    git(other, "commit", "-qm", "x")
    git(other, "push", "-q", "origin", BRANCH)
    title, marker = bump_to().title, "<!-- base-image-runbook:begin main/dev-26.04-py3 -->"
    place.world.github("contributor-token").open_pull(title, f"{CONTRIBUTOR}:{BRANCH}", "main", marker, draft=True)


@pytest.mark.slow
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
        assert (result.url, ours.head_owner, ours.author) == (ours.url, "practice", "release-engineer")
    place.close(theirs.number)
    assert place.watch().url == ours.url


def test_pins_that_disagree_need_a_person(place: Watched) -> None:
    place.world.commit_on("main", "docker/.ngc_version.dev", "nvcr.io/nvidia/pytorch:26.01-py3\n")
    result = place.watch()
    assert (result.state, result.exit_status) == ("needs a person", 1)


def test_an_undecided_result_has_status_2(
    place: Watched, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RUNBOOK_REGISTRY", "http://127.0.0.1:9")
    with pytest.raises(RunbookError):
        place.watch()
    assert main(["watch", str(place.world.home / "checkout")]) == 2
    assert "could not be read" in capsys.readouterr().err


def test_an_image_without_a_day_has_no_cool_down(place: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runbook_lib.images.reference._EARLIEST", date(2030, 1, 1))
    with pytest.raises(CannotTell, match="cool-down"):
        place.watch(cool_down=3)


def test_the_command_prints_json(place: Watched, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(place.world.home / "checkout"), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["format"], document["state"], document["tag"]) == (1, "new", "26.04-py3")


def test_each_image_has_a_pull_request_of_its_own(place: Watched) -> None:
    pins = place.several()
    names = ["nvcr.io/nvidia/pytorch", "mirror.example.com/nvidia/pytorch"]
    preview = place.watch_images(pins=pins, publish=False)
    assert [(result.image, result.state) for result in preview.results] == [(name, "new") for name in names]
    assert not place.pulls()
    for _ in range(2):
        report = place.watch_images(pins=pins)
        assert [(result.image, result.state, result.tag) for result in report.results] == [
            (name, "open", "26.04-py3") for name in names
        ]
        assert report.exit_status == 0
        files = [changed(place, pull.head_ref) for pull in place.pulls()]
        assert files == [["docker/.ngc_version.dev"], ["b.txt"]]


def test_an_image_that_cannot_be_compared_hides_no_other(place: Watched, capsys: pytest.CaptureFixture[str]) -> None:
    pins = place.several()
    place.world.commit_on("main", "b.txt", "two words\n")
    assert main(["watch", str(place.world.home / "checkout"), "--pins", pins]) == 2
    shown = capsys.readouterr()
    assert "(dev of nvcr.io/nvidia/pytorch): new" in shown.out
    assert "watch: mirror.example.com/nvidia/pytorch: " in shown.err


def changed(place: Watched, head: str) -> list[str]:
    """The files that a branch on the remote changes."""
    checkout = place.world.home / "checkout"
    git(checkout, "fetch", "-q", "origin")
    return git(checkout, "diff", "--name-only", f"origin/main...origin/{head}").split()
