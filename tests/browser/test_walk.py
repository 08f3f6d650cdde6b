"""A person's walk from the start page to "ready to merge", and what may go wrong on it."""

import re

from lab import TAG, Lab, Tab
from playwright.sync_api import expect

from runbook_lib.record.store import verify

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
    tab.page.add_init_script(_COUNT)
    tab.open("00-start")
    assert "No bump yet" in tab.text
    expect(tab.form).to_be_in_viewport()
    tab.shot("start")
    tab.choose(HARMLESS)
    tab.form.get_by_label("Wait for CI").check()
    plan = tab.press("Preview", "result", says="previewed")
    assert f"commit 3 files on branch bump/main/dev-{HARMLESS}" in plan
    assert "open a draft pull request" in plan
    tab.enabled("Preview")
    assert tab.button("Apply").is_disabled()
    tab.shot("plan", tab.form)
    tab.confirm(HARMLESS)
    assert "⚠ waiting: not ready to merge" in tab.press("Apply", "result")
    # What only a person can decide.
    tab.shot("decide", tab.card("hybrid"))
    for name in _BROKEN:
        tab.card(name).get_by_role("button", name="Broken").click()
    tab.card("hybrid").get_by_role("button", name="Accept").click()
    plan = tab.press("Preview", "result", says="previewed")
    assert "file an issue for " in plan
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
    world = lab.world()
    assert len(world.forge().pulls(state="all")) == 1
    titles = [it.title for it in world.forge().list_issues()]
    assert len([it for it in titles if it.startswith("🐛 CI failure: ")]) == 2


def test_a_divergence_ends_in_do_not_merge(lab: Lab, tab: Tab) -> None:
    tab.open("00-start")
    tab.choose(TAG)
    tab.form.get_by_label("Wait for CI").check()
    tab.press("Preview", "result", says="previewed")
    tab.confirm()
    tab.press("Apply", "result")
    card = tab.card("hybrid")
    expect(card.get_by_role("button").first).to_be_focused()  # the danger comes first
    expect(card.locator("img")).to_be_in_viewport(ratio=1)
    assert "diverges from step 27" in card.inner_text()
    tab.shot("divergence", card)
    card.get_by_role("button", name="Hold").click()
    card.get_by_label("Reason").fill("its loss diverges")
    for name in _BROKEN:
        tab.card(name).get_by_role("button", name="Broken").click()
    tab.press("Preview", "result", says="end with “do not merge”")
    tab.confirm()
    assert "do not merge" in tab.press("Apply", "result")
    expect(tab.part("result")).to_be_in_viewport()
    # The decision stays, and the board knows it.
    assert "of which 0 open" in tab.form.inner_text()
    tab.open("00-start")
    assert "do not merge" in tab.text
    tab.card("hybrid").filter(has_text="✓ Hold: do not merge: its loss diverges").wait_for()


def test_by_the_keyboard_alone(lab: Lab, tab: Tab) -> None:
    tab.open("01-github-pin").run_all()
    keys = tab.page.keyboard
    tab.form.get_by_label("Tag", exact=True).focus()
    keys.type(TAG)
    focused = "document.activeElement.innerText || document.activeElement.labels?.[0]?.innerText || ''"
    for label in ("Preview", "Apply"):
        tab.enabled("Preview")
        for _ in range(60):
            keys.press("Tab")
            if tab.page.evaluate(focused).strip() == label:
                break
        assert tab.page.evaluate(focused).strip() == label
        keys.press("Enter" if label == "Preview" else "Space")
        tab.wait("result", says="previewed" if label == "Preview" else "done")
    assert "⚠ done" in tab.part("result").inner_text()


def test_apply_pressed_twice_and_in_another_tab_applies_once(lab: Lab, tab: Tab) -> None:
    other = Tab(lab, tab.page.context.new_page())
    for one, name in ((tab, "03-open-pr"), (other, "02-gitlab-pin")):
        one.open(name).run_all()
        one.choose(TAG)
        one.press("Preview", "result", says="previewed")
    tab.confirm()
    tab.enabled("Apply").dblclick(delay=5)
    other.enabled("Apply").click()
    told = [one.wait("end") for one in (tab, other)]
    # Whichever comes second, while the other goes on or after it: that is not what was shown there.
    refused = [it for it in told if re.search("plan has changed since", it)]
    assert len(refused) == 1, told
    states = [it["state"] for name in ("03-open-pr", "02-gitlab-pin") for it in lab.records(name)]
    assert states.count("done") == 1
    world = lab.world()
    assert len(world.forge().pulls(state="all")) <= 1
    assert verify(lab.audit)[0] == []


def test_a_run_continues_without_browser_and_kernel_until_it_is_cancelled(lab: Lab, tab: Tab) -> None:
    tab.open("bump").run_all()
    lab.slow_ci(26000)  # a run gives up after 27000 s
    tab.choose(TAG)
    tab.form.get_by_label("Wait for CI").check()
    tab.press("Preview", "result", says="previewed")
    tab.confirm()
    tab.enabled("Apply").click()
    tab.part("progress").filter(has_text="04-run-ci").wait_for()
    tab.page.goto("about:blank")
    lab.restart_kernel("bump")
    tab.open("00-start")
    assert "1 bump in flight" in tab.text
    assert "running" in tab.text
    tab.part("progress").filter(has_text="04-run-ci").wait_for()  # the form follows it
    assert not tab.page.evaluate("window.jupyterapp.shell.currentWidget.context.model.dirty")  # as the board changes
    tab.enabled("Cancel").click()
    assert "✗ interrupted" in tab.wait("result")
    assert [it["state"] for it in lab.records("bump")] == ["previewed", "interrupted"]
    lab.end_ci()
    tab.enabled("Preview")
