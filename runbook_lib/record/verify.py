"""Verification of an archive: its files against its commits, its digests, and its history against itself."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runbook_lib.display import count
from runbook_lib.errors import RunbookError
from runbook_lib.record import run_file
from runbook_lib.record.run_file import CHECKPOINTS, DECISIONS, EXECUTED, INDEX, REPORT, RUN, Identity
from runbook_lib.record.store import RecordStore
from runbook_lib.world.git.command import GitFailed
from runbook_lib.world.machine.files import is_draft, temporary_folder


@dataclass
class Counts:
    """What was verified; ``running`` and ``killed`` runs have no commit yet, which is no problem."""

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
    added = present.keys() - (sealed or {}).keys()  # a notebook may be attached later
    if {name: digest for name, digest in present.items() if name not in added} != sealed or added - {EXECUTED, REPORT}:
        yield _problem(folder, f"has other files than {RUN} names, or with other contents.")
