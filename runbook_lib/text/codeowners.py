"""The owners of a repository's paths: its CODEOWNERS file, read as GitHub does.  Pure.

The last pattern that matches a path decides, and one without owners takes the path out again.  Patterns are those of
.gitignore, but for ``!`` and ``[…]``, which GitHub does not take, and ``/*``, which is not looked into any deeper.
Source: https://docs.github.com/en/repositories/managing-your-repositorys-settings-and-features/customizing-your-repository/about-code-owners
"""

from collections.abc import Iterable
from contextlib import suppress

#: Where GitHub looks for the file, in this order.
PLACES = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")


def owners(text: str, paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the owners of each path: teams, logins with ``@``, or mail addresses; empty for one without owners."""
    import pathspec
    from pathspec.patterns.gitignore import GitIgnorePatternError

    rules = []
    for line in text.splitlines():
        pattern, *named = line.partition(" #")[0].split() or [""]
        if pattern and not pattern.startswith(("#", "!")) and "[" not in pattern:
            with suppress(GitIgnorePatternError):  # GitHub skips a line that it cannot read
                rules.append((pathspec.PathSpec.from_lines("gitignore", [pattern]), tuple(named)))
    listed = list(paths)
    found: dict[str, tuple[str, ...]] = dict.fromkeys(listed, ())
    for spec, whose in rules:
        found |= dict.fromkeys(spec.match_files(listed), whose)
    return found
