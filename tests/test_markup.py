"""No text of a record becomes markup of a page: neither an element, nor an attribute, nor an address that runs."""

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from archives import BUMP, elements, record
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook_lib import archive, board, index, report
from runbook_lib.statement import Identity, to_bytes

PARTS = ["<", ">", "</p>", "<!--", '"', "'", " ", "&", "&lt;", "*a*", "\n", "/", "//evil.example/", "..", "#", "?",
         "%2F", "javascript:alert(1)", "https://ci/1", "<script>x</script>", "<img src=x onerror=x y=", "' onclick='x",
         '" onclick="x', "</title>", "</style>", "](javascript:x)", "| ---", "data:text/html,x", "x"]  # fmt: skip
#: Any other text opens no element, which a notebook may well show.
OTHER = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<"), min_size=1)
HOSTILE = st.lists(st.sampled_from(PARTS), min_size=1, max_size=6).map("".join) | OTHER
#: What pages are made of, with the attributes that each may have.
OURS: Mapping[str, set[str]] = {
    "meta": {"charset", "http-equiv", "content", "name"}, "html": {"lang"}, "a": {"href", "class"}, "time": set(),
    "div": {"class", "role", "aria-label", "tabindex", "hidden", "style"}, "section": {"class"},
    "table": {"class", "style"}, "th": {"scope", "style"}, "td": {"class", "style", "colspan"}, "tr": {"style"},
    "p": {"class"}, "dl": {"class"},
    "ul": {"class"}, "li": {"class", "data-state", "data-repository", "data-world"}, "h2": {"class"}, "pre": {"class"},
    "img": {"alt", "src"}, "input": {"type", "name", "autocomplete"}, "select": {"name"}, "option": {"value"},
    "output": {"aria-live"}, "blockquote": set(), "ol": set(),
} | {name: set() for name in ("head", "title", "style", "body", "main", "script", "h1", "h3", "h4", "hr", "br", "em",
                              "strong", "code", "span", "dt", "dd", "thead", "tbody", "label", "figure",
                              "figcaption")}  # fmt: skip


def a_run(text: str) -> dict[str, Any]:
    """All fields that a record may have, with that text."""
    effects = [{"at": text, "effect": kind, "target": f"#1 {text}", "before": text, "after": text, "url": text}
               for kind in (text, "edit", "issue", "comment", "label")]  # fmt: skip
    return {
        "who": {"user": text, "host": text, "git": text, "ci": {"service": text, "actor": text, "url": text}},
        "library": {"version": text, "commit": text, "dirty": True}, "inputs": {text: text, "digest": text},
        "links": {text: text, "PR": text}, "warnings": [text], "exceptions": [{"exception": text, "reason": text}],
        "outcome": {"sentence": text, "next": text}, "effects": effects,
        "parameters": {"given": {text: text}, "resolved": {"tag": text, "broken": f"{text}: {text}"}},
        "checks": [{"name": f"{it}{text}", "status": text, "detail": text} for it in ("", "before the merge: ")],
    }  # fmt: skip


def a_notebook(text: str) -> dict[str, Any]:
    encoded = base64.b64encode(text.encode()).decode()
    forms = [{"text/html": text}, {"text/plain": text}, {"image/png": text, "text/plain": text},
             {"image/png": encoded, "text/plain": text}, {"image/svg+xml": text}]  # fmt: skip
    outputs = [*({"output_type": "display_data", "data": data} for data in forms),
               {"output_type": "stream", "text": [text]}, {"output_type": "error", "traceback": [text]}]  # fmt: skip
    kinds = ("code", "markdown", "raw")
    return {"cells": [{"cell_type": kind, "source": [text], "outputs": outputs} for kind in kinds]}


