"""The documents: every link within the project leads to a file, and to a heading if it names one."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^()#\s]*)(?:#([^()\s]+))?\)")


def anchors(text: str) -> set[str]:
    """Return the anchors that a forge gives to a document's headings."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_a_link_leads_somewhere(path: Path) -> None:
    for name, anchor in _LINK.findall(path.read_text()):
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), name
        assert not anchor or anchor in anchors(target.read_text()), f"{name}#{anchor}"


@pytest.mark.parametrize("name", ["SECURITY.md", "CONTRIBUTING.md", "RELEASING.md", "docs/architecture.md"])
def test_the_files_of_the_project_that_a_document_names_exist(name: str) -> None:
    text = (ROOT / name).read_text()
    named = set(re.findall(r"(?<![\w/~.])(?:[\w-]+/)+[\w-]+\.(?:py|toml|txt)\b", text))
    assert named
    places = (ROOT, ROOT / "tests", ROOT / "runbook_lib")
    assert {file for file in named if not any((place / file).is_file() for place in places)} == set()
