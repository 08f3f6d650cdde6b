"""The text of a Dockerfile: its directives and instructions, and its words without quotes and variables.  Pure.

Sources: https://docs.docker.com/reference/dockerfile/ and, where that is silent (a doubled escape character at the end
of a line, which words begin a here-document), the parser of BuildKit.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from runbook_lib.errors import CannotTell

#: A word of an instruction: quotes keep spaces together.
_WORD = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*'|["'\\])+""", re.S)
_HEREDOC = re.compile(r"\d*<<(-?)([^<]+)")
HOLDS_HEREDOCS = frozenset({"ADD", "COPY", "RUN"})
_DIRECTIVE = re.compile(r"#\s*([a-zA-Z][a-zA-Z0-9]*)\s*=(.*)")
_BARE = re.compile(r"\$(\w+)")
_BRACED = re.compile(r"\$\{(\w+)(?:(:?[-+?])([^{}]*))?\}")


@dataclass(frozen=True)
class Instruction:
    """An instruction with its continuation lines joined; ``pieces`` tell where each part stands.

    ``heredocs`` are the names of its here-documents, and ``unended`` the one that the file does not end.
    """

    text: str
    pieces: tuple[tuple[int, int], ...]  # (offset in text, offset in the file)
    heredocs: tuple[str, ...] = ()
    unended: str = ""

    @property
    def keyword(self) -> str:
        """In capitals, as ``RUN``."""
        return self.text.split(maxsplit=1)[0].upper()

    @property
    def rest(self) -> str:
        """The text after the keyword."""
        return self.text.strip()[len(self.keyword) :].strip()

    @property
    def words(self) -> tuple[str, ...]:
        """The words after the keyword, quotes and variables as written."""
        return tuple(_WORD.findall(self.rest))

    def at(self, offset: int) -> int:
        """Return the offset in the file of the character at this offset of ``text``."""
        start, where = max(piece for piece in self.pieces if piece[0] <= max(offset, 0))
        return where + offset - start

    def line(self, text: str, offset: int = 0) -> int:
        """The line of the file, from 1, in which that character stands."""
        return text.count("\n", 0, self.at(offset)) + 1


def instructions(text: str) -> Iterator[Instruction]:
    """The instructions of a Dockerfile, here-documents skipped.

    Comment lines and empty lines inside of a continued instruction are dropped, and the directive ``escape`` may choose
    another continuation character (https://docs.docker.com/reference/dockerfile/#format).
    """
    escape = re.escape(directives(text).get("escape", "\\"))
    continues = re.compile(rf"(?<!{escape}){escape}[ \t]*$")
    lines = _lines(text)
    joined, pieces = "", list[tuple[int, int]]()
    for start, body in lines:
        if not body.strip() or body.lstrip().startswith("#"):
            continue
        continued = continues.search(body)
        pieces.append((len(joined), start))
        joined += body[: continued.start()] if continued else body
        if continued:
            continue
        if joined.strip():
            names, unended = _skip_heredocs(joined, lines)
            yield Instruction(joined, tuple(pieces), names, unended)
        joined, pieces = "", []
    if joined.strip():
        yield Instruction(joined, tuple(pieces))


def expand(word: str, values: Mapping[str, str], escape: str = "\\") -> str:
    """The word as a builder sees it; a variable without value is empty.

    Source: https://docs.docker.com/reference/dockerfile/#environment-replacement.

    Knows ``$name``, ``${name}`` and ``${name:-word}`` with its kin; raises CannotTell for other forms, and where
    ``${name:?word}`` asks for a value that is not there.
    """
    out, at, quote = list[str](), 0, ""
    while at < len(word):
        char = word[at]
        if char in "\"'" and quote in ("", char):
            quote = "" if quote else char
            at += 1
        elif char == escape and quote != "'" and at + 1 < len(word):
            kept = quote and word[at + 1] not in (*'"$', escape)  # within quotes other characters keep it
            out.append(word[at : at + 2] if kept else word[at + 1])
            at += 2
        elif char == "$" and quote != "'":
            match = _BARE.match(word, at) or _BRACED.match(word, at)
            if match is None and word.startswith("${", at):
                raise CannotTell(f"{word!r} holds a form of variable that is not understood here.")
            out.append(_value(match, values, escape) if match else char)
            at = match.end() if match else at + 1
        else:
            out.append(char)
            at += 1
    return "".join(out)


def _value(match: re.Match[str], values: Mapping[str, str], escape: str) -> str:
    name, *form = match.groups()
    value, modifier = values.get(name), form[0] if form and form[0] else ""
    there = bool(value) if modifier.startswith(":") else value is not None
    if not modifier or modifier[-1] in "-?":
        if there or not modifier:
            return value or ""
        if modifier.endswith("?"):
            raise CannotTell(f"{name} needs a value{': ' + form[1] if form[1] else ''}.")
        return expand(form[1], values, escape)
    return expand(form[1], values, escape) if there else ""


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Offset and text of each line, without its end; a byte order mark is none of the text."""
    position = 0
    for line in text.split("\n"):
        skip = int(position == 0 and line.startswith("\ufeff"))
        yield position + skip, line[skip:].rstrip("\r")
        position += len(line) + 1


def directives(text: str) -> dict[str, str]:
    """The parser directives, which stand before anything else, other comments included."""
    found: dict[str, str] = {}
    for _, line in _lines(text):
        match = _DIRECTIVE.fullmatch(line)
        if match is None or not match[2].strip():
            break
        key, value = match[1].lower(), match[2].strip()
        if key != "escape" or value in ("\\", "`"):
            found.setdefault(key, value)
    return found


def _skip_heredocs(joined: str, lines: Iterator[tuple[int, str]]) -> tuple[tuple[str, ...], str]:
    """The names of an instruction's here-documents, whose lines are consumed, and the one without an end."""
    names = tuple(_heredocs(joined))
    for strip, name in names:
        if not any((line.lstrip("\t") if strip else line) == name for _, line in lines):
            return tuple(it for _, it in names), name
    return tuple(name for _, name in names), ""


def _heredocs(joined: str) -> Iterator[tuple[bool, str]]:
    """Return for each here-document of an instruction if leading tabs are stripped, and its name."""
    instruction = Instruction(joined, ((0, 0),))
    if instruction.keyword == "ONBUILD":
        instruction = Instruction(instruction.rest or "ONBUILD", ((0, 0),))
    if instruction.keyword not in HOLDS_HEREDOCS or "<<" not in joined or _is_json(instruction):
        return
    for word in instruction.words:
        if (match := _HEREDOC.fullmatch(word)) and (name := re.sub(r"[\"'\\]", "", match[2])):
            yield bool(match[1]), name


def _is_json(instruction: Instruction) -> bool:
    """Return True for the exec form: after its flags a list of strings in JSON."""
    plain = re.sub(r"^(?:--\S+\s+)*", "", instruction.rest)
    try:
        return plain.startswith("[") and isinstance(json.loads(plain), list)
    except (ValueError, RecursionError):
        return False
