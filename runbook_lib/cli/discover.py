"""``runbook pins discover``: every reference of a repository to an image of a known family.

git finds the files, so untracked ones are not searched; the package ``pins.discover`` classifies each reference.
"""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.git.command import GitFailed
from runbook_lib.git.settings import refuse_fetching
from runbook_lib.pins.discover.references import SEARCHED
from runbook_lib.pins.discover.roles import ClassifiedReference, as_known, discover, shown, times

if TYPE_CHECKING:
    from runbook_lib.pins.discover.draft import PinsFileDraft

FILE = ".base-image-pins.yaml"  # ``repositories`` names it too, and takes long to load
_ROLES = ("lockstep dev", "lockstep lts", "informational", "frozen", "ignore")
_HEADS = ("call it", "place", "seems to be", "why", "image")
# git tells a binary file from a text by this, too.
_SNIFFED = 8000


@dataclass(frozen=True)
class Discovery:
    """The references in a work tree or a commit of a repository, and the draft made of them."""

    repository: Path
    state: str
    commit: str | None
    found: tuple[ClassifiedReference, ...]
    draft: "PinsFileDraft"
    notes: tuple[str, ...]
    #: The name of the repository, if its pins are known without a file.
    known: str = ""

    @property
    def sorted(self) -> list[ClassifiedReference]:
        """The references, those that matter most first."""
        return sorted(self.found, key=lambda one: _ROLES.index(one.full_role))

    @property
    def summary(self) -> str:
        """The answer in a line."""
        if not self.found:
            return f"No reference to an image of a known family was found in {self.repository} ({self.state})."
        told = [f"{count} {role}" for role in _ROLES if (count := sum(one.full_role == role for one in self.found))]
        paths = len({one.path for one in self.found})
        counted = f"{times(len(self.found), 'reference')} in {times(paths, 'file')}"
        return f"{counted} ({self.state}): {', '.join(told)}."

    def as_text(self) -> str:
        """A table, what must be known beside it, and the answer as the last line."""
        rows = [
            (
                one.full_role,
                f"{one.path}:{one.reference.line}",
                one.nature.kind,
                f"{one.nature.why}; {one.reason}",
                _image(one),
            )
            for one in self.sorted
        ]
        table = [tuple(map(shown, row)) for row in (_HEADS, *rows)] if rows else []
        widths = [min(max(map(len, column)), 100) for column in zip(*table, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
        return "\n".join([*lines, *([""] if lines else []), *map(shown, self.notes), shown(self.summary)])

    def as_json(self) -> dict[str, object]:
        """The same for machines.  Fields may be added; a changed meaning is a new ``format``."""
        return {
            "format": 1,
            "repository": str(self.repository),
            "ref": self.state,
            "commit": self.commit,
            "notes": list(self.notes),
            "references": [
                {
                    "path": one.path,
                    "line": one.reference.line,
                    "column": one.reference.column + 1,
                    "image": one.reference.image,
                    "tag": one.reference.tag,
                    "digest": one.reference.digest,
                    "family": one.reference.family.name,
                    "kind": one.nature.kind,
                    "role": one.full_role,
                    "why": f"{one.nature.why}; {one.reason}",
                }
                for one in self.sorted
            ],
            "draft": self.draft.text,
            "chosen": list(self.draft.chosen),
        }


def survey(place: str | Path, ref: str = "") -> Discovery:
    """Find the references in the tracked files of the clone at ``place``, or of a commit without checking it out.

    A bare repository has no work tree, and a clone may have none checked out, so HEAD is searched.  Raises RunbookError
    where there is no repository, no
    such ref, or a file that cannot be read.
    """
    checkout = Checkout.open(place)
    refuse_fetching(checkout.path)
    notes = []
    if not ref and checkout.bare:
        ref = "HEAD"
        notes.append(f"{checkout.path} is a bare repository, so its HEAD was searched.")
    elif not ref and _is_not_checked_out(checkout):
        ref = "HEAD"
        notes.append(f"Nothing is checked out in {checkout.path}, so its HEAD was searched.")
    commit = checkout.resolve(ref) if ref else None
    search = _Search(checkout, commit)
    search.start()
    from runbook_lib.pins.discover.draft import draft  # it takes as long to load as git takes to search

    if not ref and checkout.git("config", "--default=false", "--type=bool", "--get", "core.sparseCheckout") == "true":
        notes.append("The work tree is sparse, so files outside of it were not searched. --ref HEAD searches all.")
    texts: dict[str, str] = {}
    for path, text in _read(checkout, search.paths(), commit).items():
        if "\0" in text[:_SNIFFED]:
            notes.append(f"{path} is a binary file that holds the name of an image; it was not looked into.")
        else:
            texts[path] = text
    found = discover(texts.items())
    known, found = _as_known(checkout, commit, found)
    if known:
        notes.append(
            f"{known} is known already: its pins are built in, and a pins file of your own would replace them."
        )
    return Discovery(checkout.path, ref or "work tree", commit, found, draft(found, texts), tuple(notes), known)


def _as_known(
    checkout: Checkout, commit: str | None, found: tuple[ClassifiedReference, ...]
) -> tuple[str, tuple[ClassifiedReference, ...]]:
    """The repository's name and what was found as its known pins are called; no name where there are none."""
    from runbook_lib.workflow import repository as recognized  # not needed before git has searched

    if not found or checkout.read([FILE], commit)[FILE] is not None:
        return "", found
    repository = recognized.recognize(checkout, [commit])
    if repository is None:
        return "", found
    texts = checkout.read(repository.sites.pin_paths, commit)
    called = as_known(found, texts, repository.sites, repository.name)
    pinned = any(new is not old and new.role == "lockstep" for new, old in zip(called, found, strict=True))
    return (repository.name, called) if pinned else ("", found)  # a file of the same name makes nobody known


def _is_not_checked_out(checkout: Checkout) -> bool:
    """Return True for a commit without an index, as ``git clone --no-checkout`` leaves it."""
    folder = checkout.path / ".git"
    return folder.is_dir() and not (folder / "index").exists() and checkout.has("HEAD")


class _Search(Thread):
    """git's search for the files, while this process does something else."""

    def __init__(self, checkout: Checkout, commit: str | None) -> None:
        super().__init__(daemon=True)
        self._asked = checkout, commit
        self._result: list[str] | RunbookError = []

    def run(self) -> None:
        try:
            self._result = _holding(*self._asked)
        except RunbookError as error:
            self._result = error

    def paths(self) -> list[str]:
        """Wait for the search and return its paths.  Raises CannotTell for a repository that cannot be searched."""
        self.join()
        if isinstance(self._result, RunbookError):
            raise self._result
        return self._result


def _holding(checkout: Checkout, commit: str | None) -> list[str]:
    """The tracked files that hold the name of an image."""
    names = [part for path in SEARCHED for part in ("-e", path)]
    options = ("-l", "-z", "--fixed-strings", "--full-name", "--no-recurse-submodules", "--no-color")
    try:
        listed = checkout.git("grep", *options, *names, *([commit] if commit else []), "--")
    except GitFailed as error:
        if error.stderr != "nothing.":
            raise CannotTell(f"{checkout.path} could not be searched. {error}") from error
        return []  # git's way to say that nothing was found
    prefix = f"{commit}:" if commit else ""
    return [name.removeprefix(prefix) for name in listed.split("\0") if name]


def _read(checkout: Checkout, paths: Sequence[str], commit: str | None) -> Mapping[str, str]:
    try:
        texts = checkout.read(paths, commit)
    except OSError as error:
        raise CannotTell(f"{error.filename} could not be read ({error.strerror}). Mend that and run again.") from error
    # The protocol by which git gives many files at once has no way to ask for such a name.
    for path in [path for path in paths if commit and "\n" in path]:
        texts[path] = checkout.git("cat-file", "blob", f"{commit}:{path}")
    return {path: text for path, text in texts.items() if text is not None}


def _image(one: ClassifiedReference) -> str:
    return f"{one.reference}{':…' if one.reference.variable and not one.reference.tag else ''}"


def _write(discovery: Discovery, *, replace_known: bool) -> Path:
    """Write the draft into the work tree.  Raises Refused where there is something that must not be overwritten.

    Nor is it written over what is known without a file, unless ``replace_known``.
    """
    target = discovery.repository / FILE
    if discovery.commit:
        raise Refused(
            f"--write drafts from the work tree, and {discovery.state} was searched. Leave --ref out, in a clone that "
            "has a work tree."
        )
    there = Refused(f"{target} exists, and is never overwritten. Without --write the draft is shown, to compare.")
    if os.path.lexists(target):
        raise there
    if not discovery.draft.text:
        raise Refused(f"{target} was not written. {' '.join(discovery.draft.chosen)}")
    if discovery.known and not replace_known:
        raise Refused(
            f"{target} was not written: the pins of {discovery.known} are built in, and the file would replace all of "
            "them. Without --write the draft is shown; --replace-known writes it."
        )
    from runbook_lib.system import atomic_files

    if not atomic_files.create(target, discovery.draft.text):
        raise there  # made since
    return target


def command(options: argparse.Namespace) -> int:
    """``runbook pins discover``: 0 when references were found, 1 when there are none."""
    discovery = survey(options.repo, options.ref)
    written = _write(discovery, replace_known=options.replace_known) if options.write and discovery.found else None
    if options.json:
        print(json.dumps(discovery.as_json() | {"written": written and str(written)}, indent=2))
    else:
        print(discovery.as_text())
        if discovery.found:
            print("", *discovery.draft.chosen, *(f"Left out: {it}" for it in discovery.draft.left_out), sep="\n")
            if written:
                print(f"Written to {shown(str(written))}. Read every entry, then run `runbook check`.")
            elif discovery.draft.text:
                print(f"The draft of {FILE} (--write writes it):\n\n{discovery.draft.text}", end="")
    return 0 if discovery.found else 1
