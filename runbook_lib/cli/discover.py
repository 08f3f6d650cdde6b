"""``runbook pins discover``: every reference in a repository to an image of a known family.

git finds the files, so untracked ones are not searched; the package ``pins.discover`` classifies each reference.
"""

import argparse
import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from runbook_lib.cli.evidence import naming_lines, with_history
from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.git import blobs
from runbook_lib.git.checkout import Checkout
from runbook_lib.git.command import GitFailed
from runbook_lib.git.settings import refuse_fetching
from runbook_lib.pins.discover.references import SEARCHED
from runbook_lib.pins.discover.roles import ClassifiedReference, as_known, discover, shown, times
from runbook_lib.text.lists import join_first

if TYPE_CHECKING:
    from runbook_lib.pins.discover.draft import PinsFileDraft

FILE = ".base-image-pins.yaml"  # also defined in ``repositories``, which is slow to load
_ROLES = ("lockstep dev", "lockstep lts", "follow", "informational", "frozen", "ignore")
_HEADS = ("call it", "place", "seems to be", "why", "image")
#: Number of characters that are searched for a NUL; like git, one NUL makes a file binary.
_SNIFFED = 8000
_UNREADABLE = re.compile(r"(?m)^error: '([^'\n]*)': unable to read [0-9a-f]+$")
_MAX_LISTED = 5  # files in one sentence


