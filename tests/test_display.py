"""The output of notebook cells: the same content as HTML and as text, escaped, without anything to load."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runbook_lib import display
from runbook_lib.text.edits import Edit, diff


def test_a_table_has_its_cells_in_both_forms() -> None:
    view = display.table([{"name": "a", "ok": True}, {"name": "", "ok": False}])
    assert view.text.splitlines() == ["name  ok", "a     yes", "–     no"]
    assert re.findall(r"<t[hd] [^>]*>([^<]*)<", view.html) == ["name", "ok", "a", "yes", "–", "no"]


def test_a_long_table_counts_the_rows_that_it_omits() -> None:
    view = display.table({"n": n} for n in range(250))
    assert view.html.count("<tr>") == 201
    assert "50 more rows" in view.text.splitlines()[-1]


def test_a_diff_keeps_its_lines() -> None:
    text = diff([Edit("pin", "a\n-- x\nb\n", "a\n++ y\nb\n")])
    view = display.diff(text)
    assert "\n".join(re.findall(r"<td[^>]*>([^<]*)</td>", view.html)) == view.text == text.removesuffix("\n")


@pytest.mark.parametrize(
    ("text", "markup"),
    [
        ("Press *Ready for review* now.", "Press <em>Ready for review</em> now."),
        ("core_r* and x*", "core_r* and x*"),
        ("a *.py and *.yaml", "a *.py and *.yaml"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("**bold**", "**bold**"),
        ("*<b>*", "*&lt;b&gt;*"),
        (
            "See https://a.org/?b=1&c.",
            'See <a class="url" href="https://a.org/?b=1&amp;c">https://a.org/?b=1&amp;c</a>.',
        ),
    ],
)
def test_words_between_stars_are_emphasized_and_addresses_are_links(text: str, markup: str) -> None:
    assert display.note(text).html == f"<p>{markup}</p>"


#: What a page of ours may hold: these elements, with these attributes, and links to the web alone.
_ATTRIBUTE = r"(?: (?:class|colspan|scope|style)=(?:\"[^\"<>]*\"|'[^'<>]*')| href=\"https?://[^\"<>]*\")"
_ALLOWED = rf"</?(?:table|thead|tbody|tr|th|td|p|pre|a|ul|li|strong|em){_ATTRIBUTE}*>"
_MARKUP = st.lists(
    st.sampled_from(["*", "*a*", "http://", "https://a", "<", ">", '"', "'", "&", "&lt;", "onload=", " ", "\n", "\\"])
    | st.text(max_size=3)
).map("".join)


@given(st.text() | _MARKUP)
@example("*ab*")
@example("*<b>*")
@example("https://a*b*\"'<c>")
def test_text_from_outside_is_escaped(text: str) -> None:
    for view in (display.note(text), display.table([{"a": text}]), display.diff(f"+{text}"), display.code(text)):
        assert not re.search("[<>]", re.sub(_ALLOWED, "", view.html))
