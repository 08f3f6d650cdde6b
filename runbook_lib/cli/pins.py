"""``runbook pins find``: the pins of a repository, and a pins file with them."""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import NamedTuple

import click

from runbook_lib.cli.command import Answer, command
from runbook_lib.errors import CannotTell, Refused
from runbook_lib.pins import moves
from runbook_lib.pins.draft import FoundPin, draft
from runbook_lib.pins.find import SEARCHED, Place, Source, distinct_tags, lone_tags, places
from runbook_lib.pins.repositories import FILE
from runbook_lib.world import repository as repositories
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.git.command import GitFailed
from runbook_lib.world.machine import files

_MAX_LENGTH = 2**21  # characters of a file
MOST_PLACES = 10_000  # of a repository
_MAX_COMMITS = 5000


class Findings(NamedTuple):
    """The pins found at a commit, the ``skipped`` places, and a pins file, whose text is empty if none would move."""

    commit: str
    pins: list[FoundPin]
    skipped: list[Place]
    text: str
    notes: list[str]


def find(checkout: Checkout, ref: str = "HEAD") -> Findings:
    """Find the pins in the files of a commit.  Raises RunbookError if it cannot be searched."""
    commit, notes = checkout.resolve(ref), list[str]()
    sources, found = survey(checkout, commit, notes)
    arrivals = _arrivals(checkout, commit, sources, [place for place in found if not place.skip_reason], notes)
    lockstep = moves.lockstep(arrivals)
    all_pins = [FoundPin(place, place in lockstep, of_place) for place, of_place in arrivals.items()]
    text, pins, left_out = draft(all_pins, sources, f"commit {commit[:10]}")
    return Findings(commit, pins, [*(place for place in found if place.skip_reason), *left_out], text, notes)


def survey(checkout: Checkout, commit: str, notes: list[str]) -> tuple[dict[str, Source], list[Place]]:
    """Return the files of a commit that may name images, and the places in them; what was not searched is noted."""
    sources = _sources(checkout, commit, SEARCHED, notes)
    named, count = dict[str, list[Place]](), 0
    for path, source in sources.items():
        named[path] = places(source)
        count = _counted(count, named[path])
    tags = distinct_tags(place for of_file in named.values() for place in of_file)
    sources = _sources(checkout, commit, tags, notes) | sources
    found: list[Place] = []
    for path, source in sorted(sources.items()):
        of_file = named.get(path, [])
        found += sorted([*of_file, *lone_tags(source, tags, of_file)], key=lambda place: place.start)
        _counted(0, found)
    return sources, found


def _counted(count: int, places: Sequence[Place]) -> int:
    """Return the number of places so far.  Raises CannotTell for more than any repository has."""
    if count + len(places) > MOST_PLACES:
        raise CannotTell(f"The repository names images in more than {MOST_PLACES:,} places: list its pins by hand.")
    return count + len(places)


def _sources(checkout: Checkout, commit: str, texts: Collection[str], notes: list[str]) -> dict[str, Source]:
    """Return the files of a commit with one of these texts."""
    options = [part for text in texts for part in ("-e", text)]
    try:
        forms = ("-l", "-z", "-I", "-F", "--full-name", "--no-color", "--no-recurse-submodules")
        listed = checkout.git("grep", *forms, *options, commit, "--") if options else ""
    except GitFailed as error:
        listed, is_complete = error.found, error.stderr == "nothing."
        if not listed and not is_complete:
            raise CannotTell(f"{checkout.path} could not be searched. {error}") from error
        notes += [] if is_complete else [f"Some files could not be searched: {error.stderr}"]
    sources = {}
    for path, text in checkout.read([name.partition(":")[2] for name in listed.split("\0") if name], commit).items():
        if text is not None and len(text) <= _MAX_LENGTH:
            sources[path] = Source(path, text)
        else:
            notes.append(f"{path} is too large, or has an impossible name, and was not searched.")
    return sources