@dataclass(frozen=True)
class Discovery:
    """The references in a repository's work tree or commit, the most important first, and a draft of the pins file.

    ``known`` is the name of the repository if its pins are built in.
    """

    repository: Path
    state: str
    commit: str | None
    references: tuple[ClassifiedReference, ...]
    draft: "PinsFileDraft"
    notes: tuple[str, ...]
    known: str = ""
    unreadable: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The result in one line."""
        if not self.references:
            return f"No reference to an image of a known family was found in {self.repository} ({self.state})."
        counts = Counter(reference.full_role for reference in self.references)
        roles = ", ".join(f"{counts[role]} {role}" for role in _ROLES if role in counts)
        paths = {reference.path for reference in self.references}
        total = f"{times(len(self.references), 'reference')} in {times(len(paths), 'file')}"
        gap = f" {times(len(self.unreadable), 'file')} could not be read." if self.unreadable else ""
        return f"{total} ({self.state}): {roles}.{gap}"

    def as_text(self) -> str:
        """Return a table, the notes, and the summary as the last line."""
        lines: list[str] = []
        if self.references:
            table = [_HEADS, *(tuple(map(shown, _columns(reference))) for reference in self.references)]
            widths = [min(max(map(len, column)), 100) for column in zip(*table, strict=True)]
            lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
            lines.append("")
        return "\n".join([*lines, *map(shown, self.notes), shown(self.summary)])

    def as_json(self) -> dict[str, object]:
        """Return the result as JSON.  Fields may be added; a changed meaning gets a new ``format``."""
        return {
            "format": 1,
            "repository": str(self.repository),
            "ref": self.state,
            "commit": self.commit,
            "notes": list(self.notes),
            "unreadable": list(self.unreadable),
            "references": [_as_json(classified) for classified in self.references],
            "draft": self.draft.text,
            "chosen": list(self.draft.chosen),
        }


def _columns(classified: ClassifiedReference) -> tuple[str, ...]:
    reference, nature = classified.reference, classified.nature
    image = str(reference)
    if reference.variable and not reference.tag:
        image += ":…"
    place = f"{classified.path}:{reference.line}"
    return classified.full_role, place, nature.kind, _why(classified), image


def _why(classified: ClassifiedReference) -> str:
    return "; ".join(filter(None, (classified.nature.why, classified.reason, classified.history)))


def _as_json(classified: ClassifiedReference) -> dict[str, object]:
    reference, nature = classified.reference, classified.nature
    return {
        "path": classified.path,
        "line": reference.line,
        "column": reference.column + 1,
        "image": reference.image,
        "tag": reference.tag,
        "digest": reference.digest,
        "family": reference.family.name,
        "kind": nature.kind,
        "role": classified.full_role,
        "why": _why(classified),
        "history": classified.history,
    }


def survey(repository: str | Path, ref: str = "", *, history: bool = True, pin_digests: bool = False) -> Discovery:
    """Find the references in the tracked files of a clone's work tree, or of a commit without checking it out.

    HEAD is searched if nothing is checked out.  With ``history``, past bumps count as evidence too; with
    ``pin_digests``, the draft requires digests.  Raises RunbookError if the repository or the ref does not exist, or a
    file in the work tree cannot be read; files of a commit whose objects are missing are listed as unreadable.
    """
    checkout = Checkout.open(repository)
    refuse_fetching(checkout.path)
    notes = list[str]()
    if not ref and (checkout.bare or _is_not_checked_out(checkout)):
        ref = "HEAD"
        notes.append(f"{checkout.path} has no work tree, or an empty one, so HEAD was searched instead.")
    commit = None
    if ref:
        full, note = blobs.branch_first(checkout.path, ref)
        commit = checkout.resolve(full)
        notes += [note] if note else []
    search = _Search(checkout, commit)
    from runbook_lib.pins.discover.draft import draft  # loading this takes as long as git's search

    if not ref and checkout.git("config", "--default=false", "--type=bool", "--get", "core.sparseCheckout") == "true":
        notes.append("The work tree is sparse, so files outside it were not searched. --ref HEAD searches all files.")
    texts: dict[str, str] = {}
    paths, unreadable = search.result()
    if unreadable:
        listed = join_first(unreadable, _MAX_LISTED)
        notes.append(f"{listed} could not be read, so references in them are unknown. Fetch the missing objects.")
    for path, text in _read(checkout, paths, commit).items():
        if "\0" in text[:_SNIFFED]:
            notes.append(f"{path} contains the name of an image, but is a binary file and was not searched.")
        else:
            texts[path] = text

    def classify(texts: Mapping[str, str], bare: Mapping[str, str]) -> tuple[ClassifiedReference, ...]:
        return discover(texts.items(), lambda names: naming_lines(checkout, commit, names), bare)

    references = classify(texts, {})
    if history and references and checkout.has("HEAD"):
        references = with_history(checkout, commit, references, texts, classify, notes)
    known, references = _as_known(checkout, commit, references)
    if known:
        notes.append(f"The pins of {known} are built in. A pins file of your own would replace them.")
    most_first = tuple(sorted(references, key=lambda reference: _ROLES.index(reference.full_role)))
    draft_of_all = draft(references, texts, pin_digests=pin_digests)
    return Discovery(
        checkout.path, ref or "work tree", commit, most_first, draft_of_all, tuple(notes), known, unreadable
    )


def _as_known(
    checkout: Checkout, commit: str | None, references: tuple[ClassifiedReference, ...]
) -> tuple[str, tuple[ClassifiedReference, ...]]:
    """Return the repository's name, empty if it is not a known one, and the references with the roles of its pins."""
    from runbook_lib.workflow import repository as known_repositories  # not needed before git has searched

    if not references or checkout.read([FILE], commit)[FILE] is not None:
        return "", references
    repository = known_repositories.recognize(checkout, [commit])
    if repository is None:
        return "", references
    texts = checkout.read(repository.sites.pin_paths, commit)
    renamed = as_known(references, texts, repository.sites, repository.name)
    for new, old in zip(renamed, references, strict=True):
        if new is not old and new.role == "lockstep":
            return repository.name, renamed
    return "", references  # a file has a known name, but none of the known pins


def _is_not_checked_out(checkout: Checkout) -> bool:
    """Return True for a commit without an index, as ``git clone --no-checkout`` leaves it."""
    folder = checkout.path / ".git"
    return folder.is_dir() and not (folder / "index").exists() and checkout.has("HEAD")


class _Search(Thread):
    """git's search, running in parallel with the work of this process."""

    def __init__(self, checkout: Checkout, commit: str | None) -> None:
        super().__init__(daemon=True)
        self._checkout, self._commit = checkout, commit
        self._result: tuple[list[str], tuple[str, ...]] | RunbookError = [], ()
        self.start()

    def run(self) -> None:
        try:
            self._result = _search(self._checkout, self._commit)
        except RunbookError as error:
            self._result = error

    def result(self) -> tuple[list[str], tuple[str, ...]]:
        """Wait for the search, and return the matching and the unreadable paths, or raise the search's error."""
        self.join()
        if isinstance(self._result, RunbookError):
            raise self._result
        return self._result


