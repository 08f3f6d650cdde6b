"""How well drafted pins files would have made the bumps that people made: precision, recall, exact ones.

    environment/run python tests/bench/measure_pins.py CLONE …

A bump is a commit that moves references to one image to one newer tag, some of them read by CI or a build.  The pins
file is drafted from its parent alone, history included, and the bump planned with it; lines are compared with those
that the commit moved.  Planned lines that people moved to the same tag in another commit are counted apart, too: a
bump in several commits.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from runbook_lib.cli import discover
from runbook_lib.errors import RunbookError
from runbook_lib.git.blobs import read_objects
from runbook_lib.git.checkout import Checkout
from runbook_lib.git.file_versions import file_versions
from runbook_lib.images.families import is_older
from runbook_lib.pins import pins_file
from runbook_lib.pins.discover.classify import SourceFile
from runbook_lib.pins.discover.moves import ReferencePlace, places
from runbook_lib.pins.plan import plan
from runbook_lib.text.lists import shorten

_COMMITS, _BYTES = 5000, 2**21
Line = tuple[str, int]


@dataclass(frozen=True)
class Bump:
    """A commit of people, with the lines that it moved to the tag."""

    commit: str
    image: str
    tag: str
    lines: frozenset[Line]


Moves = defaultdict[ReferencePlace, set[str]]


def bumps(checkout: Checkout) -> tuple[list[Bump], Moves]:
    """Return the bumps along the first parents of HEAD, the oldest first, and the tags to which each place moved."""
    paths = interesting(checkout, "HEAD")
    for bump in list(_bumps(checkout, paths, Moves(set))):
        paths |= interesting(checkout, f"{bump.commit}^")  # files that were renamed or removed since
    moves = Moves(set)
    return list(_bumps(checkout, paths, moves)), moves


def _bumps(checkout: Checkout, paths: set[str], moves: Moves) -> Iterator[Bump]:
    before: dict[str, str] = {}
    for commit, versions in file_versions(checkout, "HEAD", sorted(paths), _COMMITS):
        contents = read_objects(checkout.path, [blob for _, blob in versions if blob], _BYTES)
        moved: defaultdict[tuple[str, str], set[Line]] = defaultdict(set)
        read = set()
        for path, blob in versions:
            text = contents.get(blob, b"").decode("utf-8", "surrogateescape")
            old = places(path, before.get(path, ""))
            for place, new in places(path, text).items():
                past = old.get(place)
                if past is None or past.read_tag is None or new.read_tag is None:
                    continue
                if is_older(past.read_tag, new.read_tag):
                    moved[new.image, new.tag].add((path, past.line))
                    moves[place].add(new.tag)
                    nature = SourceFile(path, text).nature(new)
                    if nature.kind not in ("documentation", "comment", "record", "test") and not nature.for_people:
                        read.add((new.image, new.tag))
            before[path] = text
        # Of several tags in one commit, as rows of a matrix have them, the newest is the bump's.
        newest = dict(sorted(read))
        for image, tag in newest.items():
            yield Bump(commit, image, tag, frozenset(moved[image, tag]))


def interesting(checkout: Checkout, ref: str) -> set[str]:
    """Return the files that name an image at a commit."""
    return {reference.path for reference in discover.survey(checkout.path, ref, history=False).references}


def planned(checkout: Checkout, bump: Bump, *, named: bool) -> frozenset[Line]:
    """Return the lines that a bump with the drafted file of the parent would move.

    ``named``: the bump names the group of its image that fits the commit best, as a person does who wants that bump.
    """
    found = discover.survey(checkout.path, f"{bump.commit}^")
    results = []
    try:
        repository = pins_file.parse(found.draft.text, "x/y")
        names = [group.name for group in repository.sites.groups if group.image == bump.image] if named else [""]
    except RunbookError as error:
        print(f"    {bump.commit[:10]}: {shorten(str(error), 200)}")
        return frozenset()
    for name in names:
        try:
            sites = repository.of_group(name, bump.tag).sites
            texts = checkout.read(sites.paths, found.commit)
            changes = plan(texts, sites, sites.groups[0].target(bump.tag), "dev").changes
            results.append(frozenset((change.path, change.line) for change in changes))
        except RunbookError as error:
            print(f"    {bump.commit[:10]}: {shorten(str(error), 200)}")
    return max(results, default=frozenset(), key=lambda lines: len(lines & bump.lines) - len(lines - bump.lines))


def moved_apart(checkout: Checkout, bump: Bump, lines: frozenset[Line], moves: Moves) -> int:
    """Return the number of lines that another commit moved to the tag."""
    texts = checkout.read(sorted({path for path, _ in lines}), checkout.resolve(f"{bump.commit}^"))
    elsewhere = set()
    for path, text in texts.items():
        for place, reference in places(path, text or "").items():
            if (path, reference.line) in lines and bump.tag in moves[place]:
                elsewhere.add((path, reference.line))
    return len(elsewhere)


def main() -> int:
    """Print each bump, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("clones", nargs="+")
    parser.add_argument("--newest", type=int, default=12, help="bumps of each clone (default: 12)")
    parser.add_argument("--group", action="store_true", help="name the group of each bump")
    options = parser.parse_args()
    hits = made = wanted = exact = count = apart = 0
    for clone in options.clones:
        checkout = Checkout.open(clone)
        of_clone, moves = bumps(checkout)
        for bump in of_clone[-options.newest :]:
            lines = planned(checkout, bump, named=options.group)
            common = len(lines & bump.lines)
            name = checkout.path.parent.name if checkout.path.name in (".git", "repo") else checkout.path.name
            print(f"{name} {bump.commit[:10]} {bump.tag}: {common} of {len(lines)} planned, of {len(bump.lines)} moved")
            for sign, rest in (("+", lines - bump.lines), ("-", bump.lines - lines)):
                for path, line in sorted(rest):
                    print(f"    {sign} {path}:{line}")
            apart += moved_apart(checkout, bump, lines - bump.lines, moves)
            hits, made, wanted = hits + common, made + len(lines), wanted + len(bump.lines)
            exact, count = exact + (lines == bump.lines), count + 1
    if not count:
        sys.exit("There is no bump in these clones.")
    print(f"{count} bumps: precision {hits / max(made, 1):.0%}, recall {hits / wanted:.0%}, exact {exact}")
    print(f"With what people moved to the same tag in another commit: precision {(hits + apart) / max(made, 1):.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