def _arrivals(
    checkout: Checkout, commit: str, sources: Mapping[str, Source], pins: list[Place], notes: list[str]
) -> dict[Place, list[moves.Arrival]]:
    """Return the commits that brought the places their tags, in these files and under their former names."""
    paths = former = {place.path for place in pins}
    log = ""
    try:
        if checkout.git("rev-parse", "--is-shallow-repository") == "true":
            notes.append("The clone is shallow, so git does not know every bump: run `git fetch --unshallow` first.")
        for _ in range(5):  # renames of a file, one after the other
            if former:
                specs = [f":(top,literal){path}" for path in sorted(paths)]
                log = checkout.git(*moves.LOG, f"--max-count={_MAX_COMMITS}", commit, "--", *specs)
                former = _former_paths(checkout, log, paths) - paths
                paths = paths | former
    except GitFailed as error:
        notes.append(f"The history could not be read, so what bumps moved is unknown. {error}")
    return moves.trace(log, sources, pins)


def _former_paths(checkout: Checkout, log: str, paths: set[str]) -> set[str]:
    """Return the paths from which commits of the log renamed files that they seem to add."""
    added = [name for name, _, changed in moves.commits(log) if any(file.old_path == "/dev/null" for file in changed)]
    options = ("--no-walk", "--first-parent", "-m", "-M", "--diff-filter=R", "--name-status", "-z", "--format=")
    listed = checkout.git("log", *options, *added) if added else ""
    return {old for old, new in re.findall(r"R[0-9]{1,3}\0([^\0]+)\0([^\0]+)", listed) if new in paths}


def _write(findings: Findings, checkout: Checkout) -> str:
    """Write the pins file into the work tree, and return its path.  Raises Refused if it cannot be written."""
    target = checkout.path / FILE
    known = repositories.recognize(checkout)
    problem = ""
    if checkout.bare:
        problem = "the clone is bare. Give one with a work tree."
    elif not findings.text:
        problem = "no pin was found that a bump would move."
    elif os.path.lexists(target):
        problem = "it exists and is never overwritten. Move it away first."
    elif known:
        problem = f"the pins of {known.name} are built in. To replace all of them, save the file that is shown."
    if problem:
        raise Refused(f"{target} was not written: {problem}")
    files.write(target, findings.text)
    return str(target)


@click.group()
def pins() -> None:
    """Find the pins of a repository."""


@command("pins find --write ~/my-repository", pins)
@click.argument("repo", default=".")
@click.option("--write", is_flag=True, help="Write the file to .base-image-pins.yaml if that does not exist.")
def find_pins(repo: str, write: bool) -> Answer:
    """Find the places in the files of HEAD that name an image of a known family, and draft a pins file.

    What one of the last two bumps of an image changed is lockstep, other places are informational.  REPO is a clone,
    possibly bare (default: the current one).  Exit status: 0 found, 1 none found, 2 cannot tell, or the file could not
    be written.
    """
    checkout = Checkout.open(repo)
    findings = find(checkout)
    written = _write(findings, checkout) if write else None
    found = [{"role": pin.role, "history": pin.history, **asdict(pin.place)} for pin in findings.pins]
    skipped = [{"role": "skipped", "history": "", **asdict(place)} for place in findings.skipped]
    lines = [
        "{role:<13}  {path}:{line} {image}:{tag} ({history}{skip_reason})".format(**row) for row in (*found, *skipped)
    ]
    lockstep = sum(pin.lockstep for pin in findings.pins)
    numbers = f"{lockstep} lockstep, {len(found) - lockstep} informational, {len(skipped)} skipped"
    lines += ["", *findings.notes, f"Commit {findings.commit[:10]}: {numbers}."]
    if written:
        lines.append(f"Written to {written}. Read every entry, then run `runbook check`.")
    lines = [line.replace("\n", "\\n") for line in lines]  # a name may hold a line feed
    if findings.text and not written:
        lines.append(f"--write writes {FILE}:\n\n{findings.text.rstrip()}")
    document = {**findings._asdict(), "pins": found, "skipped": skipped, "written": written}
    return Answer(0 if found else 1, document, lines)
