"""The agreement of all pins, in the work tree or on any number of refs, for ``runbook check`` and step 07."""

import itertools
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import get_args

from runbook_lib import display
from runbook_lib.errors import CannotTell
from runbook_lib.images.reference import ImageType, Tag
from runbook_lib.pins.check import Agreement, PinVerdict, check_pins, outcome
from runbook_lib.pins.repositories import FILE, MEGATRON_LM, Repository
from runbook_lib.pins.sites import Texts
from runbook_lib.text.edits import Edit
from runbook_lib.text.lists import aligned
from runbook_lib.world.git import blobs
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.machine.clock import now

#: The role whose pins only cause warnings when they differ.
WARNED = "informational"


@dataclass(frozen=True)
class Snapshot:
    """The verdicts for one state of the files.

    ``name`` is a ref as people write it, or ``work tree``, which has no ``commit``.  A ref that matched a pattern but
    has no known pin site has no verdicts, and cannot be judged.  ``overdue`` are sentences about quarantined tests that
    a person should have looked at again.
    """

    name: str
    commit: str | None
    verdicts: tuple[PinVerdict, ...]
    overdue: tuple[str, ...]


@dataclass(frozen=True)
class Survey:
    """The verdicts for the requested states of a repository."""

    repository: Path
    snapshots: tuple[Snapshot, ...]
    strict: bool
    notes: tuple[str, ...]

    @property
    def outcome(self) -> Agreement:
        """The overall outcome: any pin out of sync decides, then any that could not be read."""
        return max(map(self._outcome, self.snapshots), key=get_args(Agreement).index)

    def _outcome(self, snapshot: Snapshot) -> Agreement:
        if not snapshot.verdicts:
            return "cannot tell"
        return "out of sync" if snapshot.overdue else outcome(snapshot.verdicts, strict=self.strict)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The problems, in complete sentences, each with its ref if there are several.

        Warnings are included for a single ref; for several refs they are in the table.
        """
        sentences = []
        for snapshot in self.snapshots:
            ref = f"{snapshot.name}: " if len(self.snapshots) > 1 else ""
            told = [pin.sentence for pin in snapshot.verdicts if pin.role != WARNED or self.strict or not ref]
            sentences += [f"{ref}{sentence}" for sentence in (*told, *snapshot.overdue) if sentence]
            if not snapshot.verdicts:
                sentences.append(f"{snapshot.name} has no known pin site. Leave it out: --ref '^{snapshot.name}'")
        return tuple(sentences)

    def rows(self) -> list[dict[str, str]]:
        """Return a table for people: the ref if there are several, site, kind of pin, image and verdict."""
        rows = []
        for snapshot in self.snapshots:
            ref = {"ref": snapshot.name} if len(self.snapshots) > 1 else {}
            for verdict in snapshot.verdicts:
                pin = {"site": verdict.site, "pin": verdict.role, "image": verdict.image or "–"}
                rows.append(ref | pin | {"verdict": verdict.state})
        return rows

    def as_text(self, *, details: bool) -> str:
        """Return the table, the problems in complete sentences, and the outcome as the last line.

        Without ``details``, for pins that are in sync, only what limits the answer precedes the outcome.
        """
        lines = [*self.notes, self.summary]
        if details:
            rows, told = self.rows(), (*self.notes, *self.sentences)
            table = aligned([list(rows[0]), *(list(row.values()) for row in rows)])
            lines = [*table, "", *told, *([""] if told else []), self.summary]
        return _printable("\n".join(lines))

    @property
    def summary(self) -> str:
        """The outcome in one line."""
        verdicts = [verdict for snapshot in self.snapshots for verdict in snapshot.verdicts]
        states = [verdict.state for verdict in verdicts if verdict.role != WARNED and verdict.state != "frozen"]
        warnings = sum(verdict.role == WARNED and verdict.state != "in sync" for verdict in verdicts)
        parts = [f"{states.count('in sync')} of {len(states)} pins agree"]
        if unjudged := sum(not snapshot.verdicts for snapshot in self.snapshots):
            parts.append(f"{unjudged} of {len(self.snapshots)} refs cannot be judged")
        if unreadable := states.count("cannot tell"):
            parts.append(f"{unreadable} cannot be read")
        if warnings:
            meaning = "counted: strict" if self.strict else "not counted"
            parts.append(f"{display.count(warnings, 'informational place')} not in sync ({meaning})")
        if overdue := sum(len(snapshot.overdue) for snapshot in self.snapshots):
            parts.append(f"{display.count(overdue, 'quarantine')} past its review date")
        return f"{self.outcome.capitalize()}: {', '.join(parts)}."

    def as_json(self) -> dict[str, object]:
        """Return the survey for machines.  Fields may be added; a change of meaning gets a new ``version``.

        ``ref`` is ``work tree`` (with the commit null) or the ref's name; a ref without known pin sites has no
        ``pins``.  ``line`` is 0 and ``image`` empty where no pin could be read.
        """
        refs = []
        for snapshot in self.snapshots:
            pins = display.rows(
                snapshot.verdicts, path="path", line="line", selector="selector", image="image", role="role",
                verdict="state", detail="sentence",
            )  # fmt: skip
            ref = {"ref": snapshot.name, "commit": snapshot.commit, "outcome": self._outcome(snapshot), "pins": pins}
            refs.append(ref | {"overdue": list(snapshot.overdue)})
        return {
            "version": 1,
            "repository": str(self.repository),
            "strict": self.strict,
            "outcome": self.outcome,
            "notes": list(self.notes),
            "refs": refs,
        }


def _printable(text: str) -> str:
    """Return a text in which no value from a repository controls the terminal."""
    return "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)


def survey(
    checkout: Checkout,
    refs: Sequence[str] = (),
    *,
    repository: Repository,
    strict: bool = False,
    expected: Tag | None = None,
    image_type: ImageType = "dev",
    edits: Sequence[Edit] = (),
    of_bump: bool = False,
) -> Survey:
    """Check a clone: its work tree, or each of ``refs``, without checking anything out.

    A ref may be a pattern with ``*``, ``?`` or ``[…]`` for local branches (``core_r*``) or remote-tracking ones
    (``origin/core_r*``).  ``^`` before a name or pattern excludes its matches from the other patterns' matches.
    ``expected`` is the tag that the pins of ``image_type`` should have; without it they are compared with the newest of
    them.  ``edits`` are planned edits: the files are judged as they will be.
    ``of_bump``: the lockstep pins of other types, which such a bump does not move, are left out.  ``strict``: pins that
    only inform decide too, and quarantines past their review date.
    Raises CannotTell for a ref or pattern that matches nothing, and for a repository without a known pin site.
    """
    sites, notes = repository.sites, list[str]()
    if not refs and checkout.bare:
        refs = ("HEAD",)
        notes.append(f"{checkout.path} is a bare repository, so its HEAD was checked.")
    states: Sequence[tuple[str, str | None, bool]] = [("work tree", None, False)]
    if refs:
        resolved = _resolve(checkout.path, refs, notes)
        states, contents = resolved, _texts_at(checkout, [commit for _, commit, _ in resolved], sites.pin_paths)
    else:
        contents = {None: checkout.read(sites.pin_paths)}
    snapshots = []
    planned = {edit.path: edit.after for edit in edits}
    for name, commit, globbed in states:
        texts = {**contents[commit], **planned}
        verdicts: tuple[PinVerdict, ...] = ()
        if sites.matches(texts):
            moved = (WARNED, "frozen", f"lockstep {image_type}")
            found = check_pins(texts, sites, expected, image_type)
            verdicts = tuple(verdict for verdict in found if not of_bump or verdict.role in moved)
        elif not globbed:
            raise CannotTell(" ".join([_unknown(checkout.path, name, repository), *notes]))
        snapshots.append(Snapshot(name, commit, verdicts, _overdue(checkout, commit) if strict else ()))
    if not any(snapshot.verdicts for snapshot in snapshots):
        raise CannotTell(_unknown(checkout.path, ", ".join(refs), repository))
    return Survey(checkout.path, tuple(snapshots), strict, tuple(notes))


def _texts_at(checkout: Checkout, commits: Iterable[str], paths: Sequence[str]) -> dict[str | None, Texts]:
    """Return the texts of the files in each commit, by path: all of them are read together."""
    texts: dict[str | None, dict[str, str | None]] = {}
    contents = blobs.read_files(checkout.path, itertools.product(commits, paths))
    for (commit, path), text in contents.items():
        texts.setdefault(commit, {})[path] = text
    return dict(texts)


def _overdue(checkout: Checkout, commit: str | None) -> tuple[str, ...]:
    """Return sentences about the quarantines of a commit, or of the work tree, whose review date is past."""
    from runbook_lib.text.recipes import quarantine  # only a strict check asks

    found = checkout.git("grep", "-n", "-F", "-e", quarantine.REVIEW, *([commit] if commit else ()), "--", ":/tests")
    lines = (line.removeprefix(f"{commit}:") for line in found.split("\n"))
    return tuple(filter(None, (quarantine.overdue(line, f"{now():%Y-%m-%d}") for line in lines)))


def _unknown(place: Path, name: str, repository: Repository) -> str:
    problem = (
        f"No known pin site was found in {place} ({name}): none of {', '.join(repository.sites.marker_paths)} exists."
    )
    if repository is MEGATRON_LM:
        return (
            f"{problem} Give the path of a Megatron-LM clone, and a ref from 2025-03 or later; or name another known "
            "repository, for example with `--pins megatron-bridge`; or declare the pins of any other one in its file "
            f"{FILE}, which `runbook pins find --write {place}` drafts."
        )
    return f"{problem} These are the pins of {repository.origin or repository.name}: give a ref with them, or set pins."


def _resolve(place: Path, refs: Sequence[str], notes: list[str]) -> list[tuple[str, str, bool]]:
    """Return the name, the commit and whether it matched a pattern, for each ref once, in the order of ``refs``."""
    names: dict[str, tuple[str, bool]] = {}  # ref -> (name to show, matched a pattern)
    excluded = [ref.removeprefix("^") for ref in refs if ref.startswith("^")]
    refs = [ref for ref in refs if not ref.startswith("^")]
    patterns = [ref for ref in refs if set(ref) & set("*?[")]
    known = blobs.branches(place) if patterns else []
    for ref in refs:
        if ref in patterns:
            for full in _matching(ref, known):
                name = full.split("/", 2)[2]
                if not any(fnmatchcase(name, pattern) for pattern in excluded):
                    names.setdefault(full, (name, True))
        else:
            full, note = blobs.branch_first(place, ref)
            notes += [note] if note else []
            names[full] = (names.get(full, (ref,))[0], False)
    if not names:
        raise CannotTell("The refs exclude every branch.", "Name one to check.")
    commits = blobs.commits(place, names)
    resolved: dict[tuple[str, str], bool] = {}
    for full, (name, globbed) in names.items():
        if (commit := commits[full]) is None:
            raise _missing(place, name)
        resolved[name, commit] = globbed and resolved.get((name, commit), True)
    return [(name, commit, globbed) for (name, commit), globbed in resolved.items()]


def _matching(pattern: str, known: Sequence[str]) -> list[str]:
    omitted = 0 if pattern.startswith("refs/") else 2  # refs/heads
    if matched := [full for full in known if fnmatchcase(full.split("/", omitted)[-1], pattern)]:
        return matched
    raise CannotTell(
        f"No local or remote-tracking branch matches {pattern!r}.",
        "Fetch first, or correct the pattern; remote-tracking branches are written as origin/core_r*.",
    )


def _missing(place: Path, ref: str) -> CannotTell:
    hints = [full.split("/", 2)[2] for full in blobs.branches(place) if full.endswith(f"/{ref}")]
    if ref in hints:
        fix = f"Fetch it, for example with: git -C {shlex.quote(str(place))} fetch --refetch"
        return CannotTell(f"The commit of branch {ref!r} is missing in {place}.", fix)
    hint = f"Did you mean {' or '.join(hints[:3])}?" if ref and hints else "Fetch it first, or correct the name."
    return CannotTell(f"{ref!r} is not a commit in {place}.", hint)
