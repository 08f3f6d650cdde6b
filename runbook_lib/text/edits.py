"""Edits of text files: one file's text before and after, made by splicing, shown as a unified diff."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Span = tuple[int, int, str]


@dataclass(frozen=True)
class Edit:
    """The text of one file before and after; ``before`` is None for a new file.

    ``path`` is relative to the repository's root, with forward slashes; ``source`` is the former one of a file that
    moves.
    """

    path: str
    before: str | None
    after: str
    source: str = ""


def edited_paths(edits: Iterable[Edit]) -> list[str]:
    """Return the paths of the edited files, and the former ones of those that move."""
    return [path for edit in edits for path in (edit.source, edit.path) if path]


def unapplied(edits: Iterable[Edit], texts: Mapping[str, str | None]) -> list[str]:
    """Return the paths of files whose current texts differ from the edited texts."""
    return [edit.path for edit in edits if texts[edit.path] != edit.after or texts.get(edit.source) is not None]


def splice(text: str, spans: Iterable[Span]) -> str:
    """Replace ``text[start:end]`` by new text for each span ``(start, end, new)``; every other character stays.

    Raises ValueError for spans that overlap or lie outside the text.
    """
    edge = len(text)
    for start, end, new in sorted(spans, reverse=True):
        if not 0 <= start <= end <= edge:
            raise ValueError(f"the span {start}:{end} overlaps another span or lies outside the text")
        text = text[:start] + new + text[end:]
        edge = start
    return text


def diff(edits: Iterable[Edit]) -> str:
    """Return the edits as a unified diff for ``git apply`` and ``patch``, without edits that change nothing.

    Only a line feed ends a line, like in git. Bytes that are not UTF-8 remain surrogate escapes.
    """
    return "".join(_file(edit) for edit in edits if edit.before != edit.after or edit.source)


def _file(edit: Edit) -> str:
    from difflib import SequenceMatcher  # only diffs need it

    old, new = _lines(edit.before or ""), _lines(edit.after)
    source = "/dev/null" if edit.before is None else f"a/{edit.source or edit.path}"
    parts = [f"--- {source}\n+++ b/{edit.path}\n"]
    if edit.source:
        moved = f"rename from {edit.source}\nrename to {edit.path}\n"
        parts.insert(0, f"diff --git a/{edit.source} b/{edit.path}\n{moved}")
    # Without autojunk: it would treat lines that occur often as changed.
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes():
        (_, old_start, _, new_start, _), (_, _, old_end, _, new_end) = group[0], group[-1]
        parts.append(f"@@ -{_range(old_start, old_end)} +{_range(new_start, new_end)} @@\n")
        for kind, i, j, k, m in group:
            if kind == "equal":
                parts += [f" {line}" for line in old[i:j]]
            else:
                parts += [f"-{line}" for line in old[i:j]]
                parts += [f"+{line}" for line in new[k:m]]
    return "".join(parts)


def _lines(text: str) -> list[str]:
    """Return the lines as a diff shows them: with a remark after a last one without a line feed."""
    *lines, last = (f"{line}\n" for line in text.split("\n"))
    if last != "\n":
        lines.append(f"{last}\\ No newline at end of file\n")
    return lines


def _range(start: int, end: int) -> str:
    # An empty range uses the number of the previous line.
    length = end - start
    if length == 1:
        return str(end)
    return f"{start + (length > 0)},{length}"
