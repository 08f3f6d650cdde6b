"""Replies of services: JSON, what it may hold, within limits, and the objects that are made of it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar

T = TypeVar("T")
#: Maximum number of values and names in a reply, at up to 150 bytes of memory each; a hundred jobs have 200,000.
_VALUES = 1_000_000


def parse_json(content: bytes) -> Any:
    """Return the content of JSON without NaN and Infinity.  Raises ValueError for any other text, with a clause."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not a number")

    if content.count(b",") + content.count(b"[") + content.count(b"{") > _VALUES:
        raise ValueError("it has too many values")
    try:
        return json.loads(content.decode("utf-8-sig"), parse_constant=refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def items_of(page: Any, key: str = "") -> list[Any]:
    """Return the items of a page.  Raises TypeError for a different form."""
    items = page[key] if key else page
    # An empty object is not an empty list: otherwise existing items would be created a second time.
    if not isinstance(items, list):
        raise TypeError(f"{type(items).__name__} instead of a list")
    return items


def whole_number(value: Any) -> int:
    """Return a number that fits in a database; larger ones could not be used in arithmetic or printed."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise TypeError(f"{type(value).__name__} that is not a whole number of at most 63 bits")
    return value


def one_line(text: str) -> str:
    """Return text from outside on one line, without invisible characters."""
    return "".join(char if char.isprintable() else " " for char in text).strip()


def text(value: Any) -> str:
    """Return a text, which services leave out as null.  Raises TypeError for anything else."""
    if not isinstance(value, str | None):
        raise TypeError(f"{type(value).__name__} instead of a text")
    return value or ""


def _optional_time(value: Any) -> datetime | None:
    return datetime.fromisoformat(value) if value else None


#: How the value of a field is read, by its type.
_READ: Mapping[Any, Callable[[Any], Any]] = {
    int: whole_number, str: text, bool: bool, datetime: datetime.fromisoformat, datetime | None: _optional_time,
}  # fmt: skip


def made(cls: type[T], data: Any, names: Mapping[str, str], **values: Any) -> T:
    """Return an object with these values, and the others from a reply, under the names of their fields or ``names``.

    Raises KeyError, TypeError, AttributeError or ValueError if they are missing or of another type.
    """
    for field in fields(cls):  # type: ignore[arg-type]
        if field.name not in values:
            values[field.name] = _READ[field.type](data[names.get(field.name, field.name)])
    return cls(**values)