def files(text: str) -> dict[str, str]:
    cell = '"' + text.replace('"', '""') + '"'
    return {
        "changes.csv": f"path,line,selector,old,new\n{','.join([cell] * 5)}\n",
        "image-changes.csv": f"component,old,new,change,platform\n{','.join([cell] * 5)}\n",
        "platforms.csv": f"platform,digest\n{cell},{cell}\n",
        "change.diff": f"+++ {text}\n@@ -1 +1 @@ {text}\n+{text}\n",
        "failures.csv": f"job,class,cause,url\n{','.join([cell] * 4)}\n",
        "verdicts.csv": f"file,verdict,reasons,url\n{','.join([cell] * 4)}\n",
        "executed.ipynb": json.dumps(a_notebook(text)),
    }  # fmt: skip


def changed(folder: Path, **fields: object) -> dict[str, Any]:
    """Give a record other fields, and return its predicate."""
    document = json.loads((folder / "run.json").read_bytes())
    document["predicate"] |= fields
    (folder / "run.json").write_bytes(to_bytes(document))
    predicate: dict[str, Any] = document["predicate"]
    return predicate


def require_ours(page: str, folder: Path | None = None) -> None:
    for tag, attributes in elements(page):
        assert attributes.keys() <= OURS[tag], (tag, attributes)
        address = attributes.get("href", "https://x")
        if folder is not None and not address.startswith(("https://", "http://")):
            assert (folder / unquote(address)).is_file(), address
        assert not address.lower().startswith(("javascript:", "//", "data:"))
        assert attributes.get("src", "data:image/").startswith("data:image/")
    assert "<!--" not in re.sub(r"<!-- sha256 [0-9a-f]{64} -->\n\Z", "", page)


@settings(max_examples=40, deadline=None)
@given(HOSTILE)
def test_whatever_a_record_says_stays_text(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    audit = tmp_path_factory.mktemp("audit")
    bump = Identity(text, text, text, text, practice=False)
    folder = audit.joinpath(*bump.parts)
    parent = None
    for at, state in enumerate(("failed", "waiting")):
        name = record(audit, "bump", state, at=at, bump=bump, parent=parent, files=files(text), **a_run(text))
        predicate = changed(folder / name, notebook={"name": text})
        parent = parent or name
        require_ours(report.render(predicate, a_notebook(text)))
    index.write_index(audit)
    require_ours((audit / "index.html").read_text(), audit)
    require_ours((folder / "story.html").read_text(), folder)
    require_ours(board.show(str(audit)).html)


@pytest.mark.parametrize("name", ["//evil.example/x", "../../x", "20260401T000000Z-other-1"])
def test_a_record_that_calls_itself_otherwise_is_not_believed(tmp_path: Path, name: str) -> None:
    changed(tmp_path.joinpath(*BUMP.parts, record(tmp_path, "bump", "done")), id=name)
    assert [it.state for it in archive.status(tmp_path)] == ["unreadable"]


def test_the_board_links_to_notebooks_and_to_the_web_alone(tmp_path: Path) -> None:
    links = {"PR": "https://x/1", "bad": "javascript:alert(1)", "other": "//evil.example"}
    made = record(tmp_path, "01-pin", "failed", "It failed.", inputs={"a": 1}, links=links)
    changed(tmp_path.joinpath(*BUMP.parts, made), notebook={"name": "../<b>#"})
    page = board.show(str(tmp_path)).html
    found = [attributes["href"] for tag, attributes in elements(page) if tag == "a"]
    assert found == ["bump.ipynb", "..%2F%3Cb%3E%23.ipynb", "https://x/1"]
    assert "bad · other" in page


def test_what_is_linked_in_an_archive_is_found_whatever_its_folders_are_called(tmp_path: Path) -> None:
    bump = Identity("o#1/r?", "a b", "d%20v", "26.04&py3", practice=False)
    record(tmp_path / "audit#1 ü", "01#pin? %20", "done", "Done.", bump=bump)
    index.write_index(tmp_path / "audit#1 ü")
    for file in (tmp_path / "audit#1 ü").rglob("*.html"):
        if file.name in ("index.html", "story.html"):
            require_ours(file.read_text(), file.parent)
