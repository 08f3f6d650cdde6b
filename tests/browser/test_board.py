"""The board of the start page."""

import pytest
from archives import two_bumps
from lab import Lab, Tab
from playwright.sync_api import expect

from runbook_lib.records import archive

pytestmark = pytest.mark.slow


@pytest.mark.component("axe")
def test_a_bump_is_dismissed_by_a_button(lab: Lab, tab: Tab) -> None:
    two_bumps(lab.audit.parent)
    tab.page.set_viewport_size({"width": 1280, "height": 1000})
    tab.open("00-start")
    buttons = tab.page.locator(".runbook-dismiss button")
    expect(buttons).to_have_count(2)
    tab.page.get_by_text("2 bumps in flight").wait_for()
    assert tab.violations(".jp-Notebook .jp-OutputArea-output") == []
    tab.shot("board")
    buttons.first.click()
    tab.page.get_by_text("1 bump in flight").wait_for()
    expect(buttons).to_have_count(1)
    assert [bump.dismissed for bump in archive.status(lab.audit)].count(True) == 1
    tab.open("00-start")
    tab.page.get_by_text("1 bump in flight").wait_for()
    expect(buttons).to_have_count(1)
