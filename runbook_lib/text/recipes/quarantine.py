"""Quarantine of a broken test in its recipe, with a tracking issue, and its reversal.  Pure.

The gating scopes of the test's rows become their ``-broken`` form, which no automatic trigger selects.  A comment above
gives the reason and the issue, and one beside them the former scopes.  Nothing else changes, which parsing proves, and
removing all of it restores the file byte for byte.  Source of the form: Megatron-LM's ``skills/mcore-bump-base-image``.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from runbook_lib.errors import CannotTell, Refused
from runbook_lib.text.edits import Span, splice
from runbook_lib.text.recipes import rows as recipes
from runbook_lib.text.recipes.rows import RecipeRow, Target
from runbook_lib.text.yaml_spans import Cell

BROKEN = "-broken"
#: A scope that selects a test only by name, and does not say which scopes the test had.
_FLAKY = "flaky"
#: Scopes that gate nothing.
_IDLE = frozenset({"deprecated", _FLAKY, "cleanup"})
_OFF = re.compile(r"(?:-broken|(?:-temp)?-disabled)$")
#: Texts that every switched-off scope contains one of.
OFF_TEXTS = (BROKEN, "-disabled", _FLAKY)
#: The date in a comment by which a person looks at the quarantine again.
REVIEW = ", review by "
#: The comment on a quarantined test: the reason, the issue, and the date of the review.
COMMENT = re.compile(
    r"# Broken: (?P<reason>(?:(?!# Broken: ).)*?)(?: — )?see issue #(?P<issue>[0-9]{1,9})"
    rf"(?:{REVIEW}(?P<review>[0-9-]{{10}}))?\."
)
_LINE = re.compile(rf"[ \t]*{COMMENT.pattern}\r?\n?")
_FOUND = re.compile(rf"(?P<place>[^:\n]*:[0-9]+):[ \t]*{COMMENT.pattern}")
_FORMER = re.compile(r"(?<![ \t])[ \t]*# was: \[([^][#\n]*)\]$")
#: The beginning of a comment in which people say why they switched a row off.
_REASON = re.compile(r"#\s*(?:Broken|Disabled|Flaky|Quarantined)\b", re.IGNORECASE)

#: What is before the number of the issue that tracks a row: not "to" or "PR".
_TRACKED = r"(?:^|[:;,.(—–-]|\b(?:issue|bug|see|after|until|tracked (?:by|in)|broken|disabled|flaky|hangs?)) ?"
#: A comment, but not a row that people commented out, which says nothing about the row below it.
_WORDS = re.compile(r"#(?![\s#]*(?:$|(?:-\s*)?(?:test_case|products|environment|scope|platforms|tag|n_repeat)\s*:))")
_HEAD = re.compile(r"(?:-\s+test_case:.*|products:\s*(?:#.*)?)$")


def gating(scope: str) -> bool:
    """Return True if a scope selects tests without being named, so that a quarantine removes it."""
    return bool(scope) and scope not in _IDLE and not _OFF.search(scope)


def switched_off(row: RecipeRow) -> list[Cell]:
    """Return the scopes of a row that people or a quarantine have switched off."""
    gates = bool(gating_scopes(row))
    return [cell for cell in row.scopes if _OFF.search(cell.value) or (cell.value == _FLAKY and not gates)]


def gating_scopes(row: RecipeRow) -> list[str]:
    """Return the scopes of a row that select its test without being named."""
    return [cell.value for cell in row.scopes if gating(cell.value)]


def mark(recipe: str, text: str, test: Target, issue: int, review: str = "") -> str:
    """Quarantine a test: all its rows in this recipe that gate, for all that they cover.

    If none gates, those that people switched off get the comment, once.  ``review`` is the date by which a person looks
    at the quarantine again.  ``issue`` 0 represents an issue that is not filed yet, for previews; it must not be
    written.  Raises Refused for a row that cannot be edited in place.
    """
    if not issue:
        mark(recipe, text, test, 1, review)  # raises for a row that could not be edited once the issue is filed
    own = [row for row in recipes.rows(recipe, text) if test.is_of(row)]
    gates = [row for row in own if gating_scopes(row)]
    off = [] if any(comment_above(row, text) for row in own) else list(filter(switched_off, own))
    spans: list[Span] = []
    newline = "\r\n" if "\r\n" in text else "\n"
    for row in gates or off:
        start, indent = _line_start(text, row.key)
        spans.append((start, start, f"{indent}# Broken: {note(test.reason, issue, review)}{newline}"))
    scopes: dict[RecipeRow, list[str]] = {}
    for row in gates:
        line_end = _line_end(text, row.end)
        scopes[row] = [f"{cell.value}{BROKEN}" if gating(cell.value) else cell.value for cell in row.scopes]
        endings = {cell.end: BROKEN for cell in row.scopes if gating(cell.value)}
        endings[line_end] = f"{endings.get(line_end, '')}  # was: [{', '.join(cell.value for cell in row.scopes)}]"
        spans += [(position, position, ending) for position, ending in endings.items()]
    after = _proven(recipe, text, spans, scopes)
    if gates and issue and unmark(recipe, after, [test]) != text:
        raise _by_hand(gates[0])
    return after


def unmark(recipe: str, text: str, tests: Sequence[Target]) -> str:
    """Restore the scopes of the tests' rows, and remove the comments on the quarantine.

    If no row of a test says what its scopes were, those that people switched off are restored.  Raises Refused for the
    scope ``flaky``, which does not say what it replaced, and for a row that cannot be edited in place.
    """
    selected: dict[RecipeRow, None] = {}
    rows = recipes.rows(recipe, text)
    for test in tests:
        own = [row for row in rows if test.is_of(row)]
        selected |= dict.fromkeys([row for row in own if _former(row, text)] or own)
    spans: list[Span] = []
    scopes: dict[RecipeRow, list[str]] = {}
    for row in selected:
        off = {cell: _OFF.sub("", cell.value) for cell in switched_off(row)}
        former = _former(row, text)
        if former:
            before = [f"{name.strip()}{BROKEN}" for name in former[1].split(",")]
            off = {cell: cell.value.removesuffix(BROKEN) for cell, name in zip(row.scopes, before, strict=False)
                   if cell.value == name}  # fmt: skip
            spans.append((former.start(), former.end(), ""))
        elif flaky := next((cell for cell in off if cell.value == _FLAKY), None):
            raise Refused(
                f"The row of {row.case} in {row.recipe}:{row.line} has the scope flaky, which does not say what it "
                "replaced.",
                "Set its scopes by hand; its history shows the former ones: "
                f"git log -p -L {flaky.line},{flaky.line}:{row.recipe}",
            )
        spans += [(cell.start + len(name), cell.end, "") for cell, name in off.items()]
        scopes[row] = [off.get(cell, cell.value) for cell in row.scopes]
        if comment := comment_above(row, text):
            spans.append((*comment.span(), ""))
        elif off and not former:
            spans += _reasons(row, text)
    return _proven(recipe, text, spans, scopes)


def _proven(recipe: str, text: str, spans: Iterable[Span], scopes: Mapping[RecipeRow, Sequence[str]]) -> str:
    """Return the edited text, if these rows have these scopes then, and all other rows stay."""
    rows = recipes.rows(recipe, text)
    try:
        after = splice(text, spans)
        changed = [_meaning(row) for row in recipes.rows(recipe, after)]
    except (CannotTell, ValueError):
        changed = []
    if changed != [_meaning(row, scopes.get(row)) for row in rows]:
        raise _by_hand(next(iter(scopes), rows[0]))
    return after


def _meaning(row: RecipeRow, scopes: Sequence[str] | None = None) -> tuple[object, ...]:
    values = [cell.value for cell in row.scopes] if scopes is None else list(scopes)
    return row.model, row.case, row.environments, row.platforms, row.allow_failure, values


def _by_hand(row: RecipeRow) -> Refused:
    return Refused(
        f"The row of {row.case} in {row.recipe}:{row.line} cannot be edited in place: it has no scope of its own, or "
        "shares it or its line with others.",
        "Edit it by hand, then run again.",
    )


def _former(row: RecipeRow, text: str) -> re.Match[str] | None:
    """Find the comment that says what the scopes of a row were, at the end of the line on which they end."""
    if row.key < 0:
        return None
    return _FORMER.search(text, row.end, _line_end(text, row.end))


def _reasons(row: RecipeRow, text: str) -> Iterator[Span]:
    """Yield the removal of people's comments above the row and above its scope that say why it is switched off."""
    lines = text.split("\n")
    for number in dict.fromkeys((row.line - 1, text.count("\n", 0, row.key))):
        words = list(itertools.takewhile(_WORDS.match, (line.lstrip() for line in reversed(lines[:number]))))
        reason = next((above for above, line in enumerate(words, 1) if _REASON.match(line)), 0)
        start, end = (sum(map(len, lines[:each])) + each for each in (number - reason, number))
        yield start, end, ""


