"""Eight decisions of a bump, taken by the keyboard alone, in each size and theme."""

import time

import pytest
from archives import record
from lab import TAG, Lab, Tab

from runbook_lib.practice.world import REPOSITORY
from runbook_lib.records.statement import Identity

pytestmark = pytest.mark.slow
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
        asked.append({"parameter": "accept", "name": name, "why": "w", "suggestion": "slower, ×1.48", "facts": facts})
    for name in VALUES:
        facts = {"numbers": "iteration-time 0.4 s → 0.6 s", "test": name.rpartition("/")[0] + "@dgx_h100"}
        facts |= {"plot": "plot-1.svg", "danger": "divergence" if name == VALUES[0] else ""}
        suggestion = "" if facts["danger"] else "×1.48"
        asked.append({"parameter": "accept", "name": name, "why": "w", "suggestion": suggestion, "facts": facts})
    record(lab.audit, "05-golden-values", "waiting", bump=bump, decisions=asked, files={"plot-1.svg": PLOT})
    asked = []
    rows = "job,class,platform,next,url,test\n"
    for name in TESTS:
        asked.append(
            {"parameter": "broken", "name": name, "why": "w", "suggestion": "it hangs", "facts": {"test": name}}
        )
        rows += f"{name},hang,dgx_h100,Read the log.,https://example.org/log,{name.partition('@')[0]}\n"
    evidence = "job,platform,text\n" + "".join(f"{name},dgx_h100,{'x' * 300}\n" for name in TESTS)
    files = {"failures.csv": rows, "evidence.csv": evidence}
    record(lab.audit, "06-broken-tests", "waiting", bump=bump, at=1, decisions=asked, files=files)


@pytest.mark.component("axe")
@pytest.mark.parametrize(
    ("width", "theme", "zoom"),
    [(1280, "Light", 1), (1440, "Dark", 1), (1280, "Dark", 2)],
    ids=["1280 light", "1440 dark", "1280 dark at 200 %"],
)
def test_eight_decisions_take_less_than_a_minute_by_keyboard(
    lab: Lab, tab: Tab, width: int, theme: str, zoom: int
) -> None:
    request_decisions(lab)
    tab.page.set_viewport_size({"width": width // zoom, "height": 900 // zoom})
    tab.open("bump", theme=theme).run_all()
    tab.choose("Tag", TAG)
    tab.card(TESTS[2]).wait_for()
    assert tab.form.locator(".rb-card").count() == 8
    assert tab.violations(".runbook-form") == []
    for wide in tab.form.locator(".rb-card, .rb-card pre, .rb-card img").all():
        box, form = wide.bounding_box(), tab.form.bounding_box()
        assert box is None or form is None or box["x"] + box["width"] <= form["x"] + form["width"] + 1
    keys, started = tab.page.keyboard, time.monotonic()
    tab.form.locator(".rb-card").first.focus()
    # The divergence is first: to accept it takes a reason, and its word.
    keys.press("h")
    keys.press("Enter")
    keys.type("ask the owners")
    keys.press("Enter")
    for _ in (*GROUPS, *VALUES[1:]):
        keys.press("a")
    for _ in TESTS:
        keys.press("b")
    assert time.monotonic() - started <= 60
    assert "of which 0 open" in tab.form.locator(".rb-head").inner_text()
    tab.page.wait_for_function("document.activeElement.innerText.trim() == 'Preview'")
    tab.shot(f"cards-{width}-{theme.lower()}", tab.form)
    keys.press("Enter")
    tab.wait("end")
    given = lab.records("bump")[-1]["parameters"]["given"]
    assert given["hold"] == f"{VALUES[0]}: ask the owners"
    assert given["accept"] == "; ".join(
        [*(f"{name}: slower, ×1.48" for name in GROUPS), *(f"{name}: ×1.48" for name in VALUES[1:])]
    )
    assert given["broken"] == "; ".join(f"{name}: it hangs" for name in TESTS)


def test_a_divergence_is_accepted_by_typing_its_word_and_esc_leaves_the_reason(lab: Lab, tab: Tab) -> None:
    request_decisions(lab)
    tab.open("bump").run_all()
    tab.choose("Tag", TAG)
    card, keys = tab.card(VALUES[0]), tab.page.keyboard
    card.wait_for()
    card.focus()
    keys.press("a")
    keys.press("Enter")
    keys.type("jk is text here")
    keys.press("Escape")
    assert card.evaluate("it => it === document.activeElement")
    assert "Type “diverges”" in card.inner_text()
    tab.page.wait_for_function("document.querySelector('.runbook-preview').disabled")
    keys.press("Enter")
    keys.type("diverges")
    keys.press("Enter")
    assert "✓ Accept: jk is text here" in card.inner_text()
    tab.enabled("Preview")
    keys.press("k")
    assert card.evaluate("it => it === document.activeElement")
    keys.press("a")  # again: it stays as it is
    assert "✓ Accept" in card.inner_text()


def test_no_key_typed_in_the_form_leaves_it(lab: Lab, tab: Tab) -> None:
    request_decisions(lab)
    tab.open("bump").run_all()
    tab.choose("Tag", TAG)
    card = tab.card(VALUES[1])
    card.get_by_role("button", name="Accept").click()
    notebook = """() => {
      const { content, context } = window.jupyterapp.shell.currentWidget;
      return [JSON.stringify(context.model.toJSON().cells), content.activeCellIndex];
    }"""
    before = tab.page.evaluate(notebook)
    reason, button, text = card.get_by_label("Reason"), card.get_by_role("button", name="Hold"), card.locator("h4")
    tag = tab.form.get_by_label("Tag", exact=True)  # last: without it there are no cards
    for place in (card, text, button, reason, tag):
        for key in ("x", "m", "d", "d", "a", "b", "z", "0", "0", "1", "Escape", "Shift+Enter"):
            if place is text:
                text.click()
            elif place is tag:
                tag.focus()
            else:
                card.focus()  # unfolds it
                place.focus()
            tab.page.keyboard.press(key)
            assert tab.page.evaluate(notebook) == before, (place, key)
    assert tab.page.locator(".jp-Dialog").count() == 0
    assert reason.input_value().endswith("xmddabz001")
