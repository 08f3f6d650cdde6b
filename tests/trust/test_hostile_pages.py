"""Pages that quote logs, names and outputs of somebody hostile: nothing in them runs, loads, or covers the page.

Every page carries a content security policy besides, so that what got through would still not run.
"""

import re
from pathlib import Path

import pytest
from archives import BUMP, elements, record
from hostile import ALL
from markup import OURS, a_run, files

from runbook_lib.record import report, run_file
from runbook_lib.text.sanitize import clean_html

#: The characters of a text that are tried: what a page cuts off is of no interest here.
_LONGEST = 2000
#: Directives of a policy, and the only sources that they may name; a script is named by its hash.
POLICY = {
    "default-src": "'none'", "style-src": "'unsafe-inline'", "img-src": "data:", "base-uri": "'none'",
    "form-action": "'none'",
}  # fmt: skip
#: What stays of the HTML of others, besides what our own pages are made of.
_HARMLESS = """abbr b caption col colgroup dd del details dfn dl dt figure figcaption h5 h6 i ins kbd mark progress q s
samp section small sub summary sup tfoot tt u var wbr"""
_ALLOWED = OURS.keys() | set(_HARMLESS.split())
#: Attributes by which a browser loads, sends or runs something.
_LOADING = ("action", "background", "data", "formaction", "ping", "poster", "srcdoc", "srcset", "xlink:href")


def require_inert(text: str) -> None:
    """Raise AssertionError where the page holds anything that runs, loads or covers it."""
    require_policy(text)
    found = elements(text)
    for tag, attributes in found:
        assert tag in _ALLOWED
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


@pytest.mark.parametrize("name", ALL)
def test_nothing_hostile_works_on_a_page_of_an_archive(name: str, tmp_path: Path) -> None:
    text = ALL[name][:_LONGEST]
    readable = text.encode("utf-8", "replace").decode().replace("\0", "")
    folder = tmp_path.joinpath(*BUMP.parts)
    made = folder / record(tmp_path, "bump", "failed", files=files(readable), **a_run(text))
    run = run_file.read(made)
    report.write_report(made, run | {"notebook": {"name": text}, "state": text})
    require_inert((made / "report.html").read_text())
    require_inert((tmp_path / "index.html").read_text())
    page = clean_html(text) + clean_html(f"<p title='{text}'>{text}</p>")
    # What was opened within a part is closed within it too.
    assert elements(page + "<em id=after>")[-1] == ("em", {"id": "after"})
