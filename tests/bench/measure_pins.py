"""How well drafted pins files would have made the bumps that people made: precision, recall, exact ones.

    environment/run python tests/bench/measure_pins.py CLONE …

A bump is a commit that moves references to one newer tag, some of them read by CI or a build.  The pins
file is drafted from its parent alone, history included, and the bump planned with it; lines are compared with those
that the commit moved.  Planned lines that people moved to the same tag in another commit are counted apart, too: a
bump in several commits.  So are those of documents that people left behind, which are wrong, but harm nobody.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from runbook_lib.pins.discover.classify import SourceFile
from runbook_lib.pins.discover.places import ReferencePlace, places, successors
from runbook_lib.pins.discover.references import Reference

from runbook_lib.cli import discover
from runbook_lib.errors import RunbookError
from runbook_lib.git.blobs import read_objects
from runbook_lib.git.checkout import Checkout
from runbook_lib.git.file_versions import file_versions
from runbook_lib.images.families import is_older
from runbook_lib.images.reference import Tag
from runbook_lib.pins import pins_file
from runbook_lib.pins.plan import plan
from runbook_lib.pins.repositories import Repository
from runbook_lib.text.lists import shorten

_COMMITS, _BYTES = 5000, 2**21
_DIGEST = "sha256:" + 64 * "0"  # stands for that of the registry: the lines are compared, not their text
Line = tuple[str, int]


@dataclass(frozen=True)
class Bump:
    """A commit of people, with the lines that it moved to the tag."""

    commit: str
    images: frozenset[str]
    tag: str
    lines: frozenset[Line]


Moves = defaultdict[ReferencePlace, set[str]]


def bumps(checkout: Checkout, newest: int) -> tuple[list[Bump], Moves]:
    """Return the newest bumps along the first parents of HEAD, the oldest first, and the tags each place moved to."""
    paths = interesting(checkout, "HEAD")
    for bump in list(_bumps(checkout, paths, Moves(set)))[-newest:]:
        paths |= interesting(checkout, f"{bump.commit}^")  # files that were renamed or removed since
    moves = Moves(set)
    return list(_bumps(checkout, paths, moves))[-newest:], moves


def _bumps(checkout: Checkout, paths: set[str], moves: Moves) -> Iterator[Bump]:
    before: dict[str, str] = {}
    for commit, versions in file_versions(checkout, "HEAD", sorted(paths), _COMMITS):
        contents = read_objects(checkout.path, [blob for _, blob in versions if blob], _BYTES)
        texts = {path: contents.get(blob, b"").decode("utf-8", "surrogateescape") for path, blob in versions}
        old: dict[ReferencePlace, Reference] = {}
        new: dict[ReferencePlace, Reference] = {}
        for path, text in texts.items():
            old |= places(path, before.get(path, ""))
            new |= places(path, text)
        former = successors(old, new)
        moved: defaultdict[tuple[str, str], set[Line]] = defaultdict(set)
        newest: dict[str, Tag] = {}  # of several tags in one commit, as rows of a matrix have them
        for place, reference in new.items():
            origin = former.get(place, place)
            past, tag = old.get(origin), reference.read_tag
            if past is None or past.read_tag is None or tag is None or not is_older(past.read_tag, tag):
                continue
            if before[origin.path][past.start : past.end] == texts[place.path][reference.start : reference.end]:
                continue  # another variable of the tag was changed
            moved[reference.image, reference.tag].add((origin.path, past.line))
            moves[origin].add(reference.tag)
            nature = SourceFile(place.path, texts[place.path]).nature(reference)
            if nature.kind in ("documentation", "comment", "record", "test") or nature.for_people:
                continue
            if place.image not in newest or is_older(newest[place.image], tag):
                newest[place.image] = tag
        before |= texts
        for name in sorted(set(map(str, newest.values()))):
            images = frozenset(image for image, other in newest.items() if str(other) == name)
            lines = frozenset[Line]().union(*(moved[image, name] for image in images))
            yield Bump(commit, images, name, lines)


def interesting(checkout: Checkout, ref: str) -> set[str]:
    """Return the files that name an image at a commit."""
    return {reference.path for reference in discover.survey(checkout.path, ref, history=False).references}


def planned(checkout: Checkout, bump: Bump) -> tuple[frozenset[Line], frozenset[Line]]:
    """Return the lines that a bump with the drafted file of the parent would move: without a group, and with groups.

    With groups: the bump names for each image the group that fits the commit best, as a person does who wants that
    bump.
    """
    found = discover.survey(checkout.path, f"{bump.commit}^")
    try:
        repository = pins_file.parse(found.draft.text, "x/y")
    except RunbookError as error:
        print(f"    {bump.commit[:10]}: {shorten(str(error), 200)}")
        return frozenset(), frozenset()
    by_image: defaultdict[str, list[frozenset[Line]]] = defaultdict(list)
    for group in repository.sites.groups:
        if group.image in bump.images:
            by_image[group.image].append(_lines(checkout, bump, found.commit, repository, group.name))
    best = [max(lines, key=lambda lines: 2 * len(lines & bump.lines) - len(lines)) for lines in by_image.values()]
    return _lines(checkout, bump, found.commit, repository, ""), frozenset[Line]().union(*best)


def _lines(checkout: Checkout, bump: Bump, commit: str | None, repository: Repository, group: str) -> frozenset[Line]:
    try:
        sites = repository.of_group(group, bump.tag).sites
        texts = checkout.read(sites.paths, commit)
        target = sites.groups[0].target(bump.tag)
        changes = plan(texts, sites, target, "dev", digest_of_target=lambda _: _DIGEST).changes
    except RunbookError as error:
        print(f"    {bump.commit[:10]} {group}: {shorten(str(error), 200)}")
        return frozenset()
    return frozenset((change.path, change.line) for change in changes)


def explained(checkout: Checkout, bump: Bump, lines: frozenset[Line], moves: Moves) -> tuple[int, int]:
    """Return the number of wrong lines that another commit moved to the tag, and of others in documents."""
    texts = checkout.read(sorted({path for path, _ in lines}), checkout.resolve(f"{bump.commit}^"))
    elsewhere, documents = set[Line](), set[Line]()
    for path, text in texts.items():
        file = SourceFile(path, text or "")
        for place, reference in places(path, file.text).items():
            line = path, reference.line
            if line in lines and bump.tag in moves[place]:
                elsewhere.add(line)
            elif line in lines and file.nature(reference).kind in ("documentation", "comment"):
                documents.add(line)
    return len(elsewhere), len(documents - elsewhere)


@dataclass
class Sums:
    """The sums over all bumps.

    ``apart``: planned lines that people moved to the tag in another commit; ``documents``: those that they left behind
    in documents and comments.
    """

    count: int = 0
    wanted: int = 0
    planned: int = 0
    hits: int = 0
    exact: int = 0
    apart: int = 0
    documents: int = 0

    def add(self, lines: frozenset[Line], bump: Bump, apart: int, documents: int) -> None:
        """Add a bump with its planned lines."""
        self.count += 1
        self.wanted += len(bump.lines)
        self.planned += len(lines)
        self.hits += len(lines & bump.lines)
        self.exact += lines == bump.lines
        self.apart += apart
        self.documents += documents

    def __str__(self) -> str:
        made = max(self.planned, 1)
        return (
            f"precision {self.hits / made:.0%} ({(self.hits + self.apart) / made:.0%} with what another commit moved; "
            f"{self.documents} of {self.planned - self.hits} wrong lines are in documents), "
            f"recall {self.hits / self.wanted:.0%}, exact {self.exact} of {self.count}"
        )


def main() -> int:
    """Print each bump, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("clones", nargs="+")
    parser.add_argument("--newest", type=int, default=12, help="bumps of each clone (default: 12)")
    options = parser.parse_args()
    default, named = Sums(), Sums()
    for clone in options.clones:
        checkout = Checkout.open(clone)
        of_clone, moves = bumps(checkout, options.newest)
        name = checkout.path.parent.name if checkout.path.name in (".git", "repo") else checkout.path.name
        for bump in of_clone:
            lines, of_groups = planned(checkout, bump)
            common = len(lines & bump.lines)
            print(f"{name} {bump.commit[:10]} {bump.tag}: {common} of {len(lines)} planned, of {len(bump.lines)} moved")
            for sign, rest in (("+", lines - bump.lines), ("-", bump.lines - lines)):
                for path, line in sorted(rest):
                    print(f"    {sign} {path}:{line}")
            if lines != of_groups:
                print(f"    with groups: {len(of_groups & bump.lines)} of {len(of_groups)} planned")
            default.add(lines, bump, *explained(checkout, bump, lines - bump.lines, moves))
            named.add(of_groups, bump, *explained(checkout, bump, of_groups - bump.lines, moves))
    if not default.count:
        sys.exit("There is no bump in these clones.")
    print(f"{default.count} bumps: {default}")
    print(f"With groups named: {named}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
