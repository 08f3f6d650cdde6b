"""A YAML file that a user writes, checked against the JSON schema that declares its format.

Editors use the schema too. The supported parts of JSON schema draft 7 are: ``$ref`` to a definition, ``type``,
``enum``, ``pattern``, ``maxLength``, ``minimum``, ``maximum``, ``items``, ``minItems``, ``properties``,
``additionalProperties``, ``required``, ``minProperties`` and ``maxProperties``.  ``errorMessage`` names the expected
value.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.text import yaml_spans
from runbook_lib.text.lists import did_you_mean, shorten

Schema = Mapping[str, Any]
Keys = tuple[str | int, ...]
_TYPES: Mapping[str, Any] = {
    "string": str, "integer": int, "boolean": bool, "array": list, "object": dict, "null": type(None)
}  # fmt: skip


@dataclass(frozen=True)
class UserFile:
    """The content of a file, which fits its schema. ``name`` and ``origin`` are how messages name it."""

    name: str
    origin: str
    values: Mapping[str, Any]
    text: yaml_spans.Text

    def value(self, keys: Keys) -> Any:
        """Return the value at ``keys``."""
        value: Any = self.values
        for key in keys:
            value = value[key]
        return value

    def node(self, keys: Keys) -> Any:
        """Return the YAML node of the value at ``keys``, or of the last one above it whose key is a text."""
        node: Any = next(iter(self.text.documents), None)
        for key in keys:
            listed = yaml_spans.items(node)
            inner = listed[key] if listed and isinstance(key, int) else self.text.pairs(node).get(str(key))
            if inner is None:
                break
            node = inner
        return node

    def line(self, keys: Keys) -> int:
        """Return the line of the value at ``keys``, from 1."""
        node = self.node(keys)
        return self.text.line(node) if node else 1

    def error(self, keys: Keys, sentence: str) -> RunbookError:
        """Return an error with the line of the value at ``keys``."""
        return RunbookError(f"{self.origin}:{self.line(keys)}: {sentence} Nothing was read from the {self.name}.")

    def refusal(self, keys: Keys, expected: str) -> RunbookError:
        """Return an error with the value at ``keys`` and the expected value."""
        value = self.value(keys)
        names = [key for key in keys if isinstance(key, str)]
        shown = "empty" if value is None else shorten(repr(value), 80)
        return self.error(keys, f"{names[-1]} is {shown}; expected {expected}.")


@cache
def load_schema(package: str, name: str) -> Schema:
    """Return the JSON schema that ships with a package as the file ``name``."""
    loaded: Schema = json.loads((files(package) / name).read_text(encoding="utf-8"))
    return loaded


def read(text: str, schema: Schema, name: str, origin: str) -> UserFile:
    """Read a file; an empty file has no values.  Raises RunbookError, with the line, if it violates the schema."""
    try:
        values, nodes = yaml_spans.load(text), yaml_spans.Text(text)
    except CannotTell as error:
        raise RunbookError(f"The {name} {origin} cannot be read: {error}") from error
    if values is None:
        values = {}
    if not isinstance(values, dict):
        listed = ", ".join(schema["properties"])
        raise RunbookError(f"The {name} {origin} is not a mapping: expected the keys {listed}.")
    file = UserFile(name, origin, values, nodes)
    _check(file, values, schema, schema.get("definitions", {}), ())
    return file


def _check(file: UserFile, value: Any, schema: Schema, definitions: Mapping[str, Schema], keys: Keys) -> None:
    """Raise RunbookError for the first value that does not fit the schema."""
    if "$ref" in schema:
        schema = {**definitions[schema["$ref"].rpartition("/")[2]], **schema}
    if choices := schema.get("enum"):
        if value not in choices or type(value) is not type(choices[0]):
            expected = f"{' or '.join(map(str, choices))}{did_you_mean(str(value), map(str, choices))}"
            raise file.refusal(keys, schema.get("errorMessage") or expected)
    elif not _has_type(value, schema["type"]) or not _in_bounds(value, schema):
        raise file.refusal(keys, schema["errorMessage"])
    if isinstance(value, list):
        for index, item in enumerate(value):
            _check(file, item, schema["items"], definitions, (*keys, index))
    if isinstance(value, dict):
        _check_keys(file, value, schema, keys)
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key) or schema["additionalProperties"]
            _check(file, item, inner, definitions, (*keys, key))


def _has_type(value: object, names: str | Sequence[str]) -> bool:
    if isinstance(names, str):
        names = [names]
    if isinstance(value, bool):
        return "boolean" in names
    return isinstance(value, tuple(_TYPES[name] for name in names))


def _in_bounds(value: Any, schema: Schema) -> bool:
    if isinstance(value, str):
        pattern = schema.get("pattern", "")
        if pattern.endswith("$"):
            pattern = f"{pattern[:-1]}\\Z"  # in Python $ matches before a line feed at the end as well
        return bool(len(value) <= schema.get("maxLength", len(value))) and re.search(pattern, value) is not None
    if isinstance(value, int):
        return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))
    if isinstance(value, list):
        return bool(len(value) >= schema.get("minItems", 0))
    return True


def _check_keys(file: UserFile, mapping: Mapping[Any, Any], schema: Schema, keys: Keys) -> None:
    known = list(schema.get("properties", ()))
    title = schema.get("title", (file.name, *keys)[-1])
    if repeated := yaml_spans.duplicate_keys(file.node(keys)):
        raise file.error((*keys, repeated[0]), f"{title} has the key {repeated[0]!r} twice.")
    for key in mapping:
        if schema["additionalProperties"] is False and key not in known:
            name, listed = str(key)[:80], ", ".join(known)
            hint = did_you_mean(name, known)
            raise file.error((*keys, key), f"{title} has the unknown key {name!r}; known are {listed}{hint}.")
        if not isinstance(key, str):
            raise file.refusal(keys, schema["errorMessage"])
    if missing := [key for key in schema.get("required", ()) if key not in mapping]:
        raise file.error(keys, f"{title} is missing {' and '.join(missing)}.")
    if not schema.get("minProperties", 0) <= len(mapping) <= schema.get("maxProperties", len(mapping)):
        raise file.refusal(keys, schema["errorMessage"])
