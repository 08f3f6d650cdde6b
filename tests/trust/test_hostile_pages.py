"""Pages that quote logs, names and outputs of somebody hostile: nothing in them runs, loads, or covers the page.

Every page carries a content security policy besides, so that what got through would still not run.
"""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from archives import BUMP, elements, record
from hostile import ALL

from runbook_lib.record import report, run_file
from runbook_lib.text.sanitize import clean_html

#: The characters of a text that are tried: what a page cuts off is of no interest here.
_LONGEST = 2000
#: Directives of a policy, and the only sources that they may name; a script is named by its hash.
POLICY = {
    "default-src": "'none'", "style-src": "'unsafe-inline'", "img-src": "data:", "base-uri": "'none'",
    "form-action": "'none'",
}  # fmt: skip
#: The elements of our own pages, and what stays of the HTML of others.
_ELEMENTS = """a abbr b blockquote body br caption code col colgroup dd del details dfn div dl dt em figcaption figure
h1 h2 h3 h4 h5 h6 head hr html i img ins kbd li main mark meta ol p pre progress q s samp section small span strong
style sub summary sup table tbody td tfoot th thead time title tr tt u ul var wbr"""
#: Attributes by which a browser loads, sends or runs something.
_LOADING = ("action", "background", "data", "formaction", "ping", "poster", "srcdoc", "srcset", "xlink:href")


def require_inert(text: str) -> None:
    """Raise AssertionError where the page holds anything that runs, loads or covers it."""
    require_policy(text)
    found = elements(text)
    for tag, attributes in found:
        assert tag in _ELEMENTS.split()
        assert not [name for name in attributes if name.startswith("on") or name in _LOADING], (tag, attributes)
        assert not re.search(r"url\s*\(|position", attributes.get("style", ""), re.IGNORECASE), attributes
        address = attributes.get("href", "").strip().lower()
        scheme = re.match(r"[a-z][a-z0-9+.-]*:|//", re.sub(r"[\s\0-\x1f]", "", address))
        assert scheme is None or scheme[0] in ("https:", "http:", "mailto:"), attributes
        assert "src" not in attributes or (tag == "img" and attributes["src"].startswith("data:image/")), attributes
    for tag in ("title", "style", "script", "main"):
        assert [name for name, _ in found].count(tag) == (tag != "script" or "script-src" in text), tag


def require_policy(text: str) -> None:
    """Raise AssertionError unless the page's policy comes before all that it holds, and allows no more than it must."""
    found = elements(text)
    policies = [
        (number, attributes["content"]) for number, (_, attributes) in enumerate(found)
        if attributes.get("http-equiv", "").lower() == "content-security-policy"
    ]  # fmt: skip
    assert len(policies) == 1
    number, policy = policies[0]
    assert {tag for tag, _ in found[:number]} <= {"html", "head", "meta"}
    directives = dict(directive.strip().split(" ", 1) for directive in policy.split(";"))
    scripts = directives.pop("script-src", None)
    assert directives == POLICY
    assert (scripts is not None) == ("<script>" in text)
    assert scripts is None or re.fullmatch(r"'sha256-[A-Za-z0-9+/]{43}='", scripts)


def a_run(text: str) -> dict[str, Any]:
    """The fields of a record that reach a page, each with its name in front."""

    def named(*names: str) -> dict[str, str]:
        return {name: f"field-{name} {text}" for name in names}

    return {
        "who": named("git") | {"ci": named("service", "actor")},
        "inputs": named("digest", "head_commit") | {"requirements": [named("name", "evidence") | {"state": "missing"}]},
        "links": named("PR"), "warnings": [*named("warning").values()],
        "exceptions": [named("kind", "subject", "reason", "by", "at", "confirm")],
        "decisions": [named("kind", "subject", "why")],
        "outcome": named("sentence") | {"next": named("because")},
    }  # fmt: skip


def files(text: str) -> dict[str, str]:
    """A table of pins, and an executed notebook with all kinds of cells and outputs."""
    cell = '"' + text.replace('"', '""') + '"'
    encoded = base64.b64encode(text.encode()).decode()
    forms = [{"text/html": text}, {"text/plain": f"field-output {text}"}, {"image/png": text, "text/plain": text},
             {"image/png": encoded, "text/plain": text}, {"image/svg+xml": text}, {"text/markdown": text}]  # fmt: skip
    outputs = [*({"output_type": "display_data", "data": data} for data in forms),
               {"output_type": "stream", "text": [text]}, {"output_type": "error", "traceback": [text]}]  # fmt: skip
    cells = [
        {"cell_type": kind, "metadata": {}, "source": [text], "outputs": outputs}
        for kind in ("code", "markdown", "raw")
    ]
    return {
        "changes.csv": f"path,line,selector,old,new\n{','.join([cell] * 4)},field-new\n",
        "executed.ipynb": json.dumps({"cells": cells, "metadata": {}}),
    }


@pytest.mark.parametrize("name", ALL)
def test_nothing_hostile_works_on_a_page_of_an_archive(name: str, tmp_path: Path) -> None:
    text = ALL[name][:_LONGEST]
    readable = text.encode("utf-8", "replace").decode().replace("\0", "")
    folder = tmp_path.joinpath(*BUMP.parts)
    made = folder / record(tmp_path, "bump", "failed", files=files(readable), **a_run(text))
    run = run_file.read(made)
    report.write_report(made, run | {"notebook": {"name": text}, "state": text})
    shown = (made / "report.html").read_text()
    require_inert(shown)
    for field in {*re.findall(r"field-\w+", repr(a_run(""))), "field-new", "field-output"}:
        assert field in shown, f"{field} does not reach the page any more"
    require_inert((tmp_path / "index.html").read_text())
    page = clean_html(text) + clean_html(f"<p title='{text}'>{text}</p>")
    # What was opened within a part is closed within it too.
    assert elements(page + "<em id=after>")[-1] == ("em", {"id": "after"})
