"""Quarantine of a broken test in its recipe, with a tracking issue, and its reversal.  Pure.

The gating scopes of the test's rows become their ``-broken`` form, which no automatic trigger selects, and a comment
above gives the reason and the issue; nothing else in the file changes.  The tier and cadence of the scopes stay
readable in their names, and removing the comment and the endings restores the file byte for byte.
"""

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from runbook_lib.errors import Refused
from runbook_lib.recipes import issue_references
from runbook_lib.recipes import rows as recipes
from runbook_lib.recipes.rows import RecipeRow
from runbook_lib.recipes.targets import Target
from runbook_lib.text.edits import Edit, splice

BROKEN = "-broken"
#: Scopes that gate nothing: they select a test only by name.
_IDLE = frozenset({"deprecated", "flaky", "cleanup"})
# The wording of people there (``skills/mcore-bump-base-image``), so that their comments go when the test comes back.
_WORDS = r"# Broken(?: \(scope (?P<scopes>[0-9, ]+)\))?: [^\n]*see issue #[0-9]+\.\r?\n?"
_COMMENT = re.compile(rf"[ \t]*{_WORDS}")

#: A row that people commented out is no comment on the row below it.
_COMMENTED_ROW = re.compile(
    r"#[\s#]*(?:$|(?:-\s*)?(?:test_case|products|environment|scope|platforms|tag|n_repeat)\s*:)"
)
_HEAD = re.compile(r"\s*(?:-\s+test_case:.*|products:\s*(?:#.*)?)$")

Span = tuple[int, int, str]


@dataclass(frozen=True)
class QuarantinedRow:
    """A row with a ``-broken`` scope; ``issue`` is the issue in its comment, None if there is none."""

    row: RecipeRow
    issue: int | None

    @property
    def test(self) -> str:
        """Return ``model/case``."""
        return f"{self.row.model}/{self.row.case}"

    @property
    def place(self) -> str:
        """Return recipe and line, as editors understand them."""
        return f"{self.row.recipe.removeprefix(recipes.FOLDER).lstrip('/')}:{self.row.line}"


def gating(scope: str) -> bool:
    """Return True if a scope selects tests without being named, so that a quarantine removes it."""
    return bool(scope) and scope not in _IDLE and not scope.endswith((BROKEN, "-disabled"))


def gating_scopes(row: RecipeRow) -> list[str]:
    """Return the scopes of a row that select its test without being named."""
    return [cell.value for cell in row.scopes if gating(cell.value)]


def mark(
    recipe: str, text: str, tests: Sequence[Target], issue: int, *, companions: Sequence[Target] = (),
    whole_rows: bool = False,
) -> Edit:  # fmt: skip
    """Quarantine the tests of one issue: all their rows in this recipe.  Rows already in quarantine stay unchanged.

    ``issue`` 0 represents an issue that is not filed yet, for previews; it must not be written.  A row that also covers
    other platforms or environments, which are not in ``companions``, is refused without ``whole_rows``.
    """
    spans: list[Span] = []
    for row in recipes.rows(recipe, text):
        reasons = [test.reason for test in tests if test.is_of(row)]
        if reasons and gating_scopes(row):
            _require_own(row, [*tests, *companions], whole_rows)
            spans += _break_scopes(row, text, _note(reasons[0], issue))
    return Edit(recipe, text, splice(text, spans))


def unmark(recipe: str, text: str, tests: Sequence[Target], *, whole_rows: bool = False) -> Edit:
    """Restore the scopes of the tests' rows, and remove the comments that name an issue.

    If no row of a test has such a comment, scopes that people marked as broken are restored, and their comments stay.
    """
    marked_rows = []
    for row in recipes.rows(recipe, text):
        marked_rows.append(_MarkedRow(row, _above(row, text, _COMMENT)))
    selected: list[_MarkedRow] = []
    for test in tests:
        own = [marked for marked in marked_rows if test.is_of(marked.row)]
        selected += [marked for marked in own if marked.comment] or own
    spans: list[Span] = []
    for marked in dict.fromkeys(selected):
        endings = list(marked.broken_endings())
        if endings:
            _require_own(marked.row, tests, whole_rows)
        spans += endings
        if marked.comment:
            spans.append(_line_of(text, marked.comment))
    return Edit(recipe, text, splice(text, spans))


def track(recipe: str, text: str, test: Target, issue: int) -> Edit:
    """Add an issue in a comment above the quarantined rows of a test; 0 represents one that is not filed yet."""
    spans: list[Span] = []
    for row in recipes.rows(recipe, text):
        if test.is_of(row) and _has_broken_scope(row) and not comment_of(row, text):
            _require_editable(row)
            start, indent = _line_start(text, row.key)
            note = _note(test.reason, issue)
            spans.append((start, start, f"{indent}# Broken: {note}{_newline(text, start)}"))
    return Edit(recipe, text, splice(text, spans))


def comment_of(row: RecipeRow, text: str) -> str:
    """Return a row's comment with its issue; empty if there is none."""
    match = _above(row, text, _COMMENT)
    return match[0] if match else ""


