"""The archive's own git repository: commits by a private index, and the verification of what was committed.

Several processes, also on several machines, may commit at once.  Neither a person's settings nor a repository around
the archive changes what is committed.  Verified are the files against the commits, the records against their digests,
and the history against itself and the newest commit that this machine has seen.
"""

import contextlib
import hashlib
import os
import random
import shlex
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from runbook_lib.display import count
from runbook_lib.errors import RunbookError
from runbook_lib.record import run_file
from runbook_lib.record.run_file import CHECKPOINTS, DECISIONS, EXECUTED, INDEX, REPORT, RUN, Identity
from runbook_lib.world.git.command import GitFailed, git
from runbook_lib.world.machine import provenance
from runbook_lib.world.machine.files import is_draft, make_folder, temporary_folder, write

_SETTINGS = {
    "core.attributesFile": os.devnull,
    "core.autocrlf": "false",
    "core.excludesFile": os.devnull,
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.quotePath": "true",
    "core.splitIndex": "false",
    "log.showRoot": "true",
    "log.showSignature": "false",
}
#: The setting of a repository that is an archive: commits are made in no other.
_MARK = "runbook.archive"
#: How often a commit is tried while others commit too.
_ATTEMPTS = 40


@dataclass(frozen=True)
class RecordStore:
    """The repository of the archive in the folder ``root``."""

    root: Path

    @property
    def folder(self) -> Path:
        """The git folder."""
        return self.root / ".git"

    @property
    def exists(self) -> bool:
        """True if the archive has a repository of its own."""
        return self.folder.is_dir()

    def git(self, *arguments: str, stdin: str | None = None, index: Path | None = None, person: str = "") -> str:
        """Run git on this repository alone; ``person`` is the name of one without settings of git."""
        settings = _SETTINGS | ({"user.name": person, "user.email": f"{person}@localhost"} if person else {})
        places = (f"--git-dir={self.folder}", f"--work-tree={self.root}")
        return git(self.root, *places, *arguments, stdin=stdin, settings=settings, index=index)

    def create(self) -> None:
        """Create the archive and its repository unless they exist.

        Raises RunbookError if a folder cannot be written, or is the root of another repository.
        """
        if not self.exists:
            make_folder(self.root)
            with temporary_folder(self.root) as draft:
                if list(self.root.iterdir()) == [draft]:
                    self.root.chmod(0o700)
                git(draft, "init", "--quiet", "--template=", "--", str(draft), settings=_SETTINGS)
                git(draft, "config", _MARK, "true")
                make_folder(draft / ".git/info")
                write(draft / ".git/info/exclude", f"{INDEX}\n")
                try:
                    (draft / ".git").rename(self.folder)
                except OSError:
                    if not self.exists:  # else another process was faster
                        raise
        try:
            self.git("config", "--get", _MARK)
        except GitFailed as error:
            raise RunbookError(
                f"{self.root} is the root of another git repository, so no records were written there.",
                f"Name a folder "
                "of its own with RUNBOOK_AUDIT; if it is the clone of an archive: "
                f"git -C {shlex.quote(str(self.root))} config {_MARK} true",
            ) from error

    def head(self) -> str:
        """Return the newest commit; empty before the first."""
        try:
            return self.git("rev-parse", "--quiet", "--verify", "HEAD^{commit}")
        except GitFailed as error:
            if error.status == 1:
                return ""
            raise

    def commit(self, message: str, files: Iterable[Path]) -> None:
        """Commit the contents that these files have now, beside everything that is committed.

        Does nothing if nothing has changed.  Raises RunbookError; then the next commit of the files completes it.
        """
        self.create()
        paths = [str(file) for file in files]
        blobs = self.git("hash-object", "-w", "--no-filters", "--", *paths).split()
        names = [Path(path).relative_to(self.root).as_posix() for path in paths]
        entries = "".join(f"100644 {blob}\t{name}\0" for blob, name in zip(blobs, names, strict=True))
        for attempt in range(_ATTEMPTS):
            parent = self.head()
            tree = self._tree(parent, entries)
            if parent and tree == self.git("rev-parse", f"{parent}^{{tree}}"):
                return
            new = self._commit_tree(tree, parent, message)
            try:
                self.git("update-ref", "-m", "record", "HEAD", new, parent or "0" * len(new))
            except GitFailed:  # somebody else has committed, or is about to
                if attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(random.uniform(0.01, 0.1))
            else:
                break
        with contextlib.suppress(GitFailed):  # a person's own `git status` shows no difference
            self.git("read-tree", "HEAD")
        self.remember(new)

    def records(self, bump: Path) -> set[str]:
        """Return the names of the committed records of a bump."""
        if not self.head():
            return set()
        listed = self.git("ls-tree", "-z", "--name-only", "HEAD", "--", f"{bump.relative_to(self.root).as_posix()}/")
        return {Path(path).name for path in listed.split("\0") if path}

    def _tree(self, parent: str, entries: str) -> str:
        with temporary_folder(self.folder) as folder:
            index = folder / "index"
            if parent:
                self.git("read-tree", parent, index=index)
            self.git("update-index", "-z", "--index-info", stdin=entries, index=index)
            return self.git("write-tree", index=index)

    def _commit_tree(self, tree: str, parent: str, message: str) -> str:
        signed = self._answer("config", "--type=bool", "--get", "commit.gpgSign") == "true"
        person = "" if self._answer("var", "GIT_COMMITTER_IDENT") else provenance.user()
        options = [*(["-S"] if signed else []), *(["-p", parent] if parent else [])]
        return self.git("commit-tree", *options, tree, stdin=message, person=person)

    def _answer(self, *arguments: str) -> str | None:
        """Return git's answer; None if it has none."""
        try:
            return self.git(*arguments)
        except GitFailed:
            return None

    def contains(self, head: str, commit: str) -> bool:
        """Return True if a commit is ``head`` or in its history."""
        return self._answer("merge-base", "--is-ancestor", commit, head) is not None

    @property
    def seen_file(self) -> Path:
        """The file in the user's state folder with the newest commit that this machine has seen."""
        name = hashlib.sha256(os.fsencode(self.root.resolve())).hexdigest()[:32]
        return platformdirs.user_state_path("base-image-runbook") / "archives" / name

    def seen(self) -> str:
        """Return the newest commit that this machine has seen; empty if none is known."""
        try:
            return self.seen_file.read_text("ascii").strip()
        except (OSError, ValueError):
            return ""

    def remember(self, commit: str) -> None:
        """Note the newest commit, unless it does not contain the one that was seen before."""
        seen = self.seen()
        if not seen or (seen != commit and self.contains(commit, seen)):
            with contextlib.suppress(RunbookError):  # a home that cannot be written is no reason to fail
                make_folder(self.seen_file.parent)
                write(self.seen_file, f"{commit}\n")


