"""The pages of the archive in a real browser: the index and the reports."""

from pathlib import Path

import executing as execute
import pytest
from lab import ROOT, TAG, violations
from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """What a bump in the practice environment leaves for people to read."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RUNBOOK_PRACTICE_HOME", str(folder / "practice"))
        patch.setenv("RUNBOOK_AUDIT", str(folder / "audit"))
        assert execute.execute(ROOT / "runbooks/bump.ipynb", {"tag": TAG}).ok
    return [page for name in ("index.html", "report.html") for page in (folder / "audit").rglob(name)]


@pytest.mark.component("axe")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pages_can_be_read_by_everybody_and_load_nothing(browser: Browser, pages: list[Path], scheme: str) -> None:
    assert {page.name for page in pages} == {"index.html", "report.html"}
    with browser.new_context(color_scheme=scheme, offline=True) as context:  # type: ignore[arg-type]
        for page in pages:
            tab = context.new_page()
            asked: list[str] = []
            tab.on("request", lambda request, asked=asked: asked.append(request.url))
            tab.goto(page.as_uri())
            tab.evaluate("document.querySelectorAll('details').forEach(it => { it.open = true })")
            assert violations(tab, "html") == [], page
            assert [it for it in asked if not it.startswith("data:")] == [page.as_uri()]
            assert page.stat().st_size < 1_000_000
