"""Quarantine of a broken test in its recipe, with a tracking issue, and its reversal.  Pure.

The gating scopes of the test's rows become their ``-broken`` form, which no automatic trigger selects.  A comment above
gives the reason and the issue, and one beside them the former scopes.  Nothing else in the file changes, and removing
all of it restores the file byte for byte.  Source of the form: Megatron-LM's ``skills/mcore-bump-base-image``.
"""

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from runbook_lib.errors import Refused
from runbook_lib.text.edits import Span, splice
from runbook_lib.text.recipes import rows as recipes
from runbook_lib.text.recipes.rows import RecipeRow
from runbook_lib.text.recipes.targets import Target
from runbook_lib.text.yaml_spans import Cell

BROKEN = "-broken"
#: A scope that selects a test only by name, and does not say which scopes the test had.
_FLAKY = "flaky"
#: Scopes that gate nothing.
_IDLE = frozenset({"deprecated", _FLAKY, "cleanup"})
_OFF = re.compile(r"-broken|(?:-temp)?-disabled")
#: Texts that every switched-off scope contains one of.
OFF_TEXTS = (BROKEN, "-disabled", _FLAKY)
#: The date in a comment by which a person looks at the quarantine again.
REVIEW = ", review by "
_COMMENT = re.compile(rf"[ \t]*# Broken: [^\n]*see issue #[0-9]+(?:{REVIEW}[0-9-]{{10}})?\.\r?\n?")
_OVERDUE = re.compile(
    rf"(?P<place>[^:\n]*:[0-9]+):[ \t]*# Broken: [^\n]*see issue (?P<issue>#[0-9]+){REVIEW}(?P<date>[0-9-]{{10}})\."
)
_FORMER = re.compile(r"(?<![ \t])[ \t]*# was: \[([^][#\n]*)\](?=\r?$)", re.MULTILINE)
#: The beginning of a comment in which people say why they switched a row off.
_REASON = re.compile(r"#\s*(?:Broken|Disabled|Flaky|Quarantined)\b", re.IGNORECASE)

#: A row that people commented out is no comment on the row below it.
_COMMENTED_ROW = re.compile(
    r"#[\s#]*(?:$|(?:-\s*)?(?:test_case|products|environment|scope|platforms|tag|n_repeat)\s*:)"
)
_HEAD = re.compile(r"\s*(?:-\s+test_case:.*|products:\s*(?:#.*)?)$")


@dataclass(frozen=True)
class QuarantinedRow:
    """A row with a switched-off scope; ``issue`` is the issue in its comment, None if there is none."""

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
    return bool(scope) and scope not in _IDLE and not _off_ending(scope)


def _off_ending(scope: str) -> str:
    """Return the ending that switches a scope off; empty if it has none."""
    match = re.search(rf"(?:{_OFF.pattern})$", scope)
    return match[0] if match else ""


def switched_off(row: RecipeRow) -> list[Cell]:
    """Return the scopes of a row that people or a quarantine have switched off."""
    gates = bool(gating_scopes(row))
    return [cell for cell in row.scopes if _off_ending(cell.value) or (cell.value == _FLAKY and not gates)]


def gating_scopes(row: RecipeRow) -> list[str]:
    """Return the scopes of a row that select its test without being named."""
    return [cell.value for cell in row.scopes if gating(cell.value)]


def mark(
    recipe: str, text: str, test: Target, issue: int, review: str = "", *,
    companions: Iterable[Target] = (), whole_rows: bool = False,
) -> str:  # fmt: skip
    """Quarantine a test: all its rows in this recipe.  Rows already in quarantine stay unchanged.

    ``review`` is the date by which a person looks at the quarantine again.  ``issue`` 0 represents an issue that is not
    filed yet, for previews; it must not be written.  A row that also covers other platforms or environments, which are
    not in ``companions``, is refused without ``whole_rows``.
    """
    spans: list[Span] = []
    for row in recipes.rows(recipe, text):
        if test.is_of(row) and gating_scopes(row):
            _require_own(row, [test, *companions], whole_rows)
            spans += _break_scopes(row, text, note(test.reason, issue, review))
    return splice(text, spans)


def unmark(recipe: str, text: str, tests: Sequence[Target], *, whole_rows: bool = False) -> str:
    """Restore the scopes of the tests' rows, and remove the comments on the quarantine.

    If no row of a test says what its scopes were, those that people switched off are restored.  Raises Refused for the
    scope ``flaky``, which does not say what it replaced.
    """
    selected: list[RecipeRow] = []
    rows = recipes.rows(recipe, text)
    for test in tests:
        own = [row for row in rows if test.is_of(row)]
        selected += [row for row in own if _former(row, text)] or own
    spans: list[Span] = []
    for row in dict.fromkeys(selected):
        changes = list(_restored(row, text))
        if changes:
            _require_own(row, tests, whole_rows)
        spans += changes
    return splice(text, spans)