def overdue(line: str, today: str) -> str:
    """Return a sentence about a quarantine whose review date is past, from a line of ``git grep -n``; else nothing."""
    match = _FOUND.match(line)
    if match is None or not match["review"] or match["review"] >= today:
        return ""
    return (
        f"{match['place']}: the quarantine was to be reviewed by {match['review']} (issue #{match['issue']}). "
        "Re-enable the test with 06-broken-tests, or write a later date into its comment."
    )


def also_covered(row: RecipeRow, tests: Iterable[Target]) -> str:
    """Return the environments and platforms of a row that none of these tests names, in words."""
    named = {(test.environment, test.platform) for test in tests if test.is_of(row)}
    covered = itertools.product(row.environments, row.platforms)
    return ", ".join(" on ".join(each) for each in covered if each not in named)


def note(reason: str, issue: int, review: str = "") -> str:
    """Return the text of a comment: the reason, the issue, and the date of the review.

    Raises Refused for a character that would end the comment, or YAML itself.
    """
    line = " ".join(reason.split())
    if not line.isprintable():
        raise Refused(f"The reason {line!r} contains a character that is not allowed in YAML comments.", "Remove it.")
    tracked = f"see issue #{issue or '(new)'}{f'{REVIEW}{review}' if review else ''}."
    return f"{line} — {tracked}" if line else tracked


