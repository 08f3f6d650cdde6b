"""Edits of text files: one file's text before and after, made by splicing, shown as a unified diff."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher
from hashlib import sha256

Span = tuple[int, int, str]


@dataclass(frozen=True)
class Edit:
    """``path`` is relative to the repository's root, with forward slashes; the texts are whole files.

    ``before`` is None for a file that is new.
    """

    path: str
    before: str | None
    after: str

    @property
    def digests(self) -> tuple[str | None, str]:
        """The sha256 of both, as a record names them."""
        return self.before if self.before is None else digest(self.before), digest(self.after)


def digest(text: str) -> str:
    """The sha256 of a text's bytes."""
    return f"sha256:{sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()}"


def splice(text: str, spans: Iterable[Span]) -> str:
    """Replace ``text[start:end]`` by new text for each span ``(start, end, new)``; every other character stays.

    Raises ValueError for spans that overlap or lie outside of the text.
    """
    edge = len(text)
    for start, end, new in sorted(spans, reverse=True):
        if not 0 <= start <= end <= edge:
            raise ValueError(f"the span {start}:{end} overlaps another one or lies outside of the text")
        text = text[:start] + new + text[end:]
        edge = start
    return text


def diff(edits: Iterable[Edit]) -> str:
    """The edits as a unified diff that ``git apply`` and ``patch`` understand; edits that change nothing are left out.

    Only a line feed ends a line, as in git: carriage returns and the rest are part of it.  Bytes that are no UTF-8 stay
    the surrogate escapes that they were read as.
    """
    return "".join(_file(edit) for edit in edits if edit.before != edit.after)


def _file(edit: Edit) -> str:
    old, new = _lines(edit.before or ""), _lines(edit.after)
    source = "/dev/null" if edit.before is None else f"a/{edit.path}"
    parts = [f"--- {source}\n+++ b/{edit.path}\n"]
    # Without autojunk: it would treat lines that occur often as changed.
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes():
        (_, old_start, _, new_start, _), (_, _, old_end, _, new_end) = group[0], group[-1]
        parts.append(f"@@ -{_range(old_start, old_end)} +{_range(new_start, new_end)} @@\n")
        for kind, i, j, k, m in group:
            if kind == "equal":
                parts += [_line(" ", line) for line in old[i:j]]
            else:
                parts += [_line("-", line) for line in old[i:j]]
                parts += [_line("+", line) for line in new[k:m]]
    return "".join(parts)


def _lines(text: str) -> list[str]:
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop().removesuffix("\n")
    return [*lines, last] if last else lines


def _line(sign: str, line: str) -> str:
    return f"{sign}{line}" if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"


def _range(start: int, end: int) -> str:
    # An empty range names the line before it.
    length = end - start
    return f"{start + 1}" if length == 1 else f"{start + (length > 0)},{length}"
