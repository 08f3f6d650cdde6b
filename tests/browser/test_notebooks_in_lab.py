"""The notebooks in JupyterLab: "Run all" changes nothing, whatever the order, and what is saved is static."""

import json
import re

import pytest
from lab import TAG, Lab, Tab
from playwright.sync_api import expect
from practice_state import fingerprint


def test_the_start_page_runs_when_it_opens_and_others_do_not(lab: Lab, tab: Tab) -> None:
    tab.page.set_viewport_size({"width": 1280, "height": 800})
    tab.open("00-start")
    expect(tab.page.get_by_text("No bump yet")).to_be_in_viewport()
    expect(tab.form.locator("input").first).to_be_focused()
    expect(tab.button("Preview")).to_be_in_viewport()
    clean = "!window.jupyterapp.shell.currentWidget.context.model.dirty"
    assert tab.page.evaluate(clean)
    assert tab.page.locator(".jp-Dialog").count() == 0
    assert tab.page.get_by_text("Would you like to receive official Jupyter news?").count() == 0
    assert tab.page.evaluate("window.jupyterapp.commands.isToggled('docmanager:toggle-autosave')") is False
    assert not lab.audit.exists()
    tab.open("bump")
    assert tab.page.locator(".jp-OutputArea-output").count() == 0
    tab.page.wait_for_function(clean)
    tab.run_all()
    expect(tab.form.locator("input").first).to_be_in_viewport()


def test_after_a_reload_the_kernel_knows_what_the_list_shows(lab: Lab, tab: Tab) -> None:
    tab.open("00-start")
    for _ in range(2):
        tab.open("00-start")  # the kernel stays
        tab.choose(TAG)
        expect(tab.part("warning")).to_contain_text("Preview first", timeout=20_000)


@pytest.mark.component("axe")
def test_run_all_changes_nothing_and_what_is_saved_is_static(lab: Lab, tab: Tab) -> None:
    world = lab.world()
    before = fingerprint(world)
    for name in ("bump", "05-golden-values", "work-inside", "investigate-ci"):
        tab.open(name).run_all().form.first.wait_for()
        errors = tab.page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr']")
        assert errors.count() == 0, f"{name}: {errors.first.inner_text()}"
        assert tab.violations(".jp-Notebook .jp-OutputArea-output") == [], name
        require_static(tab.saved(name))
    assert fingerprint(world) == before
    assert not lab.audit.exists()


def test_a_tag_in_the_parameters_cell_still_only_previews(lab: Lab, tab: Tab) -> None:
    file = lab.folder / "runbooks/bump.ipynb"
    shipped = file.read_text()
    try:
        file.write_text(shipped.replace('tag: str = \\"\\"', f'tag: str = \\"{TAG}\\"'))
        assert TAG in file.read_text()
        world = lab.world()
        before = fingerprint(world)
        tab.open("bump").run_all()
        for _ in range(2):  # and once more, in the middle of everything
            tab.run_all()
        assert fingerprint(world) == before
        assert tab.form.get_by_label("Tag", exact=True).input_value().startswith(TAG)
    finally:
        file.write_text(shipped)


def test_cells_that_are_run_from_the_last_to_the_first_change_nothing(lab: Lab, tab: Tab) -> None:
    world = lab.world()
    before = fingerprint(world)
    tab.open("01-github-pin")
    cells = tab.page.evaluate("window.jupyterapp.shell.currentWidget.content.widgets.map(it => it.model.type)")
    for index in [at for at, kind in enumerate(cells) if kind == "code"][::-1]:
        tab.page.evaluate(f"window.jupyterapp.shell.currentWidget.content.activeCellIndex = {index}")
        tab.command("notebook:run-cell")
    tab.page.get_by_text("NameError").first.wait_for()
    assert fingerprint(world) == before
    tab.run_all().form.wait_for()
    assert tab.page.get_by_text("NameError").count() == 0


def require_static(text: str) -> None:
    """What was saved shows the same without JupyterLab and network, and can be mailed."""
    notebook = json.loads(text)
    assert "widgets" not in notebook["metadata"]
    outputs = [it for cell in notebook["cells"] for it in cell.get("outputs", ())]
    shown = ["".join(it["data"].get("text/html", "")) for it in outputs if "data" in it]
    assert shown
    assert not [it for it in shown if re.search(r"(src|href)=[\"']?https?://(?!127)|<script|<link", it)]
    widgets = [it["data"] for it in outputs if "application/vnd.jupyter.widget-view+json" in it.get("data", {})]
    texts = ["".join(it["text/plain"]) for it in widgets]
    assert [it.partition(" in JupyterLab")[0] for it in texts if it] == ["Run this notebook"]
    assert len(text) < 1_000_000
