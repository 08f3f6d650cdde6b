"""Quarantined tests with their age; without a tag, re-enabled or tracked on a branch and pull request of their own."""

import pytest
from bumping import World, git

from runbook_lib.bump.run_ci import push_round
from runbook_lib.decisions import Decision, Decisions
from runbook_lib.errors import Refused
from runbook_lib.failures import quarantine_survey as survey
from runbook_lib.failures.step import BrokenTests
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.ports import World as Outside

RECIPE = "tests/test_utils/recipes/h100/gpt.yaml"
CASE = "gpt3_mcore_te_tp1_pp1"


def run_survey(
    at: World, *, broken: str = "", reenable: str = "", tag: str = "", mode: str = "publish"
) -> survey.QuarantineSurvey:
    """Step 6 as its notebook runs it; returns the tests that it saw in quarantine."""
    bump = at.run(BrokenTests(), push_round, tag=tag, mode=mode, broken=broken, reenable=reenable)
    return survey.look(Outside(at.checkout, at.github(), at.steps[-1]), BumpBranch.find(at.checkout, bump))


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
    quarantined = run_survey(untracked, tag="26.04-py3")
    head = git(untracked.checkout.path, "rev-parse", "main")
    newest = quarantined.tests[-1]
    assert (newest.row.case, newest.issue, newest.commit) == (CASE, None, head)
    assert newest.age.startswith("0 days, since ")
    decisions = {(entry["kind"], entry["subject"]): entry for entry in untracked.said("decisions")}
    assert len(decisions) == len(quarantined.tests) == 2
    offer = decisions["reenable", f"gpt/{CASE}@dgx_h100"]
    assert (offer["suggestion"], "without an issue" in offer["why"]) == ("try it on 26.04-py3", True)
    assert untracked.effects() == []


def test_without_a_decision_and_in_a_preview_nothing_changes(untracked: World) -> None:
    before = untracked.state()
    run_survey(untracked)
    assert untracked.outcome() == "No tag was given: 2 quarantined rows on main, 1 without an issue."
    asked = {entry["kind"]: entry["subject"] for entry in untracked.said("decisions")}
    assert asked["broken"] == f"gpt/{CASE}@dgx_h100"
    run_survey(untracked, broken=f"{CASE}@dgx_h100: it hangs", mode="preview")
    assert (untracked.state(), untracked.effects()) == (before, [])
    assert untracked.outcome().startswith(f"Preview: would file an issue for gpt/{CASE}@dgx_h100 (dev): ")
    assert "; open a draft pull request " in untracked.outcome()
    assert "+        # Broken: it hangs — see issue #(new), review by 20" in untracked.kept("change.diff")


def test_an_issue_is_filed_for_a_row_that_has_none(untracked: World) -> None:
    for attempt in range(2):
        run_survey(untracked, broken=f"{CASE}@dgx_h100: it hangs")
        effects = [effect for effect in untracked.effects() if effect != "edit"]
        assert effects == ([] if attempt else ["issue", "branch", "commit", "push", "pull request"])
        assert set(untracked.checks().values()) == {"passed"}
    (issue,) = [it for it in untracked.github().list_issues() if CASE in it.title]
    assert CASE in issue.title
    branch = f"quarantine/main/{CASE}-dgx_h100"
    text = git(untracked.remote, "show", f"{branch}:{RECIPE}")
    assert f"# Broken: it hangs — see issue #{issue.number}, review by 20" in text
    (pull,) = untracked.github().pulls(head=f"practice:{branch}") or untracked.github().pulls()
    assert (pull.head_ref, pull.title, pull.draft) == (branch, f"test: track {CASE}", True)
    named = Decisions((Decision("broken", f"{CASE}@dgx_h100", "it hangs", issue=pull.number),))
    untracked.run(BrokenTests(), tag="", mode="preview", decisions=named)
    (warning,) = untracked.said("warnings")
    assert f"#{pull.number} is a pull request, so it does not track gpt/{CASE}@dgx_h100" in warning


def test_a_test_is_re_enabled_in_a_pull_request_of_its_own(untracked: World) -> None:
    before = git(untracked.checkout.path, "show", f"main~1:{RECIPE}")
    run_survey(untracked, reenable=f"{CASE}@dgx_h100: fixed")
    effects = [effect for effect in untracked.effects() if effect != "edit"]
    assert effects == ["branch", "commit", "push", "pull request", "label"]
    assert set(untracked.checks().values()) == {"passed"}
    branch = f"quarantine/main/{CASE}-dgx_h100"
    assert git(untracked.remote, "show", f"{branch}:{RECIPE}") == before
    message = git(untracked.remote, "log", "-1", "--format=%B", branch)
    assert message.startswith(f"test: re-enable {CASE}\n")
    (pull,) = [pull for pull in untracked.github().pulls() if pull.head_ref == branch]
    assert pull.labels == frozenset({"Run functional tests"})
    assert f"`gpt/{CASE}@dgx_h100 (dev)` is re-enabled: fixed" in pull.body
    assert git(untracked.checkout.path, "rev-parse", "main") == git(untracked.remote, "rev-parse", "main")
    # Only runs show that it passes, and few of them prove little.
    untracked.github().comment(pull.number, f"/ok to test {git(untracked.remote, 'rev-parse', branch)}")
    untracked.now[0] += 1000
    own = run_survey(untracked, reenable=f"{CASE}@dgx_h100: fixed").own
    assert own is not None
    (ran,) = own.passing
    assert (ran.passed, ran.failed, round(ran.bound, 2)) == (1, 0, 0.45)
    assert f"re-enabled: fixed; {ran.sentence}" in untracked.github().pull(pull.number).body
    asked = {each.subject: each.suggestion for each in run_survey(untracked).questions() if each.kind == "reenable"}
    assert asked[f"gpt/{CASE}@dgx_h100"] == ran.sentence


def test_a_test_that_runs_is_neither_re_enabled_nor_broken(untracked: World) -> None:
    run_survey(untracked, reenable="gpt3_mcore_te_tp4_pp1_long@dgx_h100: fixed")
    assert untracked.effects() == []
    assert untracked.outcome().startswith("No row changes; 2 quarantined rows on main")
    with pytest.raises(Refused, match=r"is not quarantined on main\. Give the tag"):
        run_survey(untracked, broken="gpt3_mcore_te_tp4_pp1_long@dgx_h100: it hangs")
