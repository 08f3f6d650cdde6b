"""Quarantined tests with their age; without a tag, re-enabled or tracked on a branch and pull request of their own."""

from dataclasses import replace

import pytest
from bumping import World, bump_to, git

from runbook_lib.bump import Bump
from runbook_lib.errors import Refused
from runbook_lib.recipes import quarantine
from runbook_lib.steps.broken_tests import own_change, survey
from runbook_lib.steps.broken_tests.own_change import SurveyOutcome
from runbook_lib.steps.broken_tests.survey import QuarantineSurvey
from runbook_lib.workflow import bump_branch

RECIPE = "tests/test_utils/recipes/h100/gpt.yaml"
CASE = "gpt3_mcore_te_tp1_pp1"


def without_tag(mode: str = "publish") -> Bump:
    return replace(bump_to(mode=mode), tag=None)


def run_survey(
    world: World, bump: Bump, *, broken: str = "", reenable: str = ""
) -> tuple[QuarantineSurvey, SurveyOutcome]:
    """The survey as the notebook runs it."""
    step = world.step(bump)
    branch = bump_branch.find(world.checkout, bump)
    quarantined = survey.look(branch, world.github(), broken=broken, reenable=reenable)
    assert quarantined.show().text
    outcome = own_change.carry_out(step, quarantined)
    own_change.verify(step, outcome)
    return quarantined, outcome


@pytest.fixture
def untracked(world: World) -> World:
    """A base branch on which somebody has quarantined a test without an issue."""
    git(world.checkout.path, "switch", "-q", "main")
    path = world.checkout.path / RECIPE
    text = path.read_text()
    at = text.index(f"[{CASE}]")
    scope = text.index("mr-github", at)
    path.write_text(text[:scope] + "mr-github-broken" + text[scope + len("mr-github") :])
    git(world.checkout.path, "commit", "-qsam", "test: quarantine without an issue")
    git(world.checkout.path, "push", "-q", "origin", "main")
    return world


def test_a_bump_lists_quarantined_tests_and_offers_to_try_them(untracked: World) -> None:
    quarantined, _ = run_survey(untracked, bump_to())
    head = git(untracked.checkout.path, "rev-parse", "main")
    newest = quarantined.tests[-1]
    assert (newest.entry.row.case, newest.entry.issue, newest.commit) == (CASE, None, head)
    assert newest.age.startswith("0 days, since ")
    decisions = {(entry["parameter"], entry["name"]): entry for entry in untracked.said("decision")}
    assert len(decisions) == len(quarantined.tests) == 2
    offer = decisions["reenable", f"gpt/{CASE}@dgx_h100"]
    assert (offer["suggestion"], "without an issue" in offer["why"]) == ("try it on 26.04-py3", True)
    assert untracked.effects() == []


def test_without_a_tag_and_a_decision_nothing_changes(untracked: World) -> None:
    before = untracked.state()
    run_survey(untracked, without_tag())
    assert (untracked.state(), untracked.effects()) == (before, [])
    assert untracked.outcome() == "No tag was given: 2 quarantined rows on main, 1 without an issue."
    assert [entry["name"] for entry in untracked.said("decision") if entry["parameter"] == "broken"] == [
        f"gpt/{CASE}@dgx_h100"
    ]


def test_a_preview_shows_the_rows_and_changes_nothing(untracked: World) -> None:
    before = untracked.state()
    quarantined, _ = run_survey(untracked, without_tag("preview"), broken=f"{CASE}@dgx_h100: it hangs")
    assert "+        # Broken: it hangs — see issue #(new)." in quarantined.show().text
    assert (untracked.state(), untracked.effects()) == (before, [])
    assert untracked.outcome().startswith("Preview: 1 quarantined test tracked by an issue")


def test_an_issue_is_filed_for_a_row_that_has_none(untracked: World) -> None:
    for attempt in range(2):
        _, outcome = run_survey(untracked, without_tag(), broken=f"{CASE}@dgx_h100: it hangs")
        effects = [effect for effect in untracked.effects() if effect != "edit"]
        assert effects == ([] if attempt else ["issue", "branch", "commit", "push", "pull request"])
        assert untracked.checks() == {"every named row has its issue": "passed"}
    ((target, issue),) = outcome.issues.items()
    assert (target.case, issue.title.startswith("Quarantined in CI: ")) == (CASE, True)
    assert untracked.github().issue(issue.number).state == "open"
    branch = f"quarantine/main/{CASE}-dgx_h100"
    text = git(untracked.remote, "show", f"{branch}:{RECIPE}")
    assert f"# Broken: it hangs — see issue #{issue.number}." in text
    (pull,) = untracked.github().pulls(head=f"practice:{branch}") or untracked.github().pulls()
    assert (pull.head_ref, pull.title, pull.draft) == (branch, f"test: track {CASE}", True)


def test_a_test_is_re_enabled_in_a_pull_request_of_its_own(untracked: World) -> None:
    before = git(untracked.checkout.path, "show", f"main~1:{RECIPE}")
    _, outcome = run_survey(untracked, without_tag(), reenable=f"{CASE}@dgx_h100: fixed")
    effects = [effect for effect in untracked.effects() if effect != "edit"]
    assert effects == ["branch", "commit", "push", "pull request", "label"]
    assert untracked.checks() == {"the re-enabled tests run again": "passed"}
    branch = f"quarantine/main/{CASE}-dgx_h100"
    assert git(untracked.remote, "show", f"{branch}:{RECIPE}") == before
    message = git(untracked.remote, "log", "-1", "--format=%B", branch)
    assert message.startswith(f"test: re-enable {CASE}\n")
    (pull,) = [pull for pull in untracked.github().pulls() if pull.head_ref == branch]
    assert (pull.labels, outcome.url) == (frozenset({"Run functional tests"}), pull.url)
    assert git(untracked.checkout.path, "rev-parse", "main") == git(untracked.remote, "rev-parse", "main")


def test_without_a_run_only_a_quarantined_test_can_be_named(untracked: World) -> None:
    with pytest.raises(Refused, match=r"is not quarantined on main\. Give the tag"):
        run_survey(untracked, without_tag(), broken="gpt3_mcore_te_tp4_pp1_long@dgx_h100: it hangs")


def test_a_tracked_row_returns_byte_for_byte(untracked: World) -> None:
    bump = without_tag("preview")
    quarantined, _ = run_survey(untracked, bump, broken=f"{CASE}@dgx_h100: it hangs")
    (edit,) = quarantined.edits(quarantined.branch, dict.fromkeys(quarantined.untracked, 7))
    restored = quarantine.unmark(edit.path, edit.after, quarantined.untracked).after
    assert f"{restored}\n".rstrip() == git(untracked.checkout.path, "show", f"main~1:{RECIPE}").rstrip()
