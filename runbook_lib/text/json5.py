"""JSON5 as used in settings: comments, trailing commas, single quotes and keys without quotes."""

import json
import re
from typing import Any

from runbook_lib.errors import CannotTell

_COMMENT = r"//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?+"
_TOKEN = re.compile(
    rf"(?P<string>\"(?:[^\"\\]|\\.)*+\"?+|'(?:[^'\\]|\\.)*+'?+)|(?P<space>\s++|{_COMMENT})|(?P<word>[\w$.+-]++)|.",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:x(?P<code>[0-9A-Fa-f]{2})|(?P<character>.))|\"", re.DOTALL)
_ESCAPES = {"v": "\\u000b", "0": "\\u0000", "\n": ""}
_WORDS = frozenset({"true", "false", "null"})
_NUMBER = "0123456789.+-"  # the first characters


def loads(text: str) -> Any:
    """Return the value of a text.  Numbers are read as in JSON.

    Raises CannotTell, with a clause that includes the line, for text that is not JSON5.
    """
    parts: list[str] = []
    comma = -1  # the index of a comma followed only by space
    for token in _TOKEN.finditer(text):
        part = token[0]
        if token["space"]:
            parts.append("\n" * part.count("\n") or " ")
            continue
        if part in "]}" and comma >= 0:
            parts[comma] = ""
        comma = len(parts) if part == "," else -1
        if token["string"]:
            part = _string(part)
        elif token["word"] and part not in _WORDS and part[0] not in _NUMBER:
            part = f'"{part}"'
        parts.append(part)
    try:
        return json.loads("".join(parts))
    except RecursionError as error:
        raise CannotTell("it is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise CannotTell(f"it is not JSON (line {error.lineno}: {error.msg})") from error
    except ValueError as error:  # a number with thousands of digits
        raise CannotTell(f"it is not JSON ({error})") from error


def _string(literal: str) -> str:
    """Return a JSON5 string as a JSON string; an unterminated string stays unterminated."""
    end = '"' if len(literal) > 1 and literal[-1] == literal[0] else ""
    return f'"{_ESCAPE.sub(_escaped, literal[1 : len(literal) - len(end)])}{end}'


def _escaped(match: re.Match[str]) -> str:
    if match["code"]:
        return f"\\u00{match['code']}"
    character = match["character"] or '"'
    if character in '"\\/bfnrtu':
        return f"\\{character}"
    return _ESCAPES.get(character, character)
