"""The questions that are asked of a Dockerfile: its instructions and build arguments.

Sources: https://docs.docker.com/reference/dockerfile/ and, where that is silent (a doubled escape character at the end
of a line, which words begin a here-document), the parser of BuildKit.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy")
#: Arguments that every build knows without an ARG.
#: Source: https://docs.docker.com/reference/dockerfile/#predefined-args.
PREDEFINED = frozenset(_PROXIES) | {name.upper() for name in _PROXIES}

#: A word of an instruction: quotes keep spaces together.
_WORD = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*'|["'\\])+""", re.S)
_HEREDOC = re.compile(r"\d*<<(-?)([^<]+)")
_HOLDS_HEREDOCS = frozenset({"ADD", "COPY", "RUN"})
_DIRECTIVE = re.compile(r"#\s*([a-zA-Z][a-zA-Z0-9]*)\s*=(.*)")


@dataclass(frozen=True)
class Instruction:
    """An instruction with its continuation lines joined; ``pieces`` are pairs of offsets: in ``text``, in the file."""

    text: str
    pieces: tuple[tuple[int, int], ...]

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


def arguments(text: str) -> frozenset[str]:
    """Return the build arguments declared in any stage of a Dockerfile, and the predefined ones."""
    names = set(PREDEFINED)
    for instruction in instructions(text):
        if instruction.keyword == "ARG":
            names |= {word.partition("=")[0] for word in instruction.words}
    return frozenset(names)


def instructions(text: str) -> Iterator[Instruction]:
    """Yield the instructions of a Dockerfile without the content of here-documents.

    Comment lines and empty lines inside a continued instruction are dropped, and the directive ``escape`` may choose
    a different continuation character (https://docs.docker.com/reference/dockerfile/#format).
    """
    escape = re.escape(_escape(text))
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
        instruction = Instruction(joined + body, tuple(pieces))
        yield instruction
        _skip_heredocs(instruction, lines)
        joined, pieces = "", []
    if joined.strip():
        yield Instruction(joined, tuple(pieces))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the offset and text of each line, without its end and without a byte order mark."""
    position = 0
    for line in text.split("\n"):
        body = line if position else line.removeprefix("\ufeff")
        yield position + len(line) - len(body), body.rstrip("\r")
        position += len(line) + 1


def _escape(text: str) -> str:
    """Return the escape character by the parser directives, which stand before anything else, including comments."""
    for _, line in _lines(text):
        match = _DIRECTIVE.fullmatch(line)
        if match is None or not match[2].strip():
            break
        if match[1].lower() == "escape" and match[2].strip() in ("\\", "`"):
            return match[2].strip()
    return "\\"


def _skip_heredocs(instruction: Instruction, lines: Iterator[tuple[int, str]]) -> None:
    """Consume the lines of an instruction's here-documents."""
    if instruction.keyword == "ONBUILD":
        instruction = Instruction(instruction.rest or "ONBUILD", ((0, 0),))
    if instruction.keyword not in _HOLDS_HEREDOCS:
        return
    for word in instruction.words:
        match = _HEREDOC.fullmatch(word)
        if name := re.sub(r"[\"'\\]", "", match[2]) if match else "":
            for _, line in lines:
                if (line.lstrip("\t") if match and match[1] else line) == name:
                    break
