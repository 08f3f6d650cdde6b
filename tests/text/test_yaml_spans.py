"""What YAML reads as text: any value that one of its readers takes for something else needs quotes."""

import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from runbook_lib.errors import CannotTell
from runbook_lib.text import yaml_spans
from runbook_lib.text.yaml_spans import is_plain, is_text

_PARTS = st.sampled_from([*"0123456789._+-eExXoObB", "true", "no", "inf", "nan", "null", "26", "a", "y"])


@pytest.mark.parametrize(
    "value",
    [
        "26.10", "26.1", "26", "1_000", "26.0_6", "0777", "0o17", "0x1F", "0b11", "1e3", "12E+03", "8e12345", "1.",
        "+1.5", "-2", ".5", "12345678", "190:20:30", "2026-01-01", "true", "No", "off", "y", "null", "~", ".inf",
        "-.Inf", ".NaN", "+_0",
    ],
)  # fmt: skip
def test_numbers_dates_and_words_are_no_text(value: str) -> None:
    assert not is_text(value)


@pytest.mark.parametrize("value", ["26.04-py3", "26.06.01", "v1", "1.2.0rc4", "latest", "24.03.01.framework", "1.2.3"])
def test_other_tags_are_text(value: str) -> None:
    assert is_text(value)


@given(st.lists(_PARTS, min_size=1, max_size=6).map("".join))
def test_what_a_reader_of_yaml_takes_for_no_text_needs_quotes(value: str) -> None:
    for load in (yaml.safe_load, YAML(typ="safe", pure=True).load):
        try:
            read = load(f"a: {value}")["a"]
        except (yaml.YAMLError, YAMLError, ValueError, TypeError, AttributeError, KeyError):
            continue
        if not isinstance(read, str) and not (isinstance(read, float) and math.isnan(read)):
            assert not is_text(value)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("tag: X", True), ("- X", True), ("  tag:   X # c", True), ("{tag: X, b: 1}", True), ("[X, 1]", True),
        ("[1, X]", True), ('{"tag":X}', True), ("tag: &a X", True), ("tag:\n  X\n", True), ("tag: X\r\n", True),
        ("tag: 'X'", False), ('tag: "X"', False), ("tag: !!str X", False), ("# tag: X", False),
        ("a: b  # tag: X", False), ("tag: X y", False), ("tag: vX", False), ("run: --tag=X", False), ("X: b", False),
        ('a: "b: X"', False), ("image: n:X", False), ("tag: Xy", False),
    ],
)  # fmt: skip
def test_a_plain_scalar_is_told_from_other_text(text: str, plain: bool) -> None:
    start = text.index("X")
    assert is_plain(text, start, start + 1) == plain


def test_aliases_that_make_too_many_values_are_refused() -> None:
    doubled = "".join(f"a{number}: &a{number} [*a{number - 1}, *a{number - 1}]\n" for number in range(1, 60))
    with pytest.raises(CannotTell, match="expand to more than"):
        yaml_spans.load(f"a0: &a0 [x, x]\n{doubled}")
