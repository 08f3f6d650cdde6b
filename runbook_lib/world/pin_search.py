"""The search of a repository for its pins: the files that name images, the places in them, and who moved them."""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from runbook_lib.errors import CannotTell
from runbook_lib.pins import draft
from runbook_lib.pins.find import SEARCHED, Place, Source, distinct_tags, lone_tags, places
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.git.command import GitFailed

_MAX_LENGTH = 2**21  # characters of a file
_MOST_PLACES = 10_000  # of a repository
_MAX_COMMITS = 5000


class Findings(NamedTuple):
    """The pins found at a commit, the ``skipped`` places, and a pins file, whose text is empty if none would move."""

    commit: str
    pins: list[draft.FoundPin]
    skipped: list[Place]
    text: str
    notes: list[str]


def find(checkout: Checkout) -> Findings:
    """Find the pins in the files of HEAD.  Raises RunbookError if it cannot be searched."""
    commit, notes = checkout.resolve("HEAD"), list[str]()
    sources, found = _survey(checkout, commit, notes)
    arrivals = _arrivals(checkout, commit, sources, [place for place in found if not place.skip_reason], notes)
    lockstep = draft.lockstep(arrivals)
    all_pins = [draft.FoundPin(place, place in lockstep, of_place) for place, of_place in arrivals.items()]
    text, pins, left_out = draft.draft(all_pins, sources, f"commit {commit[:10]}")
    return Findings(commit, pins, [*(place for place in found if place.skip_reason), *left_out], text, notes)


def _survey(checkout: Checkout, commit: str, notes: list[str]) -> tuple[dict[str, Source], list[Place]]:
    """Return the files of a commit that may name images, and the places in them; what was not searched is noted."""
    sources = _sources(checkout, commit, SEARCHED, notes)
    found: list[Place] = []
    for source in sources.values():
        found += places(source)
        _require_few(found)
    named, tags = defaultdict[str, list[Place]](list), distinct_tags(found)
    for place in found:
        named[place.path].append(place)
    sources |= _sources(checkout, commit, tags, notes)
    for path, source in sources.items():
        found += lone_tags(source, tags, named[path])
        _require_few(found)
    return sources, sorted(found, key=lambda place: (place.path, place.start))


def _require_few(found: Sequence[Place]) -> None:
    """Raise CannotTell for more places than any repository has."""
    if len(found) > _MOST_PLACES:
        raise CannotTell(f"The repository names images in more than {_MOST_PLACES:,} places: list its pins by hand.")


def _sources(checkout: Checkout, commit: str, texts: Collection[str], notes: list[str]) -> dict[str, Source]:
    """Return the files of a commit with one of these texts."""
    if not texts:
        return {}
    options = ("-l", "-z", "-I", "-F", "--full-name", "--no-color", "--no-recurse-submodules")
    try:
        listed = checkout.git("grep", *options, *(f"-e{text}" for text in texts), commit, "--")
    except GitFailed as error:
        if not error.found:
            raise CannotTell(f"{checkout.path} could not be searched. {error}") from error
        listed = error.found
        notes.append(f"Some files could not be searched: {error.stderr}")
    sources = {}
    for path, text in checkout.read([name.partition(":")[2] for name in listed.split("\0") if name], commit).items():
        if text is not None and len(text) <= _MAX_LENGTH:
            sources[path] = Source(path, text)
        else:
            notes.append(f"{path} is too large, or has an impossible name, and was not searched.")
    return sources


def _arrivals(
    checkout: Checkout, commit: str, sources: Mapping[str, Source], pins: list[Place], notes: list[str]
) -> dict[Place, list[draft.Arrival]]:
    """Return the commits that brought the places their tags, in these files and under their former names."""
    paths = {place.path for place in pins}
    log = ""
    try:
        if checkout.git("rev-parse", "--is-shallow-repository") == "true":
            notes.append("The clone is shallow, so git does not know every bump: run `git fetch --unshallow` first.")
        if paths:
            for old, new in _renames(checkout, commit):
                if new in paths:
                    paths.add(old)
            specs = [f":(top,literal){path}" for path in sorted(paths)]
            log = checkout.git(*draft.LOG, f"--max-count={_MAX_COMMITS}", commit, "--", *specs)
    except GitFailed as error:
        notes.append(f"The history could not be read, so what bumps moved is unknown. {error}")
    return draft.trace(log, sources, pins)


def _renames(checkout: Checkout, commit: str) -> list[tuple[str, str]]:
    """Return the former and the new path of each file that a commit of the history renamed, the newest first."""
    options = ("--first-parent", "-m", "-M", "--diff-filter=R", "--name-status", "-z", "--format=")
    listed = checkout.git("log", *options, f"--max-count={_MAX_COMMITS}", commit, "--")
    return re.findall(r"R[0-9]{1,3}\0([^\0]+)\0([^\0]+)", listed)