def _search(checkout: Checkout, commit: str | None) -> tuple[list[str], tuple[str, ...]]:
    """Return the tracked files that contain the name of an image, and those whose objects are missing."""
    options = ["-l", "-z", "--fixed-strings", "--full-name", "--no-recurse-submodules", "--no-color"]
    for name in SEARCHED:
        options += ["-e", name]
    if commit:
        options.append(commit)
    prefix, unreadable = f"{commit}:" if commit else "", tuple[str, ...]()
    try:
        listed = checkout.git("grep", *options, "--")
    except GitFailed as error:
        listed, errors = error.printed
        unreadable = tuple(dict.fromkeys(_UNREADABLE.findall(errors)))
        if error.stderr != "nothing." and not unreadable:
            raise CannotTell(f"{checkout.path} could not be searched. {error}") from error
    paths = [name.removeprefix(prefix) for name in listed.split("\0") if name]
    return paths, tuple(name.removeprefix(prefix) for name in unreadable)


def _read(checkout: Checkout, paths: Sequence[str], commit: str | None) -> Mapping[str, str]:
    try:
        texts = checkout.read(paths, commit)
    except OSError as error:
        raise CannotTell(f"{error.filename} could not be read ({error.strerror}). Fix this and run again.") from error
    # git's batch protocol cannot request such a name.
    for path in [path for path in paths if commit and "\n" in path]:
        texts[path] = checkout.git("cat-file", "blob", f"{commit}:{path}")
    return {path: text for path, text in texts.items() if text is not None}


def _write(discovery: Discovery, *, replace_known: bool) -> Path:
    """Write the draft into the work tree.  Raises Refused if the file exists.

    For a repository whose pins are built in, ``replace_known`` is required.
    """
    if discovery.commit:
        raise Refused(
            f"--write needs a draft from the work tree, but {discovery.state} was searched. Run it without --ref, in a "
            "clone that has a work tree."
        )
    if discovery.known and not replace_known and not os.path.lexists(discovery.repository / FILE):
        raise Refused(
            f"{discovery.repository / FILE} was not written: the pins of {discovery.known} are built in, and the file "
            "would replace all of them. Leave out --write to show the draft, or add --replace-known to write it."
        )
    return write_draft(discovery.repository, discovery.draft)


def write_draft(repository: Path, draft: "PinsFileDraft") -> Path:
    """Write a draft into a work tree and return its path.  Raises Refused if there is none, or the file exists."""
    from runbook_lib.system import atomic_files

    target = repository / FILE
    exists = Refused(f"{target} exists and is never overwritten. To compare, show the draft: leave out --write.")
    if os.path.lexists(target):
        raise exists
    if not draft.text:
        raise Refused(f"{target} was not written. {' '.join(draft.chosen)}")
    if not atomic_files.create(target, draft.text):
        raise exists  # created since
    return target


def command(options: argparse.Namespace) -> int:
    """Print the references and the draft; return 0 if there are references, 1 if there are none."""
    discovery = survey(options.repo, options.ref, history=not options.no_history, pin_digests=options.pin_digests)
    written = None
    if options.write and discovery.references:
        written = _write(discovery, replace_known=options.replace_known)
    if options.json:
        print(json.dumps(discovery.as_json() | {"written": written and str(written)}, indent=2))
    else:
        print(discovery.as_text())
        if discovery.references:
            left_out = [f"Left out: {entry}" for entry in discovery.draft.left_out]
            print("", *discovery.draft.chosen, *left_out, sep="\n")
            if written:
                print(f"Written to {shown(str(written))}. Read every entry, then run `runbook check`.")
            elif discovery.draft.text:
                print(f"Draft of {FILE} (--write writes it):\n\n{discovery.draft.text}", end="")
    if discovery.unreadable:
        return 2
    return 0 if discovery.references else 1
