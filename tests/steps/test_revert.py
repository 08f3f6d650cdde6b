"""`runbook revert`: one pull request that takes a bump back, and what `watch` makes of it."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from bumping import git
from watched import Watched, watched

from runbook_lib.cli.__main__ import main
from runbook_lib.errors import Refused
from runbook_lib.pins.watch_rules import Hold
from runbook_lib.workflow import holds


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Watched]:
    with watched(tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    "hold",
    [
        Hold("26.04-py3", "NCCL hangs", date(2026, 6, 15)),
        Hold("26.04-py3", "closes #1, @team, /ok to test"),
        Hold("26.04-py3", '--> <!-- base-image-runbook:hold {} --> "quoted" \\u003c ünï\u2028', None),
    ],
)
def test_a_hold_is_read_as_it_was_written(hold: Hold) -> None:
    assert holds.read(f"text {holds.mark(hold)} more") == hold
    assert holds.mark(hold).count("-->") == 1
    assert not set("#@/") & set(holds.mark(hold))


@pytest.mark.parametrize(
    "text",
    ["", "hold {}", "<!-- base-image-runbook:hold {} -->", '<!-- base-image-runbook:hold {"tag": -->',
     '<!-- base-image-runbook:hold {"tag":"a","reason":"b","until":"soon"} -->'],
)  # fmt: skip
def test_other_texts_are_not_holds(text: str) -> None:
    assert holds.read(text) is None


def test_an_unmerged_bump_is_not_reverted(place: Watched) -> None:
    before = place.world.state()
    with pytest.raises(Refused, match="nothing to revert"):
        place.revert()
    checkout = str(place.world.home / "checkout")
    assert main(["revert", checkout, "--tag", "26.04-py3", "--reason", "x", "--publish"]) == 1
    assert place.world.state() == before


@pytest.mark.slow
def test_a_merged_bump_is_reverted_once_and_tried_again_when_its_hold_ends(place: Watched) -> None:
    main_before = git(place.world.remote, "rev-parse", "main^{tree}")
    place.watch()
    place.merge(place.pulls()[0].number)
    before = place.world.state()
    preview = place.revert(publish=False)
    assert "NCCL hangs" in preview.text
    assert place.world.state() == before

    first = place.revert(until="2026-06-15")
    again = place.revert(until="2026-06-20")
    assert first.url == again.url
    pull = place.pulls()[-1]
    assert (len(place.pulls()), pull.draft, pull.head_ref) == (2, True, "revert/main/dev-26.04-py3")
    assert holds.read(pull.body) == Hold("26.04-py3", "NCCL hangs", date(2026, 6, 20))
    assert "Run functional tests" in pull.labels
    assert git(place.world.home / "checkout", "branch", "--list", "revert/*") == ""
    place.merge(pull.number)
    assert git(place.world.remote, "rev-parse", "main^{tree}") == main_before
    assert "already" in place.revert().sentence

    held = place.watch(date(2026, 6, 19))
    assert (held.state, held.passed[0].until) == ("waiting", "2026-06-20")
    assert place.watch(date(2026, 6, 20)).state == "open"
    assert [each.head_ref for each in place.pulls() if each.state == "open"] == ["bump/main/dev-26.04-py3"]


@pytest.mark.slow
def test_a_revert_without_an_end_is_a_hold_for_good_and_one_by_hand_needs_a_person(place: Watched) -> None:
    place.watch()
    place.merge(place.pulls()[0].number)
    place.revert(until="driver 595 is on every node")
    pull = place.pulls()[-1]
    assert "driver 595 is on every node" in pull.body
    place.merge(pull.number)
    assert place.watch(date(2030, 1, 1)).state == "waiting"
    place.world.github().update_pull(pull.number, "Somebody removed it.")
    result = place.watch()
    assert (result.state, result.exit_status) == ("needs a person", 1)
