"""The practice forge's view of a bare git repository: branches, merges, history and files."""

import os
import re
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from runbook_lib.git.blobs import read_blobs

ZERO = "0" * 40
_ID = re.compile("[0-9a-f]{40}")


class GitFailed(Exception):
    """A git command of the forge failed; the forge answers 500 as GitHub would."""


@dataclass(frozen=True)
class Commit:
    """One commit; the dates are ISO 8601 with a zone, as git prints them."""

    sha: str
    tree: str
    parents: tuple[str, ...]
    author: str
    author_email: str
    authored: str
    committer: str
    committer_email: str
    committed: str
    message: str


@dataclass(frozen=True)
class Change:
    """One file of a diff; ``additions`` and ``deletions`` are 0 for a binary file."""

    path: str
    status: str
    blob: str
    additions: int
    deletions: int


class Bare:
    """A bare repository, read anew for every question: a push is known by its effect."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # A commit never changes, so these are asked once.
        self.commit = lru_cache(maxsize=4096)(self._commit)
        self.changes = lru_cache(maxsize=256)(self._changes)
        self.compare = lru_cache(maxsize=256)(self._compare)
        self.log = lru_cache(maxsize=256)(self._log)
        self._tips: tuple[list[tuple[str, bytes]] | None, dict[str, str]] = (None, {})
        self._texts_of = lru_cache(maxsize=256)(self._texts)

    def git(self, *args: str, stdin: str = "", env: dict[str, str] | None = None) -> str:
        """Standard output of a git command; GitFailed when it fails."""
        done = self._run(args, stdin.encode(), env)
        if done.returncode:
            raise GitFailed(f"git {args[0]}: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout.decode(errors="replace")

    def _run(
        self, args: tuple[str, ...], stdin: bytes = b"", env: dict[str, str] | None = None
    ) -> "subprocess.CompletedProcess[bytes]":
        # Neither the caller's repository nor its configuration has a say here.
        clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        clean |= {
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_TERMINAL_PROMPT": "0",
        }
        return subprocess.run(
            ["git", f"--git-dir={self.path}", *args],
            input=stdin,
            env=clean | (env or {}),
            capture_output=True,
            check=False,
        )

    def tips(self, *branches: str) -> dict[str, str]:
        """Branch → commit, of the branches named, or of all."""
        return {name: sha for name, sha in self._all_tips().items() if not branches or name in branches}

    def _all_tips(self) -> dict[str, str]:
        # Asked with every request, and seldom changed: git is asked again when the files differ that it would read.
        written = self._refs_as_written()
        if written != self._tips[0]:
            lines = self.git("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads").splitlines()
            found = {name: sha for sha, name in (line.split(" refs/heads/", 1) for line in lines)}
            if written != self._refs_as_written():  # a push in between
                return found
            self._tips = written, found
        return self._tips[1]

    def _refs_as_written(self) -> list[tuple[str, bytes]]:
        """The files that hold refs, whichever of its two formats git has chosen, with their contents."""
        loose = [os.path.join(folder, name) for folder, _, names in os.walk(self.path / "refs") for name in names]
        found = []
        for file in [f"{self.path}/packed-refs", f"{self.path}/reftable/tables.list", *loose]:
            with suppress(FileNotFoundError), open(file, "rb") as opened:
                found.append((file, opened.read()))
        return found

    def resolve(self, revision: str) -> str | None:
        """The commit that a revision names, or None."""
        done = self._run(("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"))
        return done.stdout.decode().strip() or None

    def object_of(self, ref: str) -> tuple[str, str] | None:
        """Type and id of what a full ref points at."""
        line = self.git("for-each-ref", "--format=%(objecttype) %(objectname) %(refname)", ref).splitlines()
        for kind, sha, name in (each.split(" ", 2) for each in line):
            if name == ref:
                return kind, sha
        return None

    def point(self, ref: str, sha: str | None) -> None:
        """Make, move or (with None) remove a ref."""
        self.git("update-ref", *([ref, sha] if sha else ["-d", ref]))

    def bring(self, other: "Bare", sha: str) -> None:
        """Have a commit of a fork here too."""
        if other.path != self.path and self.resolve(sha) is None:
            self.git("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", str(other.path), sha)

    def merge(self, base: str, head: str) -> str | None:
        """The synthetic merge commit of a pull request, or None for a conflict.

        The same two commits always give the same merge commit: its dates are the head's.
        """
        tree = self._run(("merge-tree", "--write-tree", base, head))
        if tree.returncode:
            return None
        date = self.commit(head).committed
        who = {
            f"GIT_{role}_{part}": value
            for role in ("AUTHOR", "COMMITTER")
            for part, value in (("NAME", "Practice Forge"), ("EMAIL", "noreply@practice.invalid"), ("DATE", date))
        }
        written = tree.stdout.decode().splitlines()[0]
        args = ("commit-tree", written, "-p", base, "-p", head, "-m", f"Merge {head} into {base}")
        return self.git(*args, env=who).strip()

    def _compare(self, base: str, head: str) -> tuple[int, int, str]:
        """How many commits one is ahead of another and behind it, and the merge base (empty without one)."""
        behind, ahead = self.git("rev-list", "--left-right", "--count", f"{base}...{head}").split()
        return int(ahead), int(behind), self._run(("merge-base", base, head)).stdout.decode().strip()

    def contains(self, branch: str, commit: str) -> bool:
        return self._run(("merge-base", "--is-ancestor", commit, branch)).returncode == 0

    def _commit(self, sha: str) -> Commit:
        """One commit by its full id."""
        form = "%x00".join(("%H", "%T", "%P", "%an", "%ae", "%aI", "%cn", "%ce", "%cI", "%B"))
        full, tree, parents, *who, message = self.git("show", "--no-patch", f"--format={form}", sha).split("\0")
        author, author_email, authored, committer, committer_email, committed = who
        return Commit(
            full, tree, tuple(parents.split()), author, author_email, authored,
            committer, committer_email, committed, message.rstrip("\n"),
        )  # fmt: skip

    def _log(self, base: str, head: str) -> tuple[str, ...]:
        """The commits that led to one and not to the other, oldest first."""
        return tuple(self.git("rev-list", "--reverse", f"{base}..{head}").split())

    def history(self, tip: str, path: str = "") -> list[str]:
        """The commits that led to this one, newest first; with a path those that changed it or what is below it."""
        return self.git("--literal-pathspecs", "log", "--format=%H", tip, "--", *([path] if path else [])).split()

    def _changes(self, base: str, head: str) -> tuple[Change, ...]:
        """The files that differ between two commits."""
        statuses = {"A": "added", "D": "removed", "M": "modified", "T": "changed"}
        raw = iter(self.git("diff-tree", "-r", "-z", "--raw", "--numstat", "--no-renames", base, head).split("\0"))
        blobs: dict[str, tuple[str, str]] = {}
        found: list[Change] = []
        for entry in raw:
            if entry.startswith(":"):
                _, _, old, new, letter = entry.split(" ")
                blobs[next(raw)] = (statuses[letter[0]], new if new != ZERO else old)
            elif entry:
                added, removed, path = entry.split("\t")
                found.append(Change(path, *blobs[path], *(0 if n == "-" else int(n) for n in (added, removed))))
        return tuple(found)

    def texts(self, commit: str, *folders: str) -> dict[str, str]:
        """Path → text of every file below the folders (or of the files named) at a commit."""
        return dict((self._texts_of if _ID.fullmatch(commit) else self._texts)(commit, *folders))

    def _texts(self, commit: str, *folders: str) -> dict[str, str]:
        paths = self.git("ls-tree", "-r", "-z", "--name-only", commit, "--", *folders).split("\0")
        found = read_blobs(self.path, [(commit, path) for path in paths if path])
        return {path: blob[1] for (_, path), blob in found.items() if blob is not None}
