"""The owners of a repository's paths, from its CODEOWNERS file as interpreted by GitHub.

The last pattern that matches a path decides, and one without owners removes the path's owners. Patterns are those of
.gitignore, except for ``!`` and ``[…]``, which GitHub does not support, and ``/*``, which does not match subfolders.
Source: https://docs.github.com/en/repositories/managing-your-repositorys-settings-and-features/customizing-your-repository/about-code-owners
"""

from collections.abc import Iterable
from contextlib import suppress

#: The paths at which GitHub looks for the file, in this order.
PLACES = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")


def owners(text: str, paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the owners of each path: teams, logins with ``@``, or mail addresses; empty for one without owners."""
    import pathspec
    from pathspec.patterns.gitignore import GitIgnorePatternError

    owners_by_path: dict[str, tuple[str, ...]] = dict.fromkeys(paths, ())
    for line in text.splitlines():
        pattern, *names = line.partition(" #")[0].split() or [""]
        if not pattern or pattern.startswith(("#", "!")) or "[" in pattern:
            continue
        with suppress(GitIgnorePatternError):  # GitHub skips a line that it cannot read
            spec = pathspec.PathSpec.from_lines("gitignore", [pattern])
            owners_by_path |= dict.fromkeys(spec.match_files(list(owners_by_path)), tuple(names))
    return owners_by_path
