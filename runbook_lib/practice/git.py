"""The practice forge's view of a bare git repository: branches, merges, history and files."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from runbook_lib.git.blobs import read_blobs

#: The variables that disable the user's configuration.
ISOLATED = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
# The other GIT_ variables may refer to another repository, like inside a hook.
_CONFIGURATION = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH")


def run_git(
    arguments: Sequence[str], stdin: bytes = b"", env: Mapping[str, str] = ISOLATED
) -> "subprocess.CompletedProcess[bytes]":
    """Run git outside any repository in the environment; ``env`` is added to the environment."""
    variables = {"LC_ALL": "C", "TZ": "UTC", "GIT_TERMINAL_PROMPT": "0", **env}
    for name, value in os.environ.items():
        if not name.startswith("GIT_") or name in _CONFIGURATION:
            variables.setdefault(name, value)
    return subprocess.run(["git", *arguments], input=stdin, env=variables, capture_output=True, check=False)


class BareRepository:
    """A bare repository, read again for every request: the forge notices a push by its effect."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.texts = lru_cache(maxsize=64)(self._texts)  # a commit never changes

    def git(self, *args: str, env: Mapping[str, str] = ISOLATED) -> str:
        """Return the standard output of a git command.  Raises CalledProcessError if it fails."""
        process = self._run(args, env)
        process.check_returncode()
        return process.stdout.decode(errors="replace")

    def _run(self, args: tuple[str, ...], env: Mapping[str, str] = ISOLATED) -> "subprocess.CompletedProcess[bytes]":
        return run_git((f"--git-dir={self.path}", *args), env=env)

    def tips(self) -> dict[str, str]:
        """Return branch → commit."""
        lines = self.git("for-each-ref", "--format=%(objectname) %(refname:lstrip=2)", "refs/heads").splitlines()
        return {line[41:]: line[:40] for line in lines}

    def resolve(self, revision: str) -> str | None:
        """Return the commit that a revision names, or None."""
        process = self._run(("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"))
        return process.stdout.decode().strip() or None

    def set_ref(self, ref: str, sha: str | None) -> None:
        """Create, move or (with None) delete a ref."""
        self.git("update-ref", *([ref, sha] if sha else ["-d", ref]))

    def fetch(self, fork: "BareRepository", sha: str) -> None:
        """Fetch a commit from a fork, unless it exists here."""
        if fork.path != self.path and self.resolve(sha) is None:
            self.git("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", str(fork.path), sha)

    def merge(self, base: str, head: str) -> str | None:
        """Return the synthetic merge commit of a pull request, or None for a conflict.

        The same two commits always give the same merge commit: its dates are those of the head.
        """
        tree = self._run(("merge-tree", "--write-tree", base, head))
        if tree.returncode:
            return None
        person = {"NAME": "Practice Forge", "EMAIL": "noreply@practice.invalid", "DATE": self.show(head, "%cI")}
        env = dict(ISOLATED)
        for name, value in person.items():
            env |= {f"GIT_AUTHOR_{name}": value, f"GIT_COMMITTER_{name}": value}
        parents = ("-p", base, "-p", head, "-m", f"Merge {head} into {base}")
        return self.git("commit-tree", tree.stdout.decode().split()[0], *parents, env=env).strip()

    def compare(self, base: str, head: str) -> tuple[int, int, str]:
        """Return the numbers of commits ahead and behind of the base, and the merge base (empty without one)."""
        behind, ahead = self.git("rev-list", "--left-right", "--count", f"{base}...{head}").split()
        return int(ahead), int(behind), self._run(("merge-base", base, head)).stdout.decode().strip()

    def contains(self, branch: str, commit: str) -> bool:
        """Return True if a commit is in the history of a branch."""
        return self._run(("merge-base", "--is-ancestor", commit, branch)).returncode == 0

    def show(self, sha: str, form: str) -> str:
        """Return a commit in git's format, such as ``%B``; dates are in UTC, like on GitHub."""
        date = "--date=format-local:%Y-%m-%dT%H:%M:%SZ"
        return self.git("show", "--no-patch", f"--format={form}", date, sha).rstrip("\n")

    def log(self, base: str, head: str) -> list[str]:
        """Return the commits in the history of the head that are not in that of the base, oldest first."""
        return self.git("rev-list", "--reverse", f"{base}..{head}").split()

    def history(self, tip: str, path: str) -> list[str]:
        """Return the history of a commit, newest first; with a path only the commits that changed it."""
        return self.git("--literal-pathspecs", "log", "--format=%H", tip, "--", *filter(None, [path])).split()

    def changes(self, base: str, head: str) -> tuple[str, ...]:
        """Return the paths of the files that differ between two commits."""
        listed = self.git("diff-tree", "-r", "-z", "--name-only", "--no-renames", base, head)
        return tuple(filter(None, listed.split("\0")))

    def patch(self, base: str, head: str, path: str) -> str:
        """Return the hunks of the difference of a file between two commits."""
        text = self.git("diff-tree", "-p", "--no-renames", base, head, "--", path)
        return text[text.find("\n@@") + 1 :] if "\n@@" in text else ""

    def _texts(self, commit: str, *folders: str) -> Mapping[str, str]:
        """Return path → text of the named files, and of every file below the named folders, at a commit."""
        paths = self.git("ls-tree", "-r", "-z", "--name-only", commit, "--", *folders).split("\0")
        blobs = read_blobs(self.path, [(commit, path) for path in paths if path])
        return {path: blob[1] for (_, path), blob in blobs.items() if blob is not None}
