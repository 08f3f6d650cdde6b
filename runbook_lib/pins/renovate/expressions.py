"""Renovate's patterns (RE2, JavaScript, minimatch) as Python regular expressions with the same matches.

Patterns that Python would interpret differently are refused.  ``^`` and ``$`` become the ends of the text, and letters,
digits and white space are those of ASCII, as in RE2.
"""

import re

from runbook_lib.errors import CannotTell

_TOKEN = re.compile(
    r"(?P<escape>\\(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|.)?)"
    r"|(?P<set>\[\^?(?:[^\]\\]|\\.)*+\]?+)"
    r"|\(\?P?<(?P<name>[A-Za-z_]\w*)>"
    r"|(?P<same>\((?!\?)|\(\?(?:i?s?:|<?[=!]))"
    r"|(?P<repetition>\{[0-9]{1,9}(?:,[0-9]{0,9})?\})"
    r"|.",
    re.DOTALL | re.ASCII,
)
_IN_SET = re.compile(r"(?P<escape>\\(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|.)?)|.", re.DOTALL)
_SAME_LETTERS = frozenset("dDwWsSbBnrtfvxu")
_FLAGS = re.compile(r"\(\?(?P<flags>[ims]{1,3})\)")
_ENDS = {"^": r"\A", "$": r"\Z"}
_GLOB = re.compile(r"(?P<folders>\*\*/)|\*+|.", re.DOTALL)
_GLOB_SIGNS = {"?": "[^/]", "{": "(?:", "}": ")", "*": "[^/]*", "**": ".*"}


def python_pattern(pattern: str, flags: str = "") -> str:
    """Return the same regular expression for Python.  Raises CannotTell, with a clause, if there is none."""
    if inline := _FLAGS.match(pattern):
        pattern, flags = pattern[inline.end() :], flags + inline["flags"]
    parts = []
    for token in _TOKEN.finditer(pattern):
        part = token[0]
        if token["escape"]:
            part = _escape(part)
        elif token["set"]:
            part = _set(part)
        elif token["name"]:
            part = f"(?P<{token['name']}>"
        elif part in _ENDS:
            part = f"(?m:{part})" if "m" in flags else _ENDS[part]
        elif part == "{":
            part = r"\{"
        elif part == "(" and not token["same"]:
            raise CannotTell(f"{pattern[token.start() :][:20]!r} reads differently in Python")
        parts.append(part)
    scope = "".join(sorted(set(flags) & set("is")))
    return f"(?a)(?{scope}:{''.join(parts)})"


def _escape(token: str) -> str:
    letter = token[1:2]
    if not letter or (letter.isalnum() and letter not in _SAME_LETTERS) or (letter in "xu" and len(token) == 2):
        raise CannotTell(f"{token!r} reads differently in Python")
    return token


def _set(token: str) -> str:
    negated = token.startswith("[^")
    inner = token[2 if negated else 1 : -1]
    if not inner or not token.endswith("]") or "[:" in inner:
        raise CannotTell(f"the set {token[:20]!r} reads differently in Python")
    parts = []
    for part in _IN_SET.finditer(inner):
        if part["escape"]:
            if part[0] == r"\B":
                raise CannotTell(r"'\\B' in a set reads differently in Python")
            parts.append(_escape(part[0]))
        else:
            parts.append(f"\\{part[0]}" if part[0] in "[&~|" else part[0])
    return f"[{'^' if negated else ''}{''.join(parts)}]"


def file_pattern(text: str) -> str:
    """Return a Python regular expression for one of the ``managerFilePatterns``: a regex in slashes, or a glob.

    Raises CannotTell, with a clause, for a pattern that Python would interpret differently.
    """
    for end, flags in (("/", ""), ("/i", "i")):
        if text.startswith("/") and text.endswith(end) and len(text) > len(end):
            return python_pattern(text[1 : -len(end)], flags)
    if set(text) & set("[]()!\\"):
        raise CannotTell("of globs, only *, **, ? and {a,b} are read")
    parts, depth = [], 0
    for token in _GLOB.finditer(text):
        part = token[0]
        depth += (part == "{") - (part == "}")
        if depth not in (0, 1):
            raise CannotTell("its braces do not match, or are within braces")
        if token["folders"]:
            parts.append("(?:[^/]+/)*")
        elif part == "," and depth:
            parts.append("|")
        else:
            parts.append(_GLOB_SIGNS.get(part[:2]) or re.escape(part))
    if depth:
        raise CannotTell("its braces do not match")
    return rf"(?is)\A(?:{''.join(parts)})\Z"
