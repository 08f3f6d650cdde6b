"""The board of the start page."""

import pytest
from archives import two_bumps
from lab import LOOKS, Lab, Tab
from playwright.sync_api import expect


@pytest.mark.component("axe")
def test_the_start_page_in_each_width_and_theme(lab: Lab, tab: Tab) -> None:
    two_bumps(lab.audit.parent)
    tab.page.set_viewport_size({"width": 1280, "height": 800})
    tab.open("00-start")
    tab.page.get_by_text("2 bumps in flight").wait_for()
    field = tab.form.get_by_label("Tag", exact=True)
    expect(field).to_be_focused()
    expect(field).to_be_in_viewport()
    outer = tab.page.locator(".jp-WindowedPanel-outer").first
    for theme, width in LOOKS:
        tab.look(theme, width)
        assert tab.violations(".jp-Notebook .jp-OutputArea-output") == [], (theme, width)
        assert outer.evaluate("it => it.scrollWidth <= it.clientWidth")
        right = tab.form.evaluate("it => it.getBoundingClientRect().right")
        fields = "all => Math.max(...all.map(it => it.getBoundingClientRect().right))"
        assert tab.form.locator("select, input").evaluate_all(fields) <= right
        tab.shot(f"board-{theme.lower()}-{width}")