@dataclass
class Counts:
    """The numbers of what was verified; ``running`` and ``killed`` runs have no commit yet, which is no problem."""

    records: int = 0
    files: int = 0
    running: int = 0
    killed: int = 0

    def __str__(self) -> str:
        killed = f", {self.killed} killed" if self.killed else ""
        return f"{count(self.records, 'record')}, {count(self.files, 'file')}, {self.running} running{killed}"


def verify(root: Path) -> tuple[list[str], Counts]:
    """Return an archive's problems, as sentences that begin with a file or folder, and what was verified."""
    store, counts = RecordStore(root), Counts()
    problems: list[str] = []
    try:
        head = store.head() if store.exists else ""
        problems += _repository(store, head)
        problems += _files(store, head, counts) if store.exists else ()
    except (RunbookError, OSError) as error:
        problems.append(_problem(root, f"cannot be verified: {error}"))
    if not problems and head:
        store.remember(head)
    return problems, counts


def _problem(path: Path, sentence: str) -> str:
    """Return a problem as one line: a name with line breaks is escaped."""
    name = str(path)
    return f"{name if name.isprintable() else ascii(name)}: {sentence}"


def _repository(store: RecordStore, head: str) -> Iterator[str]:
    """Yield what is wrong with the objects, the history and the signatures."""
    seen = store.seen()
    if seen and not (head and store.contains(head, seen)):
        yield _problem(store.folder, f"does not contain the commit {seen[:12]} any more, which this machine has seen: "
            "commits were removed or rewritten. Restore it from `git reflog` or a copy of the archive; if that was "
            f"you, remove {store.seen_file}.")  # fmt: skip
    if not head:
        return
    try:
        store.git("fsck", "--full", "--no-dangling", "--no-progress")
    except GitFailed as error:
        yield _problem(store.folder, f"is damaged: {error.stderr}")
    form, has_signed = "--format=%x00%H %G?", False
    log = store.git("log", "--reverse", "-m", "--name-status", "--no-renames", "--no-color", form, head)
    for entry in log.split("\0")[1:]:
        title, *lines = entry.split("\n")
        commit, signature = title.split(" ")
        place = store.folder / commit[:12]
        if signature in "BR" or (signature == "N" and has_signed):
            yield _problem(place, "has a bad signature, or none although earlier commits are signed.")
        has_signed |= signature != "N"
        for status, path in (line.split("\t") for line in lines if line):
            if status != "A" and not (status == "M" and _is_free(path)):
                yield _problem(place, f"changed or removed {path}, a part of a record.")