def _restored(row: RecipeRow, text: str) -> Iterator[Span]:
    """Yield the changes that switch a row on again."""
    former = _former(row, text)
    if former:
        before = [name.strip() for name in former[1].split(",")]
        for cell, name in zip(row.scopes, before, strict=False):
            if cell.value == name + BROKEN:
                yield cell.end - len(BROKEN), cell.end, ""
        yield former.start(), former.end(), ""
    else:
        for cell in switched_off(row):
            if cell.value == _FLAKY:
                raise Refused(
                    f"The row of {row.case} in {row.recipe}:{row.line} has the scope flaky, which does not say what it "
                    "replaced. Set its scopes by hand; its history shows the former ones: "
                    f"git log -p -L {cell.line},{cell.line}:{row.recipe}"
                )
            yield cell.end - len(_off_ending(cell.value)), cell.end, ""
    comment = _above(row, text, _COMMENT)
    if comment:
        yield _line_of(text, comment)
    elif not former and switched_off(row):
        yield from _reasons(row, text)


def _former(row: RecipeRow, text: str) -> re.Match[str] | None:
    """Find the comment that says what the scopes of a row were, at the end of the line on which they end."""
    if row.key < 0:
        return None
    stop = text.find("\n", row.end)
    return _FORMER.search(text, row.end, stop if stop >= 0 else len(text))


def _reasons(row: RecipeRow, text: str) -> Iterator[Span]:
    """Yield the removal of people's comments above the row and above its scope that say why it is switched off."""
    lines = text.split("\n")
    for number in dict.fromkeys((row.line - 1, text.count("\n", 0, row.key))):
        first = number
        while first > 0 and lines[first - 1].lstrip().startswith("#"):
            first -= 1
            if _COMMENTED_ROW.match(lines[first].lstrip()):
                break
            if _REASON.match(lines[first].lstrip()):
                start, end = (sum(map(len, lines[:each])) + each for each in (first, number))
                yield start, end, ""
                break


def track(recipe: str, text: str, test: Target, issue: int, review: str = "") -> str:
    """Add an issue in a comment above the quarantined rows of a test; 0 represents one that is not filed yet."""
    spans: list[Span] = []
    for row in recipes.rows(recipe, text):
        if test.is_of(row) and switched_off(row) and not comment_of(row, text):
            _require_editable(row)
            start, indent = _line_start(text, row.key)
            comment = f"{indent}# Broken: {note(test.reason, issue, review)}{_newline(text, start)}"
            spans.append((start, start, comment))
    return splice(text, spans)


def overdue(line: str, today: str) -> str:
    """Return a sentence about a quarantine whose review date is past, from a line of ``git grep -n``; else nothing."""
    match = _OVERDUE.match(line)
    if match is None or match["date"] >= today:
        return ""
    return (
        f"{match['place']}: the quarantine was to be reviewed by {match['date']} (issue {match['issue']}). Re-enable "
        "the test with 06-broken-tests, or write a later date into its comment."
    )


def comment_of(row: RecipeRow, text: str) -> str:
    """Return a row's comment with its issue; empty if there is none."""
    match = _above(row, text, _COMMENT)
    return match[0] if match else ""


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


def note(reason: str, issue: int, review: str = "") -> str:
    """Return the text of a comment: the reason, the issue, and the date of the review."""
    line = _on_one_line(reason)
    tracked = f"see issue #{issue or '(new)'}{f'{REVIEW}{review}' if review else ''}."
    return f"{line} — {tracked}" if line else tracked


def _on_one_line(reason: str) -> str:
    """Return a reason for a comment.  Raises Refused for a character that would end the comment, or YAML itself."""
    line = " ".join(reason.split())
    if not line.isprintable():
        raise Refused(f"The reason {line!r} contains a character that is not allowed in YAML comments. Remove it.")
    return line


def _break_scopes(row: RecipeRow, text: str, comment: str) -> Iterable[Span]:
    start, indent = _line_start(text, row.key)
    yield start, start, f"{indent}# Broken: {comment}{_newline(text, start)}"
    endings = {cell.end: BROKEN for cell in row.scopes if gating(cell.value)}
    stop = text.find("\n", row.end)
    line_end = len(text[:stop].removesuffix("\r")) if stop >= 0 else len(text)
    former = f"  # was: [{', '.join(cell.value for cell in row.scopes)}]"
    for position, ending in {**endings, line_end: endings.get(line_end, "") + former}.items():
        yield position, position, ending


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
        if switched_off(row):
            comments = " ".join(_comments(row, texts[row.recipe] or ""))
            # People write the repository's own issues as owner/name#12, too.
            comments = comments.replace(f"{repository}#", " #")
            quarantined.append(QuarantinedRow(row, _issue_of(comments, repository)))
    return tuple(quarantined), tuple(problems)


def _issue_of(comment: str, repository: str) -> int | None:
    """Return the issue in people's comments: ``#12``, or the URL of an issue in this repository."""
    url = rf"https?://[^/\s]+/{re.escape(repository)}/issues/([0-9]{{1,9}})\b"
    match = re.search(rf"{url}|(?<![\w/])#([0-9]{{1,9}})\b", comment)
    return int(match[1] or match[2]) if match else None


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