def _line_start(text: str, position: int) -> tuple[int, str]:
    start = text.rfind("\n", 0, position) + 1
    line = text[start : position + 1]
    return start, line[: len(line) - len(line.lstrip(" \t"))]


def _line_end(text: str, position: int) -> int:
    stop = text.find("\n", position)
    return len(text[:stop].removesuffix("\r")) if stop >= 0 else len(text)


def comment_above(row: RecipeRow, text: str) -> re.Match[str] | None:
    """Find our comment, as in COMMENT, on the line above a row's scope."""
    if row.key < 0:
        return None
    end, _ = _line_start(text, row.key)
    return _LINE.fullmatch(text, text.rfind("\n", 0, max(end - 1, 0)) + 1, end)


def quarantined_rows(
    texts: Mapping[str, str | None], repository: str
) -> tuple[dict[RecipeRow, int | None], tuple[str, ...]]:
    """Return the rows with a switched-off scope, each with the issue in its comments, or None.

    Also returns sentences about recipes that cannot be read.
    """
    rows, problems = recipes.read_all(texts)
    off = filter(switched_off, rows)
    return {row: _issue_of(row, texts[row.recipe] or "", repository) for row in off}, tuple(problems)


def _issue_of(row: RecipeRow, text: str, repository: str) -> int | None:
    """Return the issue that people's comments say tracks the row, by its URL or number; other numbers do not count."""
    name = re.escape(repository)
    issue = re.compile(rf"https?://[^/\s]+/{name}/issues/([0-9]{{1,9}})\b|{_TRACKED}(?:{name})?#([0-9]{{1,9}})\b", re.I)
    for comment in _comments(row, text):
        if match := issue.search(comment):
            return int(match[1] or match[2])
    return None


def _comments(row: RecipeRow, text: str) -> Iterator[str]:
    """Yield the comments above a row, in it down to its scope, and beside its further values."""
    lines = text.split("\n")
    first = row.line - 1
    scope = max(first, text.count("\n", 0, max(row.end, 0)))
    indent = " " * (len(lines[first]) - len(lines[first].lstrip(" ")) + 1)
    above = itertools.takewhile(
        lambda line: _WORDS.match(line) or _HEAD.match(line), map(str.strip, lines[:first][::-1])
    )
    # A line below the scope that is only a comment may belong to the next row.
    below = itertools.takewhile(
        lambda line: line.startswith(indent) and not line.lstrip().startswith("#"), lines[scope + 1 :]
    )
    for line in (*above, *lines[first : scope + 1], *below):
        if match := re.search(r"(?:^|\s)#\s*(.*)", line):
            yield match[1]
