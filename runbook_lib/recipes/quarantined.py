"""The tests that a branch has out of CI's way, with the issue that the comment in their recipe names.  Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from runbook_lib.errors import CannotTell
from runbook_lib.recipes import issue_references
from runbook_lib.recipes import rows as recipes
from runbook_lib.recipes.quarantine import BROKEN
from runbook_lib.recipes.rows import Row

#: A row that people commented out says nothing of the row below it.
_COMMENTED_ROW = re.compile(
    r"#[\s#]*(?:$|(?:-\s*)?(?:test_case|products|environment|scope|platforms|tag|n_repeat)\s*:)"
)
_HEAD = re.compile(r"\s*(?:-\s+test_case:.*|products:\s*(?:#.*)?)$")


@dataclass(frozen=True)
class Quarantined:
    """A row with a ``-broken`` scope.  ``issue`` is None where no comment names one; ``said`` is the comment."""

    row: Row
    issue: int | None
    said: str

    @property
    def test(self) -> str:
        """``model/case``."""
        return f"{self.row.model}/{self.row.case}"

    @property
    def place(self) -> str:
        """Recipe and line, as editors understand them."""
        return f"{self.row.recipe.removeprefix(recipes.FOLDER).lstrip('/')}:{self.row.line}"


def listed(texts: Mapping[str, str | None], repository: str) -> tuple[tuple[Quarantined, ...], tuple[str, ...]]:
    """The rows that are out of the way, and sentences about recipes that cannot be read."""
    found: list[Quarantined] = []
    odd: list[str] = []
    for path, text in texts.items():
        try:
            rows = recipes.rows(path, text or "")
        except CannotTell as error:
            odd.append(str(error))
            continue
        for row in rows:
            if any(cell.value.endswith(BROKEN) for cell in row.scopes):
                said = _comments(row, text or "")
                # People write the repository's own issues as owner/name#12, too.
                plain = said.replace(f"{repository}#", " #")
                found.append(Quarantined(row, issue_references.number_in(plain, repository), said))
    return tuple(found), tuple(odd)


def _comments(row: Row, text: str) -> str:
    """The comments beside a row's values, in it down to its scope, and above it."""
    lines = text.split("\n")
    first, scope = row.line - 1, text.count("\n", 0, max(row.end, 0))
    within = [found[1] for line in (*lines[first : scope + 1], *_rest(lines, first, scope)) if (found := _said(line))]
    above: list[str] = []
    while first > 0:
        line = lines[first - 1].strip()
        if line.startswith("#") and not _COMMENTED_ROW.match(line):
            above.insert(0, line.lstrip("# "))
        elif not _HEAD.match(line):
            break
        first -= 1
    return " ".join([*above, *within]).strip()


def _said(line: str) -> re.Match[str] | None:
    return re.search(r"(?:^|\s)#\s*(.*)", line)


def _rest(lines: list[str], first: int, scope: int) -> Iterator[str]:
    """The lines of a row below its scope; a line that is all comment may be of the next row."""
    for line in lines[scope + 1 :]:
        if _indent(line) <= _indent(lines[first]) or line.lstrip().startswith("#"):
            return
        yield line


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
