"""How well the files that ``pins find`` drafts would have made the bumps that people made: precision and recall.

    environment/run python tests/bench/measure_pins.py CLONE …

A bump is a commit that moves an image to one newer tag, not in documents alone.  The file is drafted from its parent,
history included, and the bump planned with it; lines are compared with those that the commit moved, except lines that
it removed.  Planned lines that people moved to the same tag in another commit are counted apart, too: a bump in several
commits.  So are those of documents that people left behind, which are wrong, but harm nobody.
"""

import argparse
import sys
from collections import defaultdict
from dataclasses import dataclass

from runbook_lib.cli.pins import find, survey
from runbook_lib.errors import RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.images.families import family_of, is_older
from runbook_lib.images.reference import ImageRef, ImageType
from runbook_lib.pins import moves, pins_file
from runbook_lib.pins.find import Place
from runbook_lib.pins.moves import Track
from runbook_lib.pins.plan import plan
from runbook_lib.text.lists import shorten

_DIGEST = "sha256:" + 64 * "0"  # stands for that of the registry: the lines are compared, not their text
_ALLOWED = frozenset({"other-edition"})
Line = tuple[str, int]


@dataclass(frozen=True)
class BumpOfPeople:
    """A commit that moved lines, which are those of its parent, to a tag of an image; ``removed``: those it removed."""

    commit: str
    image: str
    image_type: ImageType
    tag: str
    lines: frozenset[Line]
    removed: frozenset[Line]


#: The commits that brought a tag to a file, by file, image and tag.
Brought = defaultdict[tuple[str, str, str], set[str]]


def bumps(checkout: Checkout, newest: int) -> tuple[list[BumpOfPeople], Brought]:
    """Return the newest bumps, the oldest first, and the commits that brought each file its tags.

    The history is read at HEAD, and before each bump, since files may have been removed by it or later.
    """
    brought = Brought(set)
    times: dict[str, int] = {}
    found: dict[str, list[BumpOfPeople]] = {}
    refs = ["HEAD"]
    while refs:
        for pin in find(checkout, refs.pop()).pins:
            for arrival in (arrival for arrival in pin.arrivals if arrival.replaced):
                brought[pin.place.path, pin.place.image, arrival.tag].add(arrival.commit)
                times[arrival.commit] = arrival.time
        for commit in sorted(times, key=lambda commit: -times[commit])[: 2 * newest]:
            if commit not in found:
                found[commit] = _bumps_of(checkout, commit)
                refs += [f"{commit}^"] if found[commit] else []
    ordered = sorted(found, key=lambda commit: times[commit])
    return [bump for commit in ordered for bump in found[commit]][-newest:], brought


def _bumps_of(checkout: Checkout, commit: str) -> list[BumpOfPeople]:
    """Return the bumps of a commit: the newest tag of each image, if it is newer and not in documents alone."""
    sources, places = survey(checkout, commit, [])
    log = checkout.git(*moves.LOG, "--max-count=1", commit)
    ((_, _, files),) = moves.commits(log)
    lines: defaultdict[tuple[str, ImageType, str], set[Line]] = defaultdict(set)
    removed = set[Line]()
    for old_path, path, hunks in files:
        removed |= {(old_path, hunk.old + number) for hunk in hunks for number in range(len(hunk.removed))}
        for place in (place for place in places if place.path == path and not place.skip_reason):
            track = Track.of(place, sources[path])
            if track.step_back(hunks) and _is_newer(place, track.tag):
                lines[place.image, place.image_type, place.tag].add((old_path, track.line))
    return [
        BumpOfPeople(commit, *key, frozenset(moved), frozenset(removed - moved))
        for key, moved in lines.items()
        if not all(moves.DOCUMENT.search(path) for path, _ in moved)
    ]


def _is_newer(place: Place, former: str) -> bool:
    family = family_of(ImageRef.parse(place.image))
    try:
        return family is not None and is_older(family.read(former), family.read(place.tag))
    except RunbookError:
        return False


def planned(checkout: Checkout, bump: BumpOfPeople) -> frozenset[Line]:
    """Return the lines that a bump with the file drafted from the parent would change."""
    commit = checkout.resolve(f"{bump.commit}^")
    try:
        repository = pins_file.parse(find(checkout, commit).text, "x/y")
        image = next(image for image in repository.sites.images if image.name == bump.image)
        sites = repository.sites.only(image)
        made = plan(
            checkout.read(sites.paths, commit), sites, image.family.read(bump.tag), bump.image_type,
            allow=_ALLOWED, digest_of_target=lambda: _DIGEST,
        )  # fmt: skip
    except StopIteration:
        return frozenset()
    except RunbookError as error:
        print(f"    {bump.commit[:10]}: {shorten(str(error), 200)}")
        return frozenset()
    return frozenset((change.path, change.line) for change in made.changes)


@dataclass
class Sums:
    """The sums over all bumps.

    ``apart``: planned lines of files that another commit moved to the tag; ``documents``: wrong ones in documents.
    """

    count: int = 0
    wanted: int = 0
    planned: int = 0
    hits: int = 0
    exact: int = 0
    apart: int = 0
    documents: int = 0

    def add(self, bump: BumpOfPeople, lines: frozenset[Line], brought: Brought) -> None:
        """Add a bump with its planned lines."""
        self.count += 1
        self.wanted += len(bump.lines)
        self.planned += len(lines)
        self.hits += len(lines & bump.lines)
        self.exact += lines == bump.lines
        for path, _ in lines - bump.lines:
            self.apart += bool(brought[path, bump.image, bump.tag] - {bump.commit})
            self.documents += bool(moves.DOCUMENT.search(path))

    def __str__(self) -> str:
        made = max(self.planned, 1)
        return (
            f"{self.count} bumps: precision {self.hits / made:.0%} ({(self.hits + self.apart) / made:.0%} with what "
            f"another commit moved; {self.documents} of {self.planned - self.hits} wrong lines are in documents), "
            f"recall {self.hits / max(self.wanted, 1):.0%}, exact {self.exact}"
        )


def main() -> int:
    """Print each bump, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("clones", nargs="+")
    parser.add_argument("--newest", type=int, default=12, help="bumps of each clone (default: 12)")
    options = parser.parse_args()
    total = Sums()
    for clone in options.clones:
        checkout, of_clone = Checkout.open(clone), Sums()
        name = checkout.path.parent.name if checkout.path.name in (".git", "repo") else checkout.path.name
        newest, brought = bumps(checkout, options.newest)
        for bump in newest:
            lines = planned(checkout, bump) - bump.removed
            numbers = f"{len(lines & bump.lines)} of {len(lines)} planned, of {len(bump.lines)} moved"
            print(f"{name} {bump.commit[:10]} {bump.tag}: {numbers}")
            for sign, rest in (("+", lines - bump.lines), ("-", bump.lines - lines)):
                for path, line in sorted(rest):
                    print(f"    {sign} {path}:{line}")
            for sums in (of_clone, total):
                sums.add(bump, lines, brought)
        print(f"{name}: {of_clone}", flush=True)
    if not total.count:
        sys.exit("There is no bump in these clones.")
    print(total)
    return 0


if __name__ == "__main__":
    sys.exit(main())
