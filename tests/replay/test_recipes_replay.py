"""The quarantines that people made in Megatron-LM, line by line: where ours is the same, and what else they did."""

import re
import subprocess
from collections import Counter
from difflib import SequenceMatcher
from pathlib import Path

import pytest

from runbook_lib.recipes import quarantine
from runbook_lib.recipes import rows as recipes
from runbook_lib.recipes.targets import Target
from runbook_lib.text.edits import diff

pytestmark = pytest.mark.replay


def git(clone: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(clone), *arguments], check=True, capture_output=True)
    return done.stdout.decode("utf-8", "surrogateescape")


def changed(before: str, after: str) -> tuple[dict[int, str], list[str], list[str]]:
    """The scope lines that changed, by their number before; the other lines that went, and those that came."""
    old, new = before.split("\n"), after.split("\n")
    scopes: dict[int, str] = {}
    gone: list[str] = []
    came: list[str] = []
    for kind, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        was = [n for n in range(i, j) if old[n].lstrip().startswith("scope:")]
        now = [n for n in range(k, m) if new[n].lstrip().startswith("scope:")]
        if len(was) == len(now):
            scopes |= {n + 1: new[other] for n, other in zip(was, now, strict=True)}
        gone += [old[n] for n in range(i, j) if len(was) != len(now) or n not in was]
        came += [new[n] for n in range(k, m) if len(was) != len(now) or n not in now]
    return scopes, gone, came


def touched(path: str, text: str, lines: dict[int, str]) -> tuple[list[recipes.RecipeRow], list[Target]]:
    """The rows whose scopes stand in these lines, and all tests that run by them."""
    rows = [row for row in recipes.rows(path, text) if lines.keys() & {cell.line for cell in row.scopes}]
    runs = [(row, environment, platform) for row in rows for environment in row.environments
            for platform in row.platforms]  # fmt: skip
    return rows, [Target(row.case, platform, env, row.model, "it hangs") for row, env, platform in runs]


@pytest.mark.parametrize(
    ("commit", "same", "partly", "gone", "came"),
    [
        # A comment above each scope, one of them without an issue.
        ("5fe3f06658", 3, [], 0, 3),
        # No comment at all in these two.
        ("815c83d9bc", 1, [], 0, 0),
        ("3758b54b2b", 2, [], 0, 0),
        # No comments; of one row only GitLab's scope; and a blank at the end of a line of the script taken away.
        ("8d826c1124", 5, ["        scope: [mr-broken, mr-github]"], 1, 1),
        # Comments of four lines and of one, above the row and without an issue.
        ("c09022e9c0", 1, [], 0, 4),
        ("ff60360163", 1, [], 0, 1),
        # No comments in the others: what they broke for is told in the commits at most.  Tests were removed and added.
        ("4e85d74ae9", 1, [], 10, 14),
        ("8da949e60d", 1, [], 0, 0),
        ("27168e231e", 2, [], 0, 0),
        # Rows that were out of the way in part before.
        ("b49d810e7e", 4, [], 0, 0),
        ("d0d00b3997", 1, [], 0, 0),
        # Of each of these rows one scope alone.
        ("7430688263", 0, ["        scope: [mr-broken, mr-github, mr-slim]"], 0, 0),
        ("87cbe76d87", 0, ["        scope: [mr-broken, mr-github]"], 0, 0),
        # Another way to quote a name.
        ("f67b7bd607", 1, [], 1, 1),
        ("6ed980db4a", 1, [], 0, 0),
        ("ef159836f5", 1, [], 0, 0),
        ("6e6f0a0d1c", 1, [], 0, 0),
        ("1ed4d52153", 1, [], 0, 0),
        ("6646d1aa56", 1, [], 0, 0),
        ("65ce253456", 1, [], 0, 0),
    ],
)
def test_ours_changes_the_scope_lines_that_people_changed(
    megatron_lm: Path, commit: str, same: int, partly: list[str], gone: int, came: int
) -> None:
    counted: Counter[str] = Counter()
    differing: list[str] = []
    names = git(megatron_lm, "diff", "--name-only", "--diff-filter=M", f"{commit}~1", commit, "--", recipes.FOLDER)
    for path in names.split():
        before, after = (git(megatron_lm, "show", f"{ref}:{path}") for ref in (f"{commit}~1", commit))
        theirs, went, more = changed(before, after)
        counted += Counter(gone=len(went), came=len(more))
        rows, tests = touched(path, before, theirs)
        edit = quarantine.mark(path, before, tests, 7)
        ours, ours_gone, ours_came = changed(before, edit.after)
        assert ours.keys() == theirs.keys(), diff([edit])
        assert ours_gone == []
        assert all(
            re.fullmatch(r" *# Broken( \(scope [1-3, ]+\))?: it hangs — see issue #7\.", line) for line in ours_came
        )
        assert len(ours_came) == len(rows) == len(theirs)
        for line in theirs:
            if ours[line] == theirs[line]:
                counted["same"] += 1
            else:
                differing.append(theirs[line])
        assert quarantine.unmark(path, edit.after, tests).after == before
        if not any("-broken" in cell.value for row in rows for cell in row.scopes):
            # A person's quarantine comes back as well: the scopes as they were, the comment left as it is.
            back, _, _ = changed(before, quarantine.unmark(path, after, tests).after)
            assert back == {}
    assert (counted["same"], differing, counted["gone"], counted["came"]) == (same, partly, gone, came)


@pytest.mark.parametrize("commit", ["ff64743148", "0beaa53bb9", "c4bea0a96a", "b2e93909f0", "d6af3820da", "3a9f086a59"])
def test_reenabled_tests_return_unchanged(megatron_lm: Path, commit: str) -> None:
    names = git(megatron_lm, "diff", "--name-only", "--diff-filter=M", f"{commit}~1", commit, "--", recipes.FOLDER)
    for path in names.split():
        before, after = (git(megatron_lm, "show", f"{ref}:{path}") for ref in (f"{commit}~1", commit))
        theirs, _, _ = changed(before, after)
        _, tests = touched(path, before, theirs)
        assert theirs
        assert changed(before, quarantine.unmark(path, before, tests).after) == (theirs, [], [])
