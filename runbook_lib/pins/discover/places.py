"""The places of references in all versions of a file, by which they are followed through its history."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from runbook_lib.pins.discover.references import Reference, references

_MAX_COMPARED_LINES = 10  # appeared lines of a file that are compared with those that disappeared
_MAX_KEY_DISTANCE = 1000  # lines above a value that are searched for its keys


class ReferencePlace(NamedTuple):
    """A reference in any version of its file: the text before it on its line, and its number among equal ones.

    In YAML, the text begins with the lines of the keys above.
    """

    path: str
    before: str
    image: str
    number: int


def places(path: str, text: str, bare: str = "") -> dict[ReferencePlace, Reference]:
    """Return the references of a version of a file by their places; ``bare`` as for ``references``."""
    counted: Counter[tuple[str, str]] = Counter()
    result = {}
    lines = text.split("\n") if path.endswith((".yml", ".yaml")) else []
    for reference in references(text, bare):
        before = text[reference.start - reference.column : reference.start].strip()
        if lines:
            before = "\n".join((*_lines_above(lines, reference.line), before))
        result[ReferencePlace(path, before, reference.image, counted[before, reference.image])] = reference
        counted[before, reference.image] += 1
    return result


def _lines_above(lines: Sequence[str], number: int) -> Iterator[str]:
    """Yield the lines that are less indented, up to the outermost: those of the keys above a value."""
    column = _column(lines[number - 1])
    for line in reversed(lines[max(number - 1 - _MAX_KEY_DISTANCE, 0) : number - 1]):
        if not column:
            break
        if line.strip() and _column(line) < column:
            column = _column(line)
            yield line.strip()


def _column(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def successors(
    before: Iterable[ReferencePlace], after: Iterable[ReferencePlace]
) -> dict[ReferencePlace, ReferencePlace]:
    """Return the former place of each new one, for lines that were reworded, or moved to another file.

    If as many references to an image appeared in a file as disappeared, they are the same ones in order; if more
    appeared, some of them are new, and the old ones are those that resemble them most.
    """
    before, after = dict.fromkeys(before), dict.fromkeys(after)
    former: defaultdict[tuple[str, str], list[ReferencePlace]] = defaultdict(list)
    new: defaultdict[tuple[str, str], list[ReferencePlace]] = defaultdict(list)
    for place in before:
        if place not in after:
            former[place.path, place.image].append(place)
    for place in after:
        if place not in before:
            new[place.path, place.image].append(place)
    known: dict[ReferencePlace, ReferencePlace] = {}
    by_line: dict[tuple[str, str, int], ReferencePlace] = {}
    for key, of_file in former.items():
        if len(of_file) == len(new[key]):
            known |= zip(new.pop(key), of_file, strict=True)
        elif len(of_file) < len(new[key]) <= _MAX_COMPARED_LINES:
            for old_one in of_file:
                alike = max(new[key], key=lambda place: SequenceMatcher(None, place.before, old_one.before).ratio())
                new[key].remove(alike)
                known[alike] = old_one
        else:
            by_line |= {(place.before, place.image, place.number): place for place in of_file}
    for place in (place for of_file in new.values() for place in of_file):
        if old := by_line.pop((place.before, place.image, place.number), None):
            known[place] = old
    return known
