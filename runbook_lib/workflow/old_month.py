"""The lines outside the pins that still name the month, or the tag, from which a bump moved the pins."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runbook_lib.git.checkout import Checkout
from runbook_lib.git.command import GitFailed, git
from runbook_lib.git.file_versions import file_versions
from runbook_lib.pins.sites import SiteReading, Sites, read
from runbook_lib.text.edits import Edit
from runbook_lib.text.lists import join_first, shorten

_MONTH = re.compile(r"[0-9]{2}\.(?:0[1-9]|1[0-2])(?![0-9]|\.[0-9])")
_NUMBERS = re.compile(r"[0-9]+(?:\.[0-9]+)*")
_COMMITS = 50  # that changed files with pins, in which the former tag is searched for
_LONGEST, _NAMED = 120, 5  # characters of a line that are shown, lines in a sentence


@dataclass(frozen=True)
class OldMonthLine:
    """A line that names an old month."""

    path: str
    line: int
    text: str

    @property
    def place(self) -> str:
        """File and line in the form of editors and terminals."""
        return f"{self.path}:{self.line}"


@dataclass(frozen=True)
class OldMonths:
    """The previous months of the pins, or complete tags if they have no month, and the lines that still name them.

    With a ``problem`` git could not search, so the lines are unknown.
    """

    names: tuple[str, ...] = ()
    lines: tuple[OldMonthLine, ...] = ()
    problem: str = ""

    @property
    def sentence(self) -> str:
        """One sentence that names the first lines, or the problem; empty if there is nothing to report."""
        if not self.lines:
            return self.problem
        places = join_first([line.place for line in self.lines], _NAMED)
        return f"{' or '.join(self.names)} is still named outside of the pins: {places}."

    @property
    def count(self) -> str:
        """The number of lines, in a sentence; empty if there is none."""
        if not self.lines:
            return ""
        subject = "1 other line still names" if len(self.lines) == 1 else f"{len(self.lines)} other lines still name"
        return f"{subject} {' or '.join(self.names)}."

    def rows(self) -> list[dict[str, str]]:
        """Return a table of the lines."""
        return [{"place": line.place, "line": line.text} for line in self.lines]


#: Nothing was searched, or the pins were never moved.
NOTHING_OLD = OldMonths()


def find(
    checkout: Checkout, ref: str | None, tags: Iterable[str], sites: Sites, edits: Sequence[Edit] = ()
) -> OldMonths:
    """Search the tracked text files of a commit, or of the work tree, for the months of old ``tags``.

    ``edits`` are planned ones: the files are searched as they will be.  Months that lockstep pins still name are not
    old.  Lines of pins are left out, as the sync check judges them.  What a partial
    clone lacks is not fetched.
    """
    texts = {edit.path: edit.after for edit in edits}
    readings = read({**checkout.read(sites.pin_paths, ref), **texts}, sites)
    names = sorted({_name(tag) for tag in tags} - {_name(tag) for tag in _lockstep_tags(readings)})
    if not names:
        return NOTHING_OLD
    pins: set[tuple[str, int]] = set()
    for reading in readings:
        pins.update((pin.path, pin.line) for pin in reading.pins)
    try:
        listed = _search(checkout, ref, names)
    except GitFailed as error:
        problem = f"{checkout.path} could not be searched for lines that name {' or '.join(names)}. {error}"
        return OldMonths(tuple(names), problem=problem)
    candidates = [line for line in listed if line.path not in texts]
    for path, text in texts.items():
        candidates += [OldMonthLine(path, number, line) for number, line in enumerate(text.split("\n"), 1)]
    lines = []
    for line in candidates:
        is_named = any(_has_name(line.text, name) for name in names)
        if is_named and (line.path, line.line) not in pins:
            lines.append(OldMonthLine(line.path, line.line, shorten(line.text.strip(), _LONGEST)))
    return OldMonths(tuple(names), tuple(sorted(lines, key=lambda line: (line.path, line.line))))


def former_tags(checkout: Checkout, ref: str | None, sites: Sites) -> frozenset[str]:
    """Return the tags that the lockstep pins had before they were last moved; none if that is not in the history."""
    present = tags_at(checkout, ref, sites)
    if ref is None and not checkout.git("rev-list", "--all", "--max-count=1"):
        return frozenset()  # a repository without a commit
    for commit, _ in reversed(file_versions(checkout, ref or "HEAD", sites.pin_paths, _COMMITS)):
        former = tags_at(checkout, commit, sites) - present
        if former:
            return former
    return frozenset()


def tags_at(checkout: Checkout, ref: str | None, sites: Sites) -> frozenset[str]:
    """Return the tags of the lockstep pins in a commit, or in the work tree."""
    return _lockstep_tags(read(checkout.read(sites.pin_paths, ref), sites))


def _lockstep_tags(readings: Iterable[SiteReading]) -> frozenset[str]:
    tags: set[str] = set()
    for reading in readings:
        if reading.site.lockstep:
            tags.update(str(pin.tag) for pin in reading.pins)
    return frozenset(tags)


def _name(tag: str) -> str:
    """Return the month with which a tag begins, else the tag."""
    month = _MONTH.match(tag)
    return month[0] if month else tag


def _has_name(text: str, name: str) -> bool:
    """Return True if the text has the name, and not as a part of another number."""
    return name in text and (not _MONTH.fullmatch(name) or name in _NUMBERS.findall(text))


def _search(checkout: Checkout, ref: str | None, names: Sequence[str]) -> list[OldMonthLine]:
    patterns = [f"-e{name}" for name in names]
    options = ["-n", "-I", "-z", "--fixed-strings", "--full-name", "--no-recurse-submodules", "--no-color"]
    try:
        # git would fetch what a partial clone lacks file by file.
        listed = git(checkout.path, "grep", *options, *patterns, *filter(None, [ref]), "--", offline=True)
    except GitFailed as error:
        if error.status != 1:  # git grep found nothing
            raise
        return []
    lines = []
    for line in listed.split("\n"):
        path, _, rest = line.partition("\0")
        number, _, text = rest.partition("\0")
        if number.isdecimal():  # a file's name may hold a line feed: its lines cannot be named
            lines.append(OldMonthLine(path.removeprefix(f"{ref}:"), int(number), text))
    return lines
