"""The versions of files along the first parents of a commit, listed by one ``git log`` that reads no file."""

import re
from collections.abc import Iterable

from runbook_lib.world.git.checkout import Checkout

_NO_BLOB = re.compile("0+")


def file_versions(
    checkout: Checkout, commit: str, paths: Iterable[str], limit: int
) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the newest ``limit`` commits that change ``paths``, the oldest first: for each file its path and blob.

    The blob of a removed file is empty.  Raises RunbookError for a history that cannot be read.
    """
    options = ["--first-parent", "-m", "--raw", "--no-abbrev", "--no-renames", f"--max-count={limit}"]
    specs = [f":(top,literal){path}" for path in paths]
    if not specs:
        return []  # for git log, no path means all of them
    listed = checkout.git("log", *options, "-z", "--format=%x00%H", commit, "--", *specs)
    commits: list[tuple[str, list[tuple[str, str]]]] = []
    fields = iter(listed.split("\0"))
    for entry in fields:
        words = entry.split()
        if len(words) == 1:
            commits.append((words[0], []))
        elif len(words) == 5 and words[0].startswith(":"):
            blob = "" if _NO_BLOB.fullmatch(words[3]) else words[3]
            commits[-1][1].append((next(fields), blob))
    return [(name, versions) for name, versions in reversed(commits) if versions]