@dataclass(frozen=True, eq=False)
class _MarkedRow:
    """A row with the comment above it that a quarantine wrote."""

    row: RecipeRow
    comment: re.Match[str] | None

    def broken_endings(self) -> Iterator[Span]:
        numbers = self.comment["scopes"] if self.comment else None
        for number, cell in enumerate(self.row.scopes, 1):
            if cell.value.endswith(BROKEN) and (numbers is None or str(number) in numbers.split(", ")):
                yield cell.end - len(BROKEN), cell.end, ""


def _has_broken_scope(row: RecipeRow) -> bool:
    return any(cell.value.endswith(BROKEN) for cell in row.scopes)


def _require_editable(row: RecipeRow) -> None:
    if row.fixed:
        raise Refused(
            f"The row of {row.case} in {row.recipe}:{row.line} cannot be edited: {row.fixed}. Edit it by hand, then "
            "run again."
        )


def _require_own(row: RecipeRow, tests: Collection[Target], whole_rows: bool) -> None:
    _require_editable(row)
    named = {(test.environment, test.platform) for test in tests if test.is_of(row)}
    unnamed = []
    for environment, platform in itertools.product(row.environments, row.platforms):
        if (environment, platform) not in named:
            unnamed.append(f"{environment} on {platform}")
    if unnamed and not whole_rows:
        raise Refused(
            f"The row of {row.case} in {row.recipe}:{row.line} also covers {', '.join(unnamed)}. Give this platform a "
            "row of its own first, or name the others too.",
            "whole-row",
        )


def _note(reason: str, issue: int) -> str:
    """Return the text of a comment: the reason, and the issue once."""
    line = _on_one_line(reason).removesuffix(f"see #{issue}").rstrip(" ,")
    issue_note = f"see issue #{issue or '(new)'}."
    return f"{line} — {issue_note}" if line else issue_note


def _on_one_line(reason: str) -> str:
    """Return a reason for a comment.  Raises Refused for a character that would end the comment, or YAML itself."""
    line = " ".join(reason.split())
    if not line.isprintable():
        raise Refused(f"The reason {line!r} contains a character that is not allowed in YAML comments. Remove it.")
    return line


def _break_scopes(row: RecipeRow, text: str, note: str) -> Iterable[Span]:
    cells = [cell for cell in row.scopes if gating(cell.value)]
    scopes = ""
    if _has_broken_scope(row):
        # A scope that a person broke before stays broken when the test comes back.
        numbers = [str(number) for number, cell in enumerate(row.scopes, 1) if cell in cells]
        scopes = f" (scope {', '.join(numbers)})"
    start, indent = _line_start(text, row.key)
    yield start, start, f"{indent}# Broken{scopes}: {note}{_newline(text, start)}"
    for cell in cells:
        yield cell.end, cell.end, BROKEN


def _line_start(text: str, position: int) -> tuple[int, str]:
    start = text.rfind("\n", 0, position) + 1
    line = text[start : position + 1]
    return start, line[: len(line) - len(line.lstrip(" \t"))]


def _newline(text: str, position: int) -> str:
    end = text.find("\n", position)
    if end == -1:
        end = text.rfind("\n", 0, position)
    return "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"


def _line_of(text: str, match: re.Match[str]) -> Span:
    """Return our line with its newline; at the end of a file without a final newline, with the previous line's."""
    start = match.start()
    if not match[0].endswith("\n"):
        start -= 2 if text[:start].endswith("\r\n") else 1
    return start, match.end(), ""


def _above(row: RecipeRow, text: str, pattern: re.Pattern[str]) -> re.Match[str] | None:
    if row.key < 0:
        return None
    end, _ = _line_start(text, row.key)
    return pattern.fullmatch(text, text.rfind("\n", 0, max(end - 1, 0)) + 1, end)


def quarantined_rows(
    texts: Mapping[str, str | None], repository: str
) -> tuple[tuple[QuarantinedRow, ...], tuple[str, ...]]:
    """Return the rows in quarantine, and sentences about recipes that cannot be read."""
    rows, problems = recipes.read_all(texts)
    quarantined = []
    for row in rows:
        if _has_broken_scope(row):
            comments = " ".join(_comments(row, texts[row.recipe] or ""))
            # People write the repository's own issues as owner/name#12, too.
            comments = comments.replace(f"{repository}#", " #")
            quarantined.append(QuarantinedRow(row, issue_references.issue_of_comment(comments, repository)))
    return tuple(quarantined), tuple(problems)


def _comments(row: RecipeRow, text: str) -> list[str]:
    """Return the comments above a row, in it down to its scope, and beside its further values."""
    lines = text.split("\n")
    first = row.line - 1
    scope = max(first, text.count("\n", 0, max(row.end, 0)))
    comments: list[str] = []
    for line in reversed(lines[:first]):
        if line.lstrip().startswith("#") and not _COMMENTED_ROW.match(line.strip()):
            comments.insert(0, line.strip().lstrip("# "))
        elif not _HEAD.match(line.strip()):
            break
    indent = len(lines[first]) - len(lines[first].lstrip(" "))
    for number, line in enumerate(lines[first:], first):
        # A line below the scope that is only a comment may belong to the next row.
        is_deeper = line.startswith(" " * (indent + 1))
        if number > scope and (not is_deeper or line.lstrip().startswith("#")):
            break
        match = re.search(r"(?:^|\s)#\s*(.*)", line)
        if match:
            comments.append(match[1])
    return comments
