"""Quarantines against the real history of Megatron-LM: the same scopes change, and every row comes back."""

import os
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from runbook_lib.errors import CannotTell, Refused
from runbook_lib.recipes import quarantine
from runbook_lib.recipes import rows as recipes
from runbook_lib.recipes.targets import Target

pytestmark = pytest.mark.replay

#: Commits in which people put tests out of the way.
COMMITS = ["5fe3f06658", "815c83d9bc", "3758b54b2b", "8d826c1124", "c09022e9c0", "ff60360163"]


def git(clone: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(clone), *arguments], check=True, capture_output=True)
    return done.stdout.decode("utf-8", "surrogateescape")


def scopes(rows: tuple[recipes.RecipeRow, ...]) -> dict[tuple[str, ...], list[list[str]]]:
    found: dict[tuple[str, ...], list[list[str]]] = {}
    for row in rows:
        key = (row.case, *row.environments, *row.platforms)
        found.setdefault(key, []).append([cell.value for cell in row.scopes])
    return found


def test_tests_quarantined_by_people_are_recognized(megatron_lm: Path) -> None:
    seen = 0
    for commit in [*COMMITS, *others(megatron_lm)]:
        changed = git(
            megatron_lm, "diff", "--name-only", "--diff-filter=M", f"{commit}~1", commit, "--", recipes.FOLDER
        )
        for path in changed.split():
            before, after = (git(megatron_lm, "show", f"{ref}:{path}") for ref in (f"{commit}~1", commit))
            seen += replayed(path, before, after)
    assert seen >= 20


def others(clone: Path) -> list[str]:
    """Further commits that take a scope away by the ending; those that move files about are none of them."""
    listed = git(clone, "log", "--format=%h", "-G", "scope:.*-broken", "--no-merges", "HEAD", "--", recipes.FOLDER)
    return [commit for commit in listed.split() if commit not in COMMITS]


def replayed(path: str, before: str, after: str) -> int:
    """How many rows a commit put wholly out of the way; each must become what the commit made of it."""
    old, new = recipes.rows(path, before), recipes.rows(path, after)
    theirs, count = scopes(new), 0
    for row in old:
        key = (row.case, *row.environments, *row.platforms)
        flipped = [f"{cell.value}-broken" if quarantine.gating(cell.value) else cell.value for cell in row.scopes]
        now = [cell.value for cell in row.scopes]
        if flipped == now or theirs.get(key) != [flipped] or scopes(old)[key] != [now]:
            continue  # untouched, in part, or a row of several of its name
        targets = [Target(row.case, p, e, row.model, "as people say") for e in row.environments for p in row.platforms]
        ours = quarantine.mark(path, before, targets, 1).after
        assert only_scopes_and_a_comment(before, ours)
        assert scopes(recipes.rows(path, ours))[key] == [flipped]
        line = next(it.line for it in recipes.rows(path, ours) if (it.case, *it.environments, *it.platforms) == key)
        scope = next(text for text in ours.split("\n")[line - 1 :] if "scope:" in text)
        assert scope.split("#")[0].rstrip() in [text.split("#")[0].rstrip() for text in after.split("\n")]
        count += 1
    return count


def only_scopes_and_a_comment(before: str, after: str) -> bool:
    rest = [line for line in after.split("\n") if not re.match(r"\s*# Broken.* see issue #1\.", line)]
    pairs = list(zip(before.split("\n"), rest, strict=True))
    return len(after.split("\n")) - len(rest) == 1 and all(
        a == b or (a == b.replace("-broken", "") or "broken" in a) for a, b in pairs
    )


def versions(clone: Path) -> Iterator[tuple[str, str]]:
    """Every version that any recipe ever had: path and text."""
    raw = git(
        clone, "log", "--all", "--format=", "--raw", "--no-abbrev", "--no-renames", "--", "tests/**/*recipes/**.yaml"
    )
    blobs = {
        parts[3]: path
        for line in raw.splitlines()
        if line.startswith(":") and (path := line.split("\t")[1]).endswith((".yaml", ".yml"))
        for parts in [line.split()]
        if set(parts[3]) != {"0"}
    }
    with subprocess.Popen(
        ["git", "-C", str(clone), "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as cat:
        assert cat.stdin
        assert cat.stdout
        for blob, path in blobs.items():
            cat.stdin.write(f"{blob}\n".encode())
            cat.stdin.flush()
            size = int(cat.stdout.readline().split()[2])
            yield path, cat.stdout.read(size + 1)[:-1].decode("utf-8", "surrogateescape")
        cat.stdin.close()


@pytest.mark.timeout(3600)
def test_every_row_that_ever_was_comes_back_byte_for_byte(megatron_lm: Path) -> None:
    """A seeded choice of rows of every version; all of them with REPLAY_ALL=1."""
    choose, refused, read, flips, fixed = random.Random(7), [], 0, 0, 0
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
            targets = [Target(row.case, p, e, row.model, "why") for e in row.environments for p in row.platforms]
            if row.fixed:
                fixed += 1
                with pytest.raises(Refused):
                    quarantine.mark(path, text, targets, 1, whole_rows=True)
                continue
            marked = quarantine.mark(path, text, targets, 1, whole_rows=True).after
            assert marked != text
            assert quarantine.mark(path, marked, targets, 1, whole_rows=True).after == marked
            assert quarantine.unmark(path, marked, targets, whole_rows=True).after == text
            flips += 1
    assert len(refused) <= 5, refused
    assert (read > 800, flips > 1000) == (True, True), (read, flips, fixed)
