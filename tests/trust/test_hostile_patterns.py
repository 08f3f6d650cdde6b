"""No regular expression of the library takes longer than its text is long, whatever the text.

The one place where the time that something takes is asserted: as a ratio, of a text to one four times as long.
"""

import re

import pytest
from expressions import FLAGGED, Expression, attacks, exponent, expressions
from figures import Figures

EXPRESSIONS = expressions()
#: Quadratic, on what is cut to some characters first: who cuts it, and to how many.
BOUNDED = {
    "discover_references._REGISTRY": "discover_references._BEFORE, 255",
    "discover_yaml._BLOCK": "discover_yaml._HEADER, 2000",
}
_QUADRATIC = 2.4


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_no_text_is_too_long_for_a_pattern(name: str, figures: Figures) -> None:
    it = EXPRESSIONS[name]
    most, longest = (_QUADRATIC, 1_000) if it.place in BOUNDED else (FLAGGED, 8_000)
    for attack in attacks(it.pattern):
        grows = exponent(it, attack, longest)
        assert grows <= most, f"{it.place}, {it.pattern.pattern!r}: n to the power {grows:.1f} for {attack!r} repeated"
        figures["hostile"] += 1


def test_what_is_bounded_is_there() -> None:
    assert BOUNDED.keys() <= {it.place for it in EXPRESSIONS.values()}
    assert len(EXPRESSIONS) > 300


@pytest.mark.parametrize(
    ("pattern", "how"),
    [
        (r"(a+)+$", "match"), (r"(a|a)*b", "match"), (r"\s+$", "search"), (r"x*y", "search"), (r".*a.*b", "search"),
        (r"(\w+\s?)*!", "fullmatch"), (r"<[^>]*>", "search"),
    ],
)  # fmt: skip
def test_slow_patterns_are_recognized(pattern: str, how: str) -> None:
    it = Expression("here", re.compile(pattern), how)
    assert any(exponent(it, attack) > FLAGGED for attack in attacks(it.pattern))


@pytest.mark.parametrize("pattern", ["a", r"\ba{2,9}\b", r"(?<!\w)\w+=", r"a[^b]{0,300}b", r"\d+(?:\.\d+)*"])
def test_quick_patterns_are_left_alone(pattern: str) -> None:
    it = Expression("here", re.compile(pattern), "match")
    assert all(exponent(it, attack) <= FLAGGED for attack in attacks(it.pattern))
