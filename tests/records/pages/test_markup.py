"""No text of a record becomes markup of a page: neither an element, nor an attribute, nor an address that runs."""

from pathlib import Path

import pytest
from archives import BUMP, elements, record
from hypothesis import given, settings
from hypothesis import strategies as st
from markup import a_notebook, a_run, changed, files, require_ours

from runbook_lib.notebook import start
from runbook_lib.notebooks import STEPS
from runbook_lib.records import archive
from runbook_lib.records.pages import index, run
from runbook_lib.records.statement import Identity

PARTS = ["<", ">", "</p>", "<!--", '"', "'", " ", "&", "&lt;", "*a*", "\n", "/", "//evil.example/", "..", "#", "?",
         "%2F", "javascript:alert(1)", "https://ci/1", "<script>x</script>", "<img src=x onerror=x y=", "' onclick='x",
         '" onclick="x', "</title>", "</style>", "](javascript:x)", "| ---", "data:text/html,x", "x"]  # fmt: skip
#: Any other text opens no element, which a notebook may well show.
OTHER = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<"), min_size=1)
HOSTILE = st.lists(st.sampled_from(PARTS), min_size=1, max_size=6).map("".join) | OTHER


@settings(max_examples=40, deadline=None)
@given(HOSTILE)
def test_any_text_of_a_record_is_escaped(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    audit = tmp_path_factory.mktemp("audit")
    bump = Identity(text, text, text, text, practice=False)
    folder = audit.joinpath(*bump.parts)
    parent = None
    for at, state in enumerate(("failed", "waiting")):
        name = record(audit, "bump", state, at=at, bump=bump, parent=parent, files=files(text), **a_run(text))
        predicate = changed(folder / name, notebook={"name": text})
        parent = parent or name
        require_ours(run.render(predicate, a_notebook(text)))
    index.write_index(audit)
    require_ours((audit / "index.html").read_text(), audit)
    require_ours((folder / "story.html").read_text(), folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RUNBOOK_AUDIT", str(audit))
        require_ours(start.board().html)


@pytest.mark.parametrize("name", ["//evil.example/x", "../../x", "20260401T000000Z-other-1"])
def test_record_with_another_name_is_unreadable(tmp_path: Path, name: str) -> None:
    changed(tmp_path.joinpath(*BUMP.parts, record(tmp_path, "bump", "done")), id=name)
    assert [it.state for it in archive.status(tmp_path)] == ["unreadable"]


def test_start_page_links_only_to_notebooks_and_the_web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNBOOK_AUDIT", str(tmp_path))
    links = {"PR": "https://x/1", "bad": "javascript:alert(1)", "other": "//evil.example"}
    made = record(tmp_path, "01-pin", "failed", "It failed.", inputs={"a": 1}, links=links)
    changed(tmp_path.joinpath(*BUMP.parts, made), notebook={"name": "../<b>#"})
    page = start.board().html
    found = [attributes["href"] for tag, attributes in elements(page) if tag == "a"]
    assert found[len(STEPS) :] == ["bump.ipynb", "..%2F%3Cb%3E%23.ipynb", "https://x/1"]
    assert "bad · other" in page


def test_links_resolve_for_any_folder_name(tmp_path: Path) -> None:
    bump = Identity("o#1/r?", "a b", "d%20v", "26.04&py3", practice=False)
    record(tmp_path / "audit#1 ü", "01#pin? %20", "done", "Done.", bump=bump)
    index.write_index(tmp_path / "audit#1 ü")
    for file in (tmp_path / "audit#1 ü").rglob("*.html"):
        if file.name in ("index.html", "story.html"):
            require_ours(file.read_text(), file.parent)
