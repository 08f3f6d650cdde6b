"""The documents: every link within the project leads to a file, and to a heading if it names one."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "environment/jupyter/README.md"]
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
