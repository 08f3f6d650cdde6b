"""The walk through a harmless bump, with what a person needs for it: inputs, and time without that of CI."""

import time
from dataclasses import dataclass

from lab import Lab, Tab
from playwright.sync_api import expect

from runbook_lib.practice.state import RunRecord, Store

#: In this image a test is slower, and no loss diverges.
HARMLESS = "26.05-py3"
_BROKEN = ("gpt3_mcore_te_tp4_pp1_long", "gpt3_moe_mcore_tp2_ep4_memory")
#: Seconds of a run of CI.
_CI = 3.0
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


@dataclass(frozen=True)
class Walk:
    """What a walk took: a click, a key or a filled field is one input."""

    inputs: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.inputs} inputs, {self.seconds:.0f} s without CI"


def walk(lab: Lab, tab: Tab) -> Walk:
    """Go from the start page to *Ready to merge*."""
    lab.quick_ci(_CI)
    tab.page.add_init_script(_COUNT)
    started = time.monotonic()
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
    assert f"… waiting ({HARMLESS}): not ready to merge" in tab.press("Apply", "result")
    # What only a person can decide.
    tab.shot("decide", tab.card("hybrid"))
    for name in _BROKEN:
        tab.card(name).get_by_role("button", name="Broken").click()
    tab.card("hybrid").get_by_role("button", name="Accept").click()
    plan = tab.press("Preview", "plan", says="Apply will")
    assert "file an issue for 2 tests" in plan
    tab.confirm(HARMLESS)
    assert "Ready to merge" in tab.press("Apply", "result")
    seconds = time.monotonic() - started
    return Walk(tab.page.evaluate("window.inputs"), seconds - _ci_seconds(lab))


def _ci_seconds(lab: Lab) -> float:
    """Return the time of the runs of CI that the walk started."""
    with lab.world():
        store = Store(lab.home / "forge.sqlite")
        seconds = [run.seconds for run in store.all(RunRecord)]
        store.close()
    return sum(run for run in seconds if run == _CI)
