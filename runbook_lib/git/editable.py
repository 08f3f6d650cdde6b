"""States of a checkout in which committed files cannot be edited, and the command that ends each state."""

import json
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from string import ascii_lowercase

from runbook_lib.errors import CannotTell, Refused
from runbook_lib.git.checkout import Checkout

#: Files and folders of git's own that mark an unfinished operation, with the command that aborts it.
_OPERATIONS = {
    "MERGE_HEAD": "merge", "rebase-merge": "rebase", "rebase-apply": "rebase", "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
}  # fmt: skip


def require(checkout: Checkout, paths: Sequence[str]) -> None:
    """Raise Refused if one of the files cannot be edited."""
    if sentences := list(problems(checkout, paths)):
        raise Refused(" ".join(sentences))


def problems(checkout: Checkout, paths: Sequence[str]) -> Iterator[str]:
    """Yield a sentence with a command for each state that prevents these files from being edited and committed."""
    if checkout.bare or not paths:
        return
    yield from _unfinished(checkout)
    yield from _hidden(checkout, paths)
    yield from _converted(checkout, paths)
    for folder in sorted({(checkout.path / path).parent for path in paths}):
        if not folder.is_dir() or os.access(folder, os.W_OK):
            continue
        if os.statvfs(folder).f_flag & os.ST_RDONLY:
            yield f"{folder} is on a read-only file system. Mount it writable, or use another checkout."
        else:
            yield f"You may not write to {folder}. Change that: chmod u+w {shlex.quote(str(folder))}"


def _unfinished(checkout: Checkout) -> Iterator[str]:
    git_dir = Path(checkout.git("rev-parse", "--absolute-git-dir"))
    lock = git_dir / "index.lock"
    if lock.exists():
        yield (
            f"{lock} exists: git is running in this checkout, or was killed. When no git runs there, remove it: "
            f"rm {shlex.quote(str(lock))}"
        )
    operation, _ = unfinished_operation(checkout)
    if operation:
        yield (
            f"A {operation} is not finished in {checkout.path}. Finish it, or abandon it: "
            f"{_git(checkout, operation, '--abort')}"
        )


def unfinished_operation(checkout: Checkout) -> tuple[str, Path]:
    """Return git's word for the unfinished operation, and the file or folder that shows it; empty if there is none."""
    git_dir = Path(checkout.git("rev-parse", "--absolute-git-dir"))
    for name, operation in _OPERATIONS.items():
        if (git_dir / name).exists():
            return operation, git_dir / name
    return "", git_dir


def _hidden(checkout: Checkout, paths: Sequence[str]) -> Iterator[str]:
    """Yield the problems of files whose state in the work tree git ignores."""
    listed = checkout.git("ls-files", "-v", "-z", "--", *_literal(paths)).split("\0")
    marks = {entry[2:]: entry[0] for entry in listed if entry}

    def marked(letters: str) -> list[str]:
        return [path for path, mark in marks.items() if mark in letters]

    unmerged, skipped, assumed = marked("M"), marked("Ss"), marked(ascii_lowercase)
    if unmerged:
        ours = _git(checkout, "checkout", "--ours", "--", *unmerged)
        yield f"{', '.join(unmerged)} is not merged. Take one side: {ours}"
    sparse = checkout.git("config", "--default=false", "--type=bool", "--get", "core.sparseCheckout") == "true"
    if skipped and sparse:
        folders = sorted({path.rpartition("/")[0] or "/" for path in skipped})
        yield (
            f"{', '.join(skipped)} is left out of the sparse checkout {checkout.path}. Add it: "
            f"{_git(checkout, 'sparse-checkout', 'add', *folders)}"
        )
        skipped = []
    for files, mark in ((skipped, "skip-worktree"), (assumed, "assume-unchanged")):
        if files:
            unmark = _git(checkout, "update-index", f"--no-{mark}", "--", *files)
            yield f"{', '.join(files)} is marked {mark}, so git does not see edits. Remove the mark: {unmark}"


def _converted(checkout: Checkout, paths: Sequence[str]) -> Iterator[str]:
    """Yield the problems of files that git reports as unchanged although their bytes differ from the commit's.

    The reasons are line endings (core.autocrlf, eol), encodings (working-tree-encoding), filters such as LFS, and $Id$.
    """
    try:
        here, committed = checkout.read(paths), checkout.read(paths, "HEAD")
    except CannotTell as error:
        yield str(error)
        return
    changed = set(checkout.uncommitted(_literal(paths)))
    different = [
        path
        for path in paths
        if path not in changed and None not in (here[path], committed[path]) and here[path] != committed[path]
    ]
    if different:
        attributes = checkout.git("rev-parse", "--path-format=absolute", "--git-path", "info/attributes")
        lines = [
            f"{json.dumps(f'/{path}', ensure_ascii=False)} -text -ident -filter !working-tree-encoding"
            for path in different
        ]
        files = shlex.join(str(checkout.path / path) for path in different)
        yield (
            f"git converts {', '.join(different)} when it is checked out (core.autocrlf, or an attribute such as eol, "
            "working-tree-encoding or filter), so its text here differs from the commit's. Turn that off for it: "
            f"printf '%s\\n' {shlex.join(lines)} >> {shlex.quote(attributes)} && rm -- {files} && "
            f"{_git(checkout, 'restore', '--', *different)}"
        )


def _literal(paths: Sequence[str]) -> list[str]:
    return [f":(literal,top){path}" for path in paths]


def _git(checkout: Checkout, *words: str) -> str:
    return shlex.join(["git", "-C", str(checkout.path), *words])
