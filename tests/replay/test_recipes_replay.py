"""Quarantines in the real history of Megatron-LM: the lines that people changed, and every row back as it was."""

import os
import random
import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from runbook_lib.errors import CannotTell, Refused
from runbook_lib.text.edits import Edit, diff
from runbook_lib.text.recipes import quarantine
from runbook_lib.text.recipes import rows as recipes
from runbook_lib.text.recipes.rows import Target
from runbook_lib.world.git.blobs import read_objects
from runbook_lib.world.git.checkout import Checkout

pytestmark = pytest.mark.replay


def changes(clone: Path, commit: str) -> list[tuple[str, str, str]]:
    """Path and both texts of the recipes that a commit changed."""
    checkout, before = Checkout.open(clone), f"{commit}~1"
    listed = ["diff", "--name-only", "--diff-filter=M", before, commit, "--", recipes.FOLDER]
    names = checkout.git(*listed).splitlines()
    old, new = checkout.read(names, before), checkout.read(names, commit)
    return [(name, old[name] or "", new[name] or "") for name in names]


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


def targets(row: recipes.RecipeRow) -> list[Target]:
    """All tests that run by a row."""
    return [Target(row.case, p, env, row.model, "it hangs") for env in row.environments for p in row.platforms]


def touched(path: str, text: str, lines: dict[int, str]) -> list[recipes.RecipeRow]:
    return [row for row in recipes.rows(path, text) if lines.keys() & {cell.line for cell in row.scopes}]


def marked(path: str, text: str, tests: Sequence[Target]) -> str:
    """Quarantine tests, one after the other."""
    for test in tests:
        text = quarantine.mark(path, text, test, 7)
    return text


@pytest.mark.parametrize(
    ("commit", "same", "partly"),
    [
        ("5fe3f06658", 3, []), ("815c83d9bc", 1, []), ("3758b54b2b", 2, []), ("c09022e9c0", 1, []),
        ("ff60360163", 1, []), ("4e85d74ae9", 1, []), ("8da949e60d", 1, []), ("27168e231e", 2, []),
        ("b49d810e7e", 4, []), ("d0d00b3997", 1, []), ("f67b7bd607", 1, []), ("6ed980db4a", 1, []),
        ("ef159836f5", 1, []), ("6e6f0a0d1c", 1, []), ("1ed4d52153", 1, []), ("6646d1aa56", 1, []),
        ("65ce253456", 1, []),
        # Of one of these rows, people moved one scope alone.
        ("8d826c1124", 5, ["        scope: [mr-broken, mr-github]"]),
        ("7430688263", 0, ["        scope: [mr-broken, mr-github, mr-slim]"]),
        ("87cbe76d87", 0, ["        scope: [mr-broken, mr-github]"]),
    ],
)  # fmt: skip
def test_ours_changes_the_scope_lines_that_people_changed(
    megatron_lm: Path, commit: str, same: int, partly: list[str]
) -> None:
    equal, differing = 0, []
    for path, before, after in changes(megatron_lm, commit):
        theirs, _, _ = changed(before, after)
        rows = touched(path, before, theirs)
        tests = [target for row in rows for target in targets(row)]
        edit = Edit(path, before, marked(path, before, tests))
        ours, gone, came = changed(before, re.sub(r"(?m)  # was: \[[^]\n]*\]$", "", edit.after))
        assert ours.keys() == theirs.keys(), diff([edit])
        assert (gone, len(came)) == ([], len(rows))
        assert all(re.fullmatch(r" *# Broken: it hangs — see issue #7\.", line) for line in came)
        equal += sum(ours[line] == theirs[line] for line in theirs)
        differing += [theirs[line] for line in theirs if ours[line] != theirs[line]]
        if not any("-broken" in cell.value for row in rows for cell in row.scopes):
            # A person's quarantine comes back as well: the scopes as they were, the comment left as it is.
            assert changed(before, quarantine.unmark(path, after, tests))[0] == {}
    assert (equal, differing) == (same, partly)


@pytest.mark.parametrize("commit", ["ff64743148", "0beaa53bb9", "c4bea0a96a", "b2e93909f0", "d6af3820da", "3a9f086a59"])
def test_reenabled_tests_return_unchanged(megatron_lm: Path, commit: str) -> None:
    for path, before, after in changes(megatron_lm, commit):
        theirs, _, _ = changed(before, after)
        assert theirs
        tests = [target for row in touched(path, before, theirs) for target in targets(row)]
        assert changed(before, quarantine.unmark(path, before, tests)) == (theirs, [], [])


def versions(clone: Path) -> list[tuple[str, str]]:
    """Every version that any recipe ever had: path and text."""
    log = ["log", "--all", "--format=", "--raw", "--no-abbrev", "--no-renames", "--", "tests/**/*recipes/**.yaml"]
    found = [line.split() for line in Checkout.open(clone).git(*log).splitlines() if line.startswith(":")]
    blobs = {parts[3]: parts[5] for parts in found if set(parts[3]) != {"0"}}
    contents = read_objects(clone, sorted(blobs), 2**23)
    return [(path, contents[blob].decode("utf-8", "surrogateescape")) for blob, path in blobs.items()]


@pytest.mark.timeout(3600)
def test_every_row_that_ever_was_comes_back_byte_for_byte(megatron_lm: Path) -> None:
    """A seeded choice of rows of every version; all of them with REPLAY_ALL=1."""
    choose, refused, read, flips, by_hand = random.Random(7), [], 0, 0, 0
    for path, text in versions(megatron_lm):
        try:
            rows = recipes.rows(path, text)
        except CannotTell as error:
            refused.append(str(error))
            with pytest.raises(YAMLError):  # another parser refuses it as well
                list(YAML(typ="safe", pure=True).load_all(text))
            continue
        read += 1
        movable = [row for row in rows if any(quarantine.gating(cell.value) for cell in row.scopes)]
        for row in movable if os.environ.get("REPLAY_ALL") else choose.sample(movable, min(2, len(movable))):
            try:
                off = marked(path, text, targets(row))
            except Refused:
                by_hand += 1
                continue
            assert off != text
            assert marked(path, off, targets(row)) == off
            assert quarantine.unmark(path, off, targets(row)) == text
            flips += 1
    assert len(refused) <= 5, refused
    assert (read > 800, flips > 1000, by_hand < 50) == (True, True, True), (read, flips, by_hand)