def _is_free(path: str) -> bool:
    """Return True for the index, and for a bump's current decisions with their lock: a person may edit them."""
    folder, _, name = path.removeprefix("practice/").rpartition("/")
    return path == INDEX or (name in (DECISIONS, f".{DECISIONS}.lock") and folder.count("/") == 2)


def _files(store: RecordStore, head: str, counts: Counts) -> Iterator[str]:
    """Yield what is wrong with the files, and the records, of the archive, as git sees them without its own index."""
    options = ("--porcelain", "-z", "--no-renames", "--untracked-files=all", "--ignored")
    with temporary_folder() as folder:
        index = folder / "index"
        store.git("read-tree", *([head] if head else ["--empty"]), index=index)
        committed = filter(None, store.git("ls-files", "-z", index=index).split("\0"))
        changed = store.git("status", *options, index=index)
    states = {entry[3:]: entry[1] for entry in changed.split("\0") if entry}
    states = {path: state for path, state in states.items() if not (_is_free(path) or _is_unrecorded(path))}
    intact = [path for path in committed if path not in states and not _is_free(path)]
    counts.files += len(intact)
    opened = tuple(
        path.removesuffix(RUN) for path, state in states.items() if state in "?!" and path.endswith(f"/{RUN}")
    )
    found: dict[Path, str] = {}
    for path, state in states.items():
        file = store.root / path
        if state == "D":
            found[file if file.parent.is_dir() else file.parent] = "was removed."
        elif state not in "?!":
            found[file] = "was changed after it was committed."
        elif not path.startswith(opened):
            found[file] = "was added."
    for file, sentence in found.items():
        yield _problem(file, sentence)
    for path in opened:
        yield from _record(store.root, store.root / path, counts, is_committed=False)
    for path in intact:
        if path.endswith(f"/{RUN}"):
            yield from _record(store.root, (store.root / path).parent, counts, is_committed=True)


def _is_unrecorded(path: str) -> bool:
    """Return True for Jupyter's copies of opened files, and for drafts."""
    return any(name == CHECKPOINTS or is_draft(name) for name in path.split("/"))


def _record(root: Path, folder: Path, counts: Counts, *, is_committed: bool) -> Iterator[str]:
    """Yield what is wrong with a record, and count it."""
    try:
        run = run_file.read(folder)
    except RunbookError as error:
        yield _problem(folder, str(error) if is_committed else f"was added or damaged: {error}")
        return
    alive = not is_committed and run_file.is_active(run)
    counts.records += is_committed
    counts.running += alive
    counts.killed += not is_committed and not alive
    if alive or ("files" not in run and not is_committed):
        return
    if folder.relative_to(root).parts[:-1] != Identity(**run["bump"]).parts:
        yield _problem(folder, "is the record of another bump.")
    present, sealed = run_file.digests(folder), run.get("files")
    attached = {name: digest for name, digest in present.items() if name in (EXECUTED, REPORT)}  # perhaps later
    if sealed is None or {**attached, **sealed} != present:
        yield _problem(folder, f"has other files than {RUN} names, or with other contents.")
