"""The practice forge's view of a bare git repository: branches, merges, history and files."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from runbook_lib.errors import RunbookError
from runbook_lib.git.blobs import read_blobs

#: The variables that disable the user's configuration.
ISOLATED = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
# The other GIT_ variables may refer to another repository, like inside a hook.
_CONFIGURATION = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH")


def run_git(arguments: Sequence[str], stdin: bytes = b"", env: Mapping[str, str] = ISOLATED) -> str:
    """Run git outside any repository in the environment, to which ``env`` is added, and return its output.

    Raises RunbookError if it fails.
    """
    variables = {"LC_ALL": "C", "TZ": "UTC", "GIT_TERMINAL_PROMPT": "0", **env}
    for name, value in os.environ.items():
        if not name.startswith("GIT_") or name in _CONFIGURATION:
            variables.setdefault(name, value)
    try:
        process = subprocess.run(["git", *arguments], input=stdin, env=variables, capture_output=True, check=False)
    except FileNotFoundError:
        raise RunbookError("git is not on PATH. Install git, then try again.") from None
    if process.returncode:
        error = process.stderr.decode(errors="replace").strip()
        raise RunbookError(f"`git {' '.join(arguments)}` failed in the practice environment: {error}")
    return process.stdout.decode(errors="replace").rstrip("\n")


class BareRepository:
    """A bare repository, read again for every request: the forge notices a push by its effect."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.texts = lru_cache(maxsize=64)(self._texts)  # a commit never changes

    def git(self, *args: str, env: Mapping[str, str] = ISOLATED) -> str:
        """Return the output of a git command.  Raises RunbookError."""
        return run_git((f"--git-dir={self.path}", *args), env=env)

    def tried(self, *args: str) -> str | None:
        """Return the output of a git command, or None if it fails."""
        try:
            return self.git(*args)
        except RunbookError:
            return None

    def resolve(self, revision: str) -> str | None:
        """Return the commit that a revision names, or None."""
        return self.tried("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")

    def tip(self, branch: str) -> str | None:
        """Return the newest commit of a branch, or None."""
        # Each request asks for it, and a file is read a hundred times as fast as git starts.
        try:
            return (self.path / "refs" / "heads" / branch).read_text().strip()
        except OSError:
            return self.resolve(f"refs/heads/{branch}")

    def merge(self, base: str, head: str) -> str | None:
        """Return the synthetic merge commit of a pull request, or None for a conflict.

        The same two commits always give the same merge commit: its dates are those of the head.
        """
        tree = self.tried("merge-tree", "--write-tree", base, head)
        if tree is None:
            return None
        person = {"NAME": "Practice Forge", "EMAIL": "noreply@practice.invalid", "DATE": self.show(head, "%cI")}
        env = {f"GIT_{role}_{name}": value for role in ("AUTHOR", "COMMITTER") for name, value in person.items()}
        parents = ("-p", base, "-p", head, "-m", f"Merge {head} into {base}")
        return self.git("commit-tree", tree, *parents, env={**ISOLATED, **env})

    def contains(self, branch: str, commit: str) -> bool:
        """Return True if a commit is in the history of a branch."""
        return self.tried("merge-base", "--is-ancestor", commit, branch) is not None

    def show(self, sha: str, form: str) -> str:
        """Return a commit in git's format, such as ``%B``; dates are in UTC, like on GitHub."""
        return self.git("show", "--no-patch", f"--format={form}", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", sha)

    def log(self, base: str, head: str) -> list[str]:
        """Return the commits in the history of the head that are not in that of the base, oldest first."""
        return self.git("rev-list", "--reverse", f"{base}..{head}").split()

    def _texts(self, commit: str, *folders: str) -> Mapping[str, str]:
        """Return path → text of the named files, and of every file below the named folders, at a commit."""
        paths = self.git("ls-tree", "-r", "-z", "--name-only", commit, "--", *folders).split("\0")
        blobs = read_blobs(self.path, [(commit, path) for path in paths if path])
        return {path: blob[1] for (_, path), blob in blobs.items() if blob is not None}
