"""The board of the start page."""

import pytest
from archives import two_bumps
from lab import Lab, Tab
from playwright.sync_api import expect

pytestmark = pytest.mark.slow


@pytest.mark.component("axe")
@pytest.mark.parametrize(
    ("width", "theme", "zoom"),
    [(1280, "Light", 1), (1440, "Dark", 1), (1280, "Dark", 2)],
    ids=["1280 light", "1440 dark", "1280 dark at 200 %"],
)
def test_the_start_page_in_each_size_and_theme(lab: Lab, tab: Tab, width: int, theme: str, zoom: int) -> None:
    two_bumps(lab.audit.parent)
    tab.page.set_viewport_size({"width": width // zoom, "height": 800 // zoom})
    tab.open("00-start", theme=theme)
    tab.page.get_by_text("2 bumps in flight").wait_for()
    field = tab.form.get_by_label("Tag", exact=True)
    expect(field).to_be_focused()
    expect(field).to_be_in_viewport()
    assert tab.violations(".jp-Notebook .jp-OutputArea-output") == []
    assert tab.violations(".runbook-form") == []
    outer = tab.page.locator(".jp-WindowedPanel-outer").first
    assert outer.evaluate("it => it.scrollWidth <= it.clientWidth")
    for widget in tab.form.locator("select, input").all():
        box, form = widget.bounding_box(), tab.form.bounding_box()
        assert box is None or form is None or box["x"] + box["width"] <= form["x"] + form["width"]
