"""Users' YAML files, checked against a JSON schema: the same verdict as jsonschema's, with the line of the problem."""

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.errors import RunbookError
from runbook_lib.text.user_file import read

SCHEMA = {
    "title": "the file",
    "type": "object",
    "errorMessage": "a mapping",
    "additionalProperties": False,
    "required": ["name"],
    "properties": {
        "name": {"$ref": "#/definitions/name"},
        "kind": {"enum": ["first", "second"]},
        "count": {"type": "integer", "minimum": 1, "maximum": 9, "errorMessage": "a number from 1 to 9"},
        "items": {
            "type": "array",
            "minItems": 1,
            "errorMessage": "a list",
            "items": {"type": ["string", "integer"], "errorMessage": "a text or a number"},
        },
        "by": {
            "type": ["string", "object"],
            "errorMessage": "a text or texts by name",
            "maxProperties": 1,
            "additionalProperties": {"type": "string", "errorMessage": "a text"},
        },
    },
    "definitions": {"name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5, "errorMessage": "a short name"}},
}
SCALARS = st.sampled_from(["a", "first", "abcdef", "A", "", 0, 1, 9, 10, True, None, 1.5])
VALUES = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.sampled_from(["a", "b"]), SCALARS, max_size=2)
FILES = st.dictionaries(st.sampled_from([*SCHEMA["properties"], "nome"]), VALUES, max_size=4)  # type: ignore[misc]


@given(FILES)
def test_a_file_is_read_if_it_fits_its_schema(values: dict[str, object]) -> None:
    text = yaml.safe_dump(values)
    if jsonschema.Draft7Validator(SCHEMA).is_valid(values):
        assert read(text, SCHEMA, "test file", "f").values == values
    else:
        with pytest.raises(RunbookError, match=r"f:[0-9]+: "):
            read(text, SCHEMA, "test file", "f")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# comment\nname: a\n\ncount: 10\n", "f:4: count is 10; expected a number from 1 to 9."),
        ("name: a\nitems:\n- a\n- [b]\n", "f:4: items is ['b']; expected a text or a number."),
        ("name: a\nby:\n  a: 1\n", "f:3: a is 1; expected a text."),
        ("name: a\nknid: first\n", "f:2: the file has the unknown key 'knid'; known are name, kind, count, items, by"),
        ("name: a\nknid: first\n", "(did you mean kind?)"),
        ("name: a\nkind: third\n", "f:2: kind is 'third'; expected first or second"),
        ("count: 1\n", "f:1: the file is missing name."),
        ("name: a\nname: b\n", "f:2: the file has the key 'name' twice."),
    ],
)
def test_the_message_names_line_key_and_value(text: str, message: str) -> None:
    with pytest.raises(RunbookError) as error:
        read(text, SCHEMA, "test file", "f")
    assert message in str(error.value)


def test_an_anchor_and_a_merge_key_are_read() -> None:
    text = "by: &a {x: first}\nkind: &k first\nname: a\nitems: [*k]\n"
    assert read(text, SCHEMA, "test file", "f").values["items"] == ["first"]
