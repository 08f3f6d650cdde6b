"""Puts a broken test out of CI's way in its recipe, with the issue that tracks it, and back again.  Pure.

The gating scopes of the test's rows become their ``-broken`` form, which no automatic trigger selects, and a comment
above says why and names the issue; nothing else of the file changes.  What a row's scopes meant (tier, cadence) stays
readable in their names, and taking the comment and the endings away gives the file back byte for byte.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from runbook_lib.errors import Refused
from runbook_lib.recipes import rows as recipes
from runbook_lib.recipes.rows import Row
from runbook_lib.text.decisions import entries
from runbook_lib.text.edits import Edit, splice
from runbook_lib.text.redact import Redactor

BROKEN = "-broken"
#: Scopes that let nothing through and stop nothing: they select a test only by name.
_IDLE = frozenset({"deprecated", "flaky", "cleanup"})
# As people write it there (``skills/mcore-bump-base-image``), so that theirs goes when the test comes back, too.
_WORDS = r"# Broken(?: \(scope (?P<scopes>[0-9, ]+)\))?: [^\n]*see issue #[0-9]+\.\r?\n?"
_COMMENT = re.compile(rf"[ \t]*{_WORDS}")
_SOFT = re.compile(rf"[ \t]*allow_failure: \[true\] {_WORDS}")


@dataclass(frozen=True)
class Target:
    """A test case on a platform, in an environment; ``model`` is empty where a person did not name it."""

    case: str
    platform: str
    environment: str
    model: str = ""
    reason: str = ""

    def __str__(self) -> str:
        model = f"{self.model}/" if self.model else ""
        return f"{model}{self.case}@{self.platform or '?'} ({self.environment})"

    def is_of(self, row: Row) -> bool:
        """Whether a row runs it."""
        named = row.case == self.case and self.model in ("", row.model)
        return named and row.stands_for(self.environment, self.platform)


def named(text: str, environment: str, redactor: Redactor, parameter: str = "broken") -> tuple[Target, ...]:
    """The tests that a person lists: ``case@platform: reason; …``; the case may have its model before it.

    The platform may be left out, and is empty then.  Raises Refused for an entry of another form.
    """
    found = []
    for name, reason in entries(text, parameter, "case@platform: reason", redactor).items():
        case, _, platform = (part.strip() for part in name.partition("@"))
        model, _, case = case.rpartition("/")
        if not re.fullmatch(r"[\w.+-]+", case) or not re.fullmatch(r"[\w.+-]*", model) or re.search(r"\W", platform):
            raise Refused(f"{parameter} names {name!r}; it must read `case@platform`, such as gpt3_tp1@dgx_h100.")
        found.append(Target(case, platform, environment, model, reason))
    return tuple(found)


def settle(test: Target, rows: Iterable[Row]) -> Target:
    """The test with its model and platform.  Raises Refused where no recipe has it, or several would fit."""
    listed = list(rows)
    mine = [row for row in listed if row.case == test.case and test.model in ("", row.model)]
    here = [row for row in mine if test.environment in row.environments]
    platforms = {name for row in here for name in row.platforms}
    if not mine or (test.platform and test.platform not in platforms) or not platforms:
        near = get_close_matches(test.case, {row.case for row in listed}, 3)
        have = ", ".join(sorted(platforms)) or "none"
        hint = f"Its platforms there: {have}." if mine else f"Did you mean {' or '.join(near) or 'another'}?"
        raise Refused(f"No recipe runs {test}. {hint} Nothing was changed.")
    models = {row.model for row in here if not test.platform or test.platform in row.platforms}
    if len(models) > 1 or (not test.platform and len(platforms) > 1):
        choices = sorted(f"{row.model}/{row.case}@{name}" for row in here for name in row.platforms)
        raise Refused(f"{test} may be each of {', '.join(dict.fromkeys(choices))}. Say which. Nothing was changed.")
    return Target(test.case, test.platform or platforms.pop(), test.environment, models.pop(), test.reason)


def gating(scope: str) -> bool:
    """Whether a scope selects tests without being named, so that quarantining takes it away."""
    return bool(scope) and scope not in _IDLE and not scope.endswith((BROKEN, "-disabled"))


def mark(
    recipe: str, text: str, tests: Sequence[Target], issue: int, *, beside: Sequence[Target] = (), soft: bool = False,
    whole_rows: bool = False,
) -> Edit:  # fmt: skip
    """Put tests of one issue out of the way: all their rows in this recipe.  A row that is so already stays as it is.

    ``issue`` 0 stands for one that is not filed yet, as a preview shows it; it must not be written.

    ``soft`` lets the row fail instead (``allow_failure``), which only GitLab honours.  A row that stands for other
    platforms or environments as well, that no test ``beside`` names, is refused, unless ``whole_rows`` permits it.
    """
    spans: list[tuple[int, int, str]] = []
    for row in recipes.rows(recipe, text):
        mine = [test for test in tests if test.is_of(row)]
        if not mine or (row.allow_failure if soft else not any(gating(cell.value) for cell in row.scopes)):
            continue
        _require_own(row, [*tests, *beside], whole_rows)
        reason = _line(mine[0].reason)
        spans += _soft(row, text, issue, reason) if soft else _flips(row, text, issue, reason)
    return Edit(recipe, text, splice(text, spans))


def unmark(recipe: str, text: str, tests: Sequence[Target], *, whole_rows: bool = False) -> Edit:
    """Give the tests' rows their scopes back, and take the comments that name an issue away.

    Where no row of a test has one, the scopes that people took away come back, and what they wrote stays.
    """
    found = [
        (row, _above(row, text, _COMMENT), _below(row, text, _SOFT))
        for row in recipes.rows(recipe, text)
        if any(test.is_of(row) for test in tests)
    ]
    chosen: dict[int, tuple[Row, re.Match[str] | None, re.Match[str] | None]] = {}
    for test in tests:
        mine = [it for it in found if test.is_of(it[0])]
        chosen |= {id(it): it for it in [it for it in mine if it[1] or it[2]] or mine}
    spans: list[tuple[int, int, str]] = []
    for row, comment, soft in chosen.values():
        flipped = comment["scopes"] if comment else None
        broken = [
            cell
            for at, cell in enumerate(row.scopes, 1)
            if cell.value.endswith(BROKEN) and (flipped is None or str(at) in flipped.split(", "))
        ]
        if soft and not comment:
            broken = []  # they were so before
        if broken or soft:
            _require_own(row, tests, whole_rows)
        spans += [(cell.end - len(BROKEN), cell.end, "") for cell in broken]
        spans += [_line_of(text, it) for it in (comment, soft) if it]
    return Edit(recipe, text, splice(text, spans))


def comment_of(row: Row, text: str) -> str:
    """The comment of a row that names its issue; empty without one."""
    found = _above(row, text, _COMMENT) or _below(row, text, _SOFT)
    return found[0] if found else ""


def _require_own(row: Row, tests: Collection[Target], whole_rows: bool) -> None:
    where = f"{row.recipe}:{row.line}"
    if row.fixed:
        raise Refused(
            f"The row of {row.case} in {where} cannot be edited: {row.fixed}. Edit it by hand, then run again."
        )
    others = [
        f"{environment} on {platform}"
        for environment in row.environments
        for platform in row.platforms
        if not any(test.environment == environment and test.platform == platform for test in tests if test.is_of(row))
    ]
    if others and not whole_rows:
        raise Refused(
            f"The row of {row.case} in {where} stands for {', '.join(others)} as well. Give this platform a row of its "
            "own first, or name the others too.",
            "whole-row",
        )


def _line(reason: str) -> str:
    """A reason as a comment can hold it.  Raises Refused for what would end the comment, or YAML itself."""
    line = " ".join(reason.split())
    if not line.isprintable():
        raise Refused(f"The reason {line!r} holds a character that no YAML comment can hold. Write it without.")
    return line


def _number(issue: int) -> str:
    return f"#{issue}" if issue else "#(new)"


def _flips(row: Row, text: str, issue: int, reason: str) -> Iterable[tuple[int, int, str]]:
    cells = [cell for cell in row.scopes if gating(cell.value)]
    # What a person had put away before stays away when the test comes back.
    before = any(cell.value.endswith(BROKEN) for cell in row.scopes)
    places = (str(at) for at, cell in enumerate(row.scopes, 1) if cell in cells)
    which = f" (scope {', '.join(places)})" if before else ""
    at, indent = _line_start(text, row.key)
    yield at, at, f"{indent}# Broken{which}: {reason} — see issue {_number(issue)}.{_ending(text, at)}"
    yield from ((cell.end, cell.end, BROKEN) for cell in cells)


def _soft(row: Row, text: str, issue: int, reason: str) -> Iterable[tuple[int, int, str]]:
    if not row.block:
        raise Refused(f"The row of {row.case} in {row.recipe}:{row.line} is written on one line. Edit it by hand.")
    if row.sets_allow_failure:
        raise Refused(f"The row of {row.case} in {row.recipe}:{row.line} sets allow_failure already. Edit it by hand.")
    # Below the scope: a key of the row, whose column is that of ``scope``.
    line = text.find("\n", row.end) + 1 or len(text)
    column = row.key - (text.rfind("\n", 0, row.key) + 1)
    newline = _ending(text, row.key)
    lead = newline if line == len(text) and not text.endswith("\n") else ""
    tail = "" if lead else newline
    yield (
        line,
        line,
        f"{lead}{' ' * column}allow_failure: [true] # Broken: {reason} — see issue {_number(issue)}.{tail}",
    )


def _line_start(text: str, at: int) -> tuple[int, str]:
    start = text.rfind("\n", 0, at) + 1
    line = text[start : at + 1]
    return start, line[: len(line) - len(line.lstrip(" \t"))]


def _ending(text: str, at: int) -> str:
    end = text.find("\n", at)
    if end == -1:
        end = text.rfind("\n", 0, at)
    return "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"


def _line_of(text: str, found: re.Match[str]) -> tuple[int, int, str]:
    """Our line with its ending; at the end of a file without one, that of the line before it."""
    start = found.start()
    if not found[0].endswith("\n"):
        start -= 2 if text[:start].endswith("\r\n") else 1
    return start, found.end(), ""


def _above(row: Row, text: str, form: re.Pattern[str]) -> re.Match[str] | None:
    if row.key < 0:
        return None
    end, _ = _line_start(text, row.key)
    return form.fullmatch(text, text.rfind("\n", 0, max(end - 1, 0)) + 1, end)


def _below(row: Row, text: str, form: re.Pattern[str]) -> re.Match[str] | None:
    if row.key < 0:
        return None
    start = text.find("\n", row.end) + 1
    return form.match(text, start) if start else None
