"""Markup from anywhere on a page of ours."""

import pytest
from archives import elements, words
from hypothesis import example, given
from hypothesis import strategies as st

from runbook_lib import display
from runbook_lib.text.sanitize import clean_html

UNCHANGED = {
    "nothing": "",
    "a table": '<table><tr style="background:red"><td colspan="2">a &lt; b &#x27;</td></tr></table><br>',
    "a diff": display.diff("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+<b>\n").html,
    "sentences": display.notes(["see https://ci/1 *now*", "a < b"], title="Warnings").html,
    "words": '<p>see <a class="url" href="https://ci/1">it</a>, <a href="change.diff">this</a></p>',
    "a picture": '<img alt="A plot" src="data:image/png;base64,iVBORw0=">',
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_clean_markup_is_kept(name: str) -> None:
    cleaned = clean_html(UNCHANGED[name])
    # A table without a body gets one, as in every browser.
    assert [it for it in elements(cleaned) if it[0] != "tbody"] == elements(UNCHANGED[name])
    assert words(cleaned) == words(UNCHANGED[name])


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("<img src=x onerror=alert(1) y=", ""),
        ("a<!-- b", "a"),
        ('<b>a<i title="', "<b>a</b>"),
        ("<!-- a -->b", "b"),
        ("a & b &lt;i&gt; &#60;i>", "a &amp; b &lt;i&gt; &lt;i&gt;"),
        ("<p onclick='x()'>a", "<p>a</p>"),
        ("<a href=' javascript:x()'>a</a>", "<a>a</a>"),
        ("<a href='java\nscript:x()'>a</a>", "<a>a</a>"),
        ("<a href='//evil.example'>a</a>", "<a>a</a>"),
        ("<img src='http://x/a.png'>", "<img>"),
        ("<img src='data:image/svg+xml,<svg onload=x>'>", "<img>"),
        ("<p style='background:url(http://x)'>a</p>", "<p>a</p>"),
        (r"<p style='background:\75rl(http://x)'>a</p>", "<p>a</p>"),
        ("<p style='position:fixed;inset:0'>a</p>", "<p>a</p>"),
        ("a<script>x</script><style>body{display:none}</style><iframe src=x>y</iframe>b", "ab"),
        ("<svg><style><img src=x onerror=x></style></svg>a", "<img>a"),
        ("<svg><a><animate attributeName=href values=javascript:x /></a></svg>a", "a"),
        ("<math><mtext><table><mglyph><style><img src=x onerror=x>", ""),
        ("<body onload=x><form action=x>a<input name=b></form></body>b", "ab"),
        ("<b><i>a</b>c</i></div>", "<b><i>a</i></b><i>c</i>"),
        ("<details open ontoggle=x><summary>a</summary>b", '<details open=""><summary>a</summary>b</details>'),
    ],
)  # fmt: skip
def test_markup_that_runs_loads_or_covers_the_page_is_removed(markup: str, expected: str) -> None:
    assert clean_html(markup) == expected


PARTS = st.sampled_from(
    ["<", ">", "</", "<!--", "-->", "<!", "<?", "<![CDATA[", "]]>", '"', "'", "=", "/", "&", "&lt;", "&#60", " ", "b",
     "img", "svg", "style", "script", "title", "table", "td", "onerror", "src", "href", "javascript:x", "x"]
)  # fmt: skip


@given(st.lists(PARTS, max_size=30).map("".join) | st.text())
@example("<img src=x onerror=x y=")
@example("<!--")
@example("<title><img src=x onerror=x></title>")
def test_any_markup_leaves_the_rest_of_the_page_intact(markup: str) -> None:
    made = clean_html(markup)
    found = elements(f"<div>{made}</div><em id=after>after</em>")
    assert found[-1] == ("em", {"id": "after"})
    assert words(f"{made}<p>after").endswith("after")
    for tag, attributes in found[1:-1]:
        assert tag in {"b", "img", "table", "td"}
        assert attributes.keys() <= {"href", "src"}
        assert not any(attributes.values())
    assert clean_html(made) == made


def test_repeated_formatting_does_not_grow_the_result() -> None:
    """An open formatting element is repeated in each paragraph that follows: the result would be 150 MB."""
    markup = "".join(f"<b class={number}><p>" for number in range(4_000))
    assert len(clean_html(markup)) < 10 * len(markup)
    assert clean_html("<p><b class='x'>a</b>" * 10).count("<b") == 10
