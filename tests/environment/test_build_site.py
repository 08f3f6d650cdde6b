"""The documentation's site: built strictly, without a request to another host."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "environment/build_site.py"
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["'](?!data:)([^"']+)|<link\b[^>]*\bhref=["']([^"']+)"""
)


@pytest.fixture(scope="module")
def build_site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_site", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("docs/a.md", "[b](https://x.example/docs/a.md)", "[b](https://x.example/docs/a.md)"),
        ("docs/a.md", "[b](#there)", "[b](#there)"),
        ("docs/a.md", "[b](b.md#c)", "[b](b.md#c)"),
        ("docs/a.md", "![b](shots/b.png)", "![b](shots/b.png)"),
        ("docs/a.md", "[b](../runbooks/bump.ipynb)", "[b](notebooks/bump.md)"),
        ("docs/a.md", "[b](../SECURITY.md#x), [c](../README.md)", "[b](security.md#x), [c](index.md)"),
        ("docs/a.md", "[the schema](../runbook_lib/a.json)", "the schema"),
        ("README.md", "[b](docs/b.md) ![c](docs/c.png)", "[b](b.md) ![c](c.png)"),
    ],
)
def test_links_lead_to_pages(build_site: ModuleType, source: str, text: str, expected: str) -> None:
    assert build_site.relink(text, source) == expected


@pytest.mark.slow
def test_the_site_is_built_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), str(tmp_path / "site")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = {path.relative_to(tmp_path / "site").as_posix(): path.read_text() for path in tmp_path.rglob("*.html")}
    for notebook in (ROOT / "runbooks").glob("*.ipynb"):
        assert 'class="executed"' in pages[f"notebooks/{notebook.stem}/index.html"]
    assert "runbook check" in pages["commands/index.html"]
    for name, page in pages.items():
        loaded = {first or second for first, second in _LOADED.findall(page)}
        assert not [address for address in loaded if "//" in address], name
        assert str(tmp_path) not in page
        assert str(ROOT) not in page


@pytest.mark.slow
def test_a_link_that_leads_nowhere_ends_the_build(
    tmp_path: Path, build_site: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stage(folder: Path) -> None:
        folder.mkdir()
        (folder / "index.md").write_text("[a](missing.md)")

    monkeypatch.setattr(build_site, "stage", stage)
    monkeypatch.setattr(sys, "argv", ["build_site.py", str(tmp_path / "site")])
    assert build_site.main() == 1
