"""The board of the start page, and the cards of a bump's decisions."""

import pytest
from archives import record, two_bumps
from lab import LOOKS, TAG, Lab, Tab
from playwright.sync_api import expect

from runbook_lib.practice.forge import REPOSITORY
from runbook_lib.record import decisions
from runbook_lib.record.run_file import Identity

VALUES = [f"gpt/case{number}/golden_values_dev_dgx_h100.json" for number in (1, 2, 3)]
GROUPS = ["dgx_gb200/iteration-time", "dgx_h100/iteration-time"]
TESTS = [f"gpt/broken{number}@dgx_h100" for number in (1, 2, 3)]
PLOT = '<svg xmlns="http://www.w3.org/2000/svg" width="300" height="90"><path d="M0 80L300 9" stroke="#888"/></svg>'


def request_decisions(lab: Lab) -> None:
    """Leave records that request two groups, three single values, of which one diverges, and three broken tests."""
    bump = Identity(REPOSITORY, "main", "dev", TAG, practice=True)
    asked = []
    for name in GROUPS:
        facts = {"numbers": "36 tests slower, ×1.48", "files": VALUES, "key": name}
        asked.append({"kind": "accept", "subject": name, "why": "w", "suggestion": "slower, ×1.48", "facts": facts})
    for name in VALUES:
        facts = {"numbers": "iteration-time 0.4 s → 0.6 s", "test": name.rpartition("/")[0] + "@dgx_h100"}
        facts |= {"plot": "plot-1.svg", "danger": "divergence" if name == VALUES[0] else ""}
        suggestion = "" if facts["danger"] else "×1.48"
        asked.append({"kind": "accept", "subject": name, "why": "w", "suggestion": suggestion, "facts": facts})
    record(lab.audit, "05-golden-values", "waiting", bump=bump, decisions=asked, files={"plot-1.svg": PLOT})
    asked = []
    for name in TESTS:
        facts = {"test": name, "details": {"Class": "hang", "Advice": "Read the log."}, "lines": ["x" * 300]}
        facts["log"] = "https://example.org/log"
        asked.append({"kind": "broken", "subject": name, "why": "w", "suggestion": "it hangs", "facts": facts})
    record(lab.audit, "06-broken-tests", "waiting", bump=bump, at=1, decisions=asked)


def require_legible(tab: Tab, place: str, fields: str) -> None:
    """Every theme and width shows the place without a fault, and the fields of the form within it."""
    outer = tab.page.locator(".jp-WindowedPanel-outer").first
    for theme, width in LOOKS:
        tab.look(theme, width)
        assert tab.violations(place) == [], (theme, width)
        assert outer.evaluate("it => it.scrollWidth <= it.clientWidth")
        right = tab.form.evaluate("it => it.getBoundingClientRect().right")
        furthest = "all => Math.max(...all.map(it => it.getBoundingClientRect().right))"
        assert tab.form.locator(fields).evaluate_all(furthest) <= right + 1


@pytest.mark.component("axe")
def test_the_start_page_in_each_width_and_theme(lab: Lab, tab: Tab) -> None:
    two_bumps(lab.audit.parent)
    tab.page.set_viewport_size({"width": 1280, "height": 800})
    tab.open("00-start")
    tab.page.get_by_text("2 bumps in flight").wait_for()
    field = tab.form.get_by_label("Tag", exact=True)
    expect(field).to_be_focused()
    expect(field).to_be_in_viewport()
    require_legible(tab, ".jp-Notebook .jp-OutputArea-output", "select, input")


@pytest.mark.component("axe")
def test_cards_can_be_read_and_their_answers_are_applied(lab: Lab, tab: Tab) -> None:
    request_decisions(lab)
    tab.open("bump").run_all()
    tab.choose(TAG)
    tab.card(TESTS[2]).wait_for()
    assert tab.form.locator(".runbook-card").count() == 8
    require_legible(tab, ".runbook-form", ".runbook-card, .runbook-card img")
    danger = tab.card(VALUES[0])
    danger.get_by_role("button", name="Accept").click()
    danger.get_by_label("Reason").fill("known")
    danger.get_by_label("Type “divergence”").fill("divergence")
    for name in (*GROUPS, *VALUES[1:]):
        tab.card(name).get_by_role("button", name="Accept").click()
    for name in TESTS:
        tab.card(name).get_by_role("button", name="Broken").click()
    tab.form.get_by_text("of which 0 open").wait_for()
    tab.press("Preview", "end")
    assert tab.violations(".runbook-form") == []
    (file,) = lab.audit.rglob("decisions.yaml")
    made = {each.subject: each.reason for each in decisions.read(file).entries}
    assert made == (
        {VALUES[0]: "known"} | dict.fromkeys(GROUPS, "slower, ×1.48") | dict.fromkeys(VALUES[1:], "×1.48")
        | dict.fromkeys(TESTS, "it hangs")
    )  # fmt: skip


def test_no_key_typed_in_the_form_leaves_it(lab: Lab, tab: Tab) -> None:
    request_decisions(lab)
    tab.open("bump").run_all()
    tab.choose(TAG)
    card = tab.card(VALUES[1])
    card.get_by_role("button", name="Accept").click()
    notebook = """() => {
      const { content, context } = window.jupyterapp.shell.currentWidget;
      return [JSON.stringify(context.model.toJSON().cells), content.activeCellIndex];
    }"""
    before = tab.page.evaluate(notebook)
    reason, button, text = card.get_by_label("Reason"), card.get_by_role("button", name="Hold"), card.locator("h4")
    tag = tab.form.get_by_label("Tag", exact=True)  # last: without it there are no cards
    for place in (button, text, reason, tag):
        if place is tag:
            assert reason.input_value().endswith("xmddabz001")
        for key in ("x", "m", "d", "d", "a", "b", "z", "0", "0", "1", "Escape", "Shift+Enter"):
            if place is text:
                text.click()  # what has no focus itself
            else:
                place.focus()
            tab.page.keyboard.press(key)
            assert tab.page.evaluate(notebook) == before, (place, key)
    assert tab.page.locator(".jp-Dialog").count() == 0
