"""JSON5: what people write in settings is read as JSON, and anything else is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.errors import CannotTell
from runbook_lib.text import json5

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(VALUES)
def test_json_is_read_as_it_is(value: object) -> None:
    assert json5.loads(json.dumps(value)) == value
    assert json5.loads(json.dumps(value, ensure_ascii=False, indent=1)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{a: 1, $b_2: true, 'c d': null,}", {"a": 1, "$b_2": True, "c d": None}),
        ("// one\n[1, /* two, ] */ 2,\n// three\n]", [1, 2]),
        (r"""['it\'s', "\'", '"', 'a\
b', '\x41\v\0']""", ["it's", "'", '"', "ab", "A\v\0"]),
        (r"['\\d+\\.\\d', '\/']", [r"\d+\.\d", "/"]),
        ('["// no comment", "/* nor */", ",]"]', ["// no comment", "/* nor */", ",]"]),
        ("[1, [2,],]", [1, [2]]),
        ("{a: -1.5e3}", {"a": -1500.0}),
    ],
)  # fmt: skip
def test_json5_is_read(text: str, value: object) -> None:
    assert json5.loads(text) == value


@pytest.mark.parametrize("text", ["", "{", "[1,,]", "'a", '"a', "/* a", "{a: 0x10}", "a: 1", "[" * 100_000])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(CannotTell):
        json5.loads(text)


def test_a_mistake_is_reported_with_its_line() -> None:
    with pytest.raises(CannotTell, match="line 4"):
        json5.loads("// one\n/* two\n three */ {\n a: 1 b: 2}")
