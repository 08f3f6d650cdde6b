"""`runbook follow` from event files in GitHub's published form: one status comment, commands of those who may."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from bumping import git
from watched import ENGINEER, TODAY, Watched, comment_event, run_event, watched

from runbook_lib.cli.__main__ import main
from runbook_lib.clients.github.models import Comment
from runbook_lib.workflow import holds

pytestmark = [pytest.mark.component("github-payloads"), pytest.mark.slow]
STRANGER = {"login": "outside-contributor", "type": "User"}


def follow(place: Watched, event: Path, *options: str) -> int:
    return main(["follow", str(event), str(place.world.home / "checkout"), "--publish", *options])


def own(place: Watched) -> list[Comment]:
    comments = place.world.github().comments(place.pulls()[0].number)
    return [comment for comment in comments if comment.body.startswith(holds.STATUS)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Watched]:
    with watched(tmp_path) as made:
        assert made.watch().state == "open"
        # The token of a workflow's job belongs to no account.
        made.world.forge.fail("GET", "^/user$", 403, times=10_000)
        yield made


def test_one_comment_is_edited_in_place(place: Watched) -> None:
    assert follow(place, run_event(place)) == 0
    (first,) = own(place)
    assert "waits for a person" in first.body
    state = place.world.state()
    assert follow(place, run_event(place)) == 0
    assert place.world.state() == state
    place.world.github().comment(place.pulls()[0].number, f"/ok to test {place.pulls()[0].head_sha}")
    assert follow(place, run_event(place)) == 0
    (second,) = own(place)
    assert (second.id, "waits for CI" in second.body) == (first.id, True)


def test_a_hold_keeps_watch_back_until_its_day_or_a_refresh(place: Watched) -> None:
    assert follow(place, comment_event(place, "/bump hold NCCL hangs until 2099-06-15")) == 0
    (comment,) = own(place)
    hold = holds.read(comment.body)
    assert hold
    assert (hold.reason, str(hold.until)) == ("NCCL hangs (release-engineer)", "2099-06-15")
    assert follow(place, run_event(place)) == 0
    assert holds.read(own(place)[0].body) == hold
    held = place.watch(TODAY)
    assert (held.state, held.passed[0].until) == ("waiting", "2099-06-15")
    assert follow(place, comment_event(place, "/bump refresh")) == 0
    assert place.watch(TODAY).state == "open"
    assert len(own(place)) == 1


def test_a_revert_waits_for_the_merge(place: Watched) -> None:
    assert follow(place, comment_event(place, "/bump revert NCCL hangs")) == 0
    assert "not merged" in own(place)[0].body
    assert len(place.pulls()) == 1
    event = comment_event(place, "/bump revert NCCL hangs")
    place.merge(place.pulls()[0].number)
    for _ in range(2):
        assert follow(place, event) == 0
    assert [pull.head_ref for pull in place.pulls()] == ["bump/main/dev-26.04-py3", "revert/main/dev-26.04-py3"]
    assert len(own(place)) == 1


def test_the_command_of_a_notification_hears_of_each_state_once(
    place: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = place.world.home / "heard"
    monkeypatch.setenv("RUNBOOK_NOTIFY", f"tee -a {heard}")
    for body in ("/bump status", "/bump status", "/bump hold x", "/bump status"):
        assert follow(place, comment_event(place, body)) == 0
    assert [json.loads(line)["event"] for line in heard.read_text().splitlines()] == ["waiting"]


COMMANDS = ("/bump status", "/bump refresh", "/bump hold because", "/bump revert")
HOSTILE = [
    *((f"> {command}", ENGINEER, "created") for command in COMMANDS),
    *((f"```\n{command}\n```", ENGINEER, "created") for command in COMMANDS),
    *((f"    {command}", ENGINEER, "created") for command in COMMANDS),
    *((f"As they said:\n{command}", ENGINEER, "created") for command in COMMANDS),
    *((f"`{command}`", ENGINEER, "created") for command in COMMANDS),
    *((command, ENGINEER, "edited") for command in COMMANDS),
    *((command, ENGINEER, "deleted") for command in COMMANDS),
    *((command, STRANGER, "created") for command in COMMANDS),
    *((command, {"login": "copy-pr-bot[bot]", "type": "Bot"}, "created") for command in COMMANDS),
    *((command, {"login": "nobody-knows", "type": "User"}, "created") for command in COMMANDS),
]


def test_forty_hostile_comments_do_nothing(place: Watched) -> None:
    assert len(HOSTILE) == 40
    before = place.world.state()
    for body, user, action in HOSTILE:
        assert follow(place, comment_event(place, body, user, action)) == 0
    assert place.world.state() == before
    # A comment that only looks like ours holds nothing.
    fake = f"{holds.STATUS}\n{holds.mark(holds.Hold('26.04-py3', 'mine'))}"
    place.world.github("contributor-token").comment(place.pulls()[0].number, fake)
    assert place.watch().state == "open"
    assert follow(place, comment_event(place, "/bump status")) == 0
    assert len(own(place)) == 2
    assert fake in [comment.body for comment in own(place)]


def test_other_pull_requests_are_left_alone(place: Watched) -> None:
    place.world.commit_on("main", "x", "x")
    other = place.world.home / "other"
    git(other, "push", "-q", "origin", "main~1:refs/heads/feature")
    git(other, "switch", "-q", "-c", "feature", "main~1")
    git(other, "commit", "-q", "--allow-empty", "-m", "y")
    git(other, "push", "-q", "origin", "feature")
    feature = place.world.github().open_pull("Feature", "practice:feature", "main", "")
    place.world.github().pull(feature.number)  # GitHub makes its merge commit on the first request
    before = place.world.state()
    assert follow(place, comment_event(place, "/bump hold it")) == 0
    assert follow(place, run_event(place)) == 0
    assert place.world.state() == before
