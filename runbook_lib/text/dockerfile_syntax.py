"""The syntax of a Dockerfile: its directives and instructions, and the expansion of quotes and variables in words.

Sources: https://docs.docker.com/reference/dockerfile/ and, where that is silent (a doubled escape character at the end
of a line, which words begin a here-document), the parser of BuildKit.
"""

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
    """An instruction with its continuation lines joined; ``pieces`` are pairs of offsets: in ``text``, in the file.

    ``heredocs`` are the names of its here-documents, and ``unended`` is one that is not terminated in the file.
    """

    text: str
    pieces: tuple[tuple[int, int], ...]
    heredocs: tuple[str, ...] = ()
    unended: str = ""

    @property
    def keyword(self) -> str:
        """The first word in capitals, such as ``RUN``."""
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
        start, position = max(piece for piece in self.pieces if piece[0] <= max(offset, 0))
        return position + offset - start

    def line(self, text: str, offset: int = 0) -> int:
        """Return the line number, from 1, of the character at this offset."""
        return text.count("\n", 0, self.at(offset)) + 1


def instructions(text: str) -> Iterator[Instruction]:
    """Yield the instructions of a Dockerfile without the content of here-documents.

    Comment lines and empty lines inside a continued instruction are dropped, and the directive ``escape`` may choose
    a different continuation character (https://docs.docker.com/reference/dockerfile/#format).
    """
    escape = re.escape(directives(text).get("escape", "\\"))
    continues = re.compile(rf"(?<!{escape}){escape}[ \t]*$")
    lines = _lines(text)
    joined = ""
    pieces: list[tuple[int, int]] = []
    for start, body in lines:
        if not body.strip() or body.lstrip().startswith("#"):
            continue
        pieces.append((len(joined), start))
        if continuation := continues.search(body):
            joined += body[: continuation.start()]
            continue
        joined += body
        if joined.strip():
            names, unended = _skip_heredocs(joined, lines)
            yield Instruction(joined, tuple(pieces), names, unended)
        joined, pieces = "", []
    if joined.strip():
        yield Instruction(joined, tuple(pieces))


def expand(word: str, values: Mapping[str, str], escape: str = "\\") -> str:
    """Return the word with its quotes removed and its variables replaced; a variable without a value is empty.

    Supports ``$name``, ``${name}``, and ``${name:-word}`` with ``-``, ``+`` and ``?``, with or without the colon.
    Raises CannotTell for other forms, and if ``${name:?word}`` requires a value that is missing.
    Source: https://docs.docker.com/reference/dockerfile/#environment-replacement.
    """
    result: list[str] = []
    quote = ""
    at = 0
    while at < len(word):
        char, following = word[at], word[at + 1 : at + 2]
        if char in "\"'" and quote in ("", char):
            quote = "" if quote else char
            at += 1
        elif char == escape and quote != "'" and following:
            if quote and following not in (*'"$', escape):
                result.append(escape)  # within quotes it escapes only these
            result.append(following)
            at += 2
        elif char == "$" and quote != "'" and (match := _BARE.match(word, at) or _BRACED.match(word, at)):
            result.append(_value(match, values, escape))
            at = match.end()
        elif char == "$" and quote != "'" and following == "{":
            raise CannotTell(f"{word!r} contains an unsupported form of a variable.")
        else:
            result.append(char)
            at += 1
    return "".join(result)


def _value(match: re.Match[str], values: Mapping[str, str], escape: str) -> str:
    name = match[1]
    value = values.get(name)
    if match.re is _BARE or not match[2]:
        return value or ""
    modifier, word = match[2], match[3]
    is_set = bool(value) if modifier.startswith(":") else value is not None
    if modifier.endswith("+"):
        return expand(word, values, escape) if is_set else ""
    if is_set:
        return value or ""
    if modifier.endswith("?"):
        reason = f": {word}" if word else ""
        raise CannotTell(f"{name} needs a value{reason}.")
    return expand(word, values, escape)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the offset and text of each line, without its end and without a byte order mark."""
    position = 0
    for line in text.split("\n"):
        body = line if position else line.removeprefix("\ufeff")
        yield position + len(line) - len(body), body.rstrip("\r")
        position += len(line) + 1


def directives(text: str) -> dict[str, str]:
    """Return the parser directives, which stand before anything else, including other comments."""
    values: dict[str, str] = {}
    for _, line in _lines(text):
        match = _DIRECTIVE.fullmatch(line)
        if match is None or not match[2].strip():
            break
        key, value = match[1].lower(), match[2].strip()
        if key != "escape" or value in ("\\", "`"):
            values.setdefault(key, value)
    return values


def _skip_heredocs(joined: str, lines: Iterator[tuple[int, str]]) -> tuple[tuple[str, ...], str]:
    """Consume the lines of an instruction's here-documents; return their names, and any unterminated one."""
    heredocs = tuple(_heredocs(joined))
    names = tuple(name for _, name in heredocs)
    for strip_tabs, name in heredocs:
        for _, line in lines:
            if strip_tabs:
                line = line.lstrip("\t")
            if line == name:
                break
        else:
            return names, name
    return names, ""


def _heredocs(joined: str) -> Iterator[tuple[bool, str]]:
    """Yield for each here-document of an instruction if leading tabs are stripped, and its name."""
    instruction = Instruction(joined, ((0, 0),))
    if instruction.keyword == "ONBUILD":
        instruction = Instruction(instruction.rest or "ONBUILD", ((0, 0),))
    if instruction.keyword not in HOLDS_HEREDOCS or "<<" not in joined or _is_json(instruction):
        return
    for word in instruction.words:
        match = _HEREDOC.fullmatch(word)
        name = re.sub(r"[\"'\\]", "", match[2]) if match else ""
        if match and name:
            yield bool(match[1]), name


def _is_json(instruction: Instruction) -> bool:
    """Return True for the exec form: a JSON list of strings after the flags."""
    import json  # only commands with << in them need it

    plain = re.sub(r"^(?:--\S+\s+)*", "", instruction.rest)
    try:
        return plain.startswith("[") and isinstance(json.loads(plain), list)
    except (ValueError, RecursionError):
        return False
