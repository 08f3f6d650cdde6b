"""The role of each reference in a pins file, decided for all of them together."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Literal, TypeAlias

from runbook_lib.images.families import edition, is_older
from runbook_lib.images.reference import ImageType, Tag
from runbook_lib.pins.discover.classify import Kind, Nature, SourceFile
from runbook_lib.pins.discover.references import Reference, references
from runbook_lib.pins.sites import Sites, Texts, dead_arguments, read
from runbook_lib.text.lists import shorten

#: ``lockstep``: a bump must move it.  ``follow``: a bump moves it, for people.  ``informational``: compared, and never
#: moved.  ``frozen``: a record of the past.  ``ignore``: it names no fixed image, or nothing reads it.
Role: TypeAlias = Literal["lockstep", "follow", "informational", "frozen", "ignore"]

_READ: frozenset[Kind] = frozenset({"whole-file", "dockerfile-arg", "dockerfile-from"})
_READ_IN_CI: frozenset[Kind] = frozenset(
    {"build-arg", "container-image", "matrix-row", "ci-variable", "workflow-input", "configuration", "script", "code"}
)
# These are meant to be pins, so one that lags was forgotten.
_PINS: frozenset[Kind] = frozenset({"whole-file", "matrix-row"})
# Values whose neighbours may show that they belong to the LTS image.
_NAMED_BESIDE: frozenset[Kind] = frozenset(
    {"matrix-row", "ci-variable", "configuration", "container-image", "build-arg"}
)
_MAY_BE_READ: frozenset[Kind] = frozenset({"configuration", "script"})
_OF_DOCKERFILE: frozenset[Kind] = frozenset({"dockerfile-arg", "dockerfile-from"})
_READS = re.compile(
    r"\b(?:cat|jq|yq|tomlq|dasel|source|grep|sed|awk|cut|head|python3?|include|fromJSON|[Rr]ead\w*|load\w*|open|"
    r"env[-_]file)\b|\s-f\s|(?<!\S)\.\s|<"
)
_LONGEST_LINE = 2000  # characters of a line that are searched
_LONGEST_TAG = 30  # characters in a sentence
# Tags whose image changes.
_MOVING = frozenset({"latest", "nightly", "dev", "main", "master", "edge", "stable", "devel"})


@dataclass(frozen=True)
class ClassifiedReference:
    """A reference in a file, its nature, and its role in a pins file.

    ``type`` is the image type, if CI or a build reads it; ``reason`` is a sentence without the full stop.  ``reader``,
    if it is known, is ``github``, ``gitlab`` or ``people``; ``is_read``: CI or a build reads it.  ``history``: in how
    many past bumps it moved, if that is known, and ``moves``: the commits that moved it, with its new tags.
    ``cadence`` names references that bumps of their own move, those of a project by its folder with a final slash;
    empty for the main ones.
    """

    path: str
    reference: Reference
    nature: Nature
    role: Role
    type: ImageType
    reason: str
    reader: str = ""
    is_read: bool = False
    history: str = ""
    moves: frozenset[tuple[str, str]] = frozenset()
    cadence: str = ""

    @property
    def commits(self) -> frozenset[str]:
        """The commits that moved the reference."""
        return frozenset(commit for commit, _ in self.moves)

    @property
    def full_role(self) -> str:
        """The role, and for lockstep the type."""
        return f"lockstep {self.type}" if self.role == "lockstep" else self.role


@dataclass(frozen=True)
class _Occurrence:
    file: SourceFile
    reference: Reference
    nature: Nature
    type: ImageType

    @property
    def image(self) -> tuple[str, ...]:
        """Name, type and edition of the image: references with the same are compared."""
        tag = self.reference.read_tag
        return self.reference.image, self.type, edition(tag) if tag else ""

    @property
    def is_only_deployed(self) -> bool:
        """True if another tool reads the reference, but neither CI nor a Dockerfile does."""
        return bool(self.nature.tool) and not self.nature.ci and self.nature.kind not in _READ

    @property
    def is_read(self) -> bool:
        """True if CI, a build or a deployment of the product reads the reference, and its image can be compared."""
        kind = self.nature.kind
        is_live = kind in _READ or (kind in _READ_IN_CI and bool(self.nature.ci or self.nature.tool))
        return is_live and self.may_be_read

    @property
    def may_be_read(self) -> bool:
        """True if a program may read the reference, and its image can be compared."""
        is_live = self.nature.kind in _READ | _READ_IN_CI
        return is_live and not self.nature.for_people and not incomparable(self.reference)


def discover(
    texts: Iterable[tuple[str, str]],
    naming_lines: Callable[[Iterable[str]], Iterable[str]] = lambda _: (),
    bare: Mapping[str, str] = MappingProxyType({}),
) -> tuple[ClassifiedReference, ...]:
    """Classify every reference in files, which are pairs of path and text: by path, then in the order of the file.

    ``naming_lines`` returns the lines of CI's files and builds that contain one of the given names of files.  ``bare``:
    the image of the tags without a name, by path.
    """
    occurrences: list[_Occurrence] = []
    for path, text in sorted(texts):
        file = SourceFile(path, text)
        for reference in references(text, bare.get(path, "")):
            nature = file.nature(reference)
            is_lts = file.names_lts(reference.start, beside=nature.kind in _NAMED_BESIDE)
            occurrences.append(_Occurrence(file, reference, nature, "lts" if is_lts else "dev"))
    occurrences = list(_with_readers(occurrences, naming_lines))
    by_image: defaultdict[tuple[str, ...], list[_Occurrence]] = defaultdict(list)
    for occurrence in occurrences:
        if occurrence.is_read:
            by_image[occurrence.image].append(occurrence)
    # Where neither CI nor a build reads an image, those that a program may read are its pins.
    if_unread: defaultdict[tuple[str, ...], list[_Occurrence]] = defaultdict(list)
    for occurrence in occurrences:
        if occurrence.image not in by_image and occurrence.may_be_read:
            if_unread[occurrence.image].append(occurrence)
    leading = {image: _leading(group) for image, group in (by_image | if_unread).items()}
    row_tags: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    for occurrence in occurrences:
        if occurrence.nature.kind == "matrix-row":
            row_tags[occurrence.file.path, *occurrence.image].add(occurrence.reference.tag)
    differing = {rows for rows, tags in row_tags.items() if len(tags) > 1}
    classified = []
    for occurrence in occurrences:
        differs = (occurrence.file.path, *occurrence.image) in differing
        image = occurrence.image
        only_possible = image in if_unread
        classified.append(_classify(occurrence, leading.get(image), differs=differs, only_possible=only_possible))
    pinned = {_named_by(pin) for pin in classified if pin.role == "lockstep"}
    result = []
    for entry in classified:
        if entry.nature.kind == "comment" and not entry.nature.for_people and _named_by(entry) in pinned:
            entry = replace(entry, role="follow", reason="it repeats a pin of its file")
        result.append(entry)
    return tuple(result)


def _named_by(classified: ClassifiedReference) -> tuple[str, str, str]:
    return classified.path, classified.reference.image, classified.reference.tag


def _with_readers(
    occurrences: Sequence[_Occurrence], naming_lines: Callable[[Iterable[str]], Iterable[str]]
) -> Iterator[_Occurrence]:
    """Yield the occurrences; those in files that a command of CI or of a build reads, runs or builds belong to it."""
    files: dict[str, SourceFile] = {}
    for occurrence in occurrences:
        kind, file = occurrence.nature.kind, occurrence.file
        if file.ci:
            continue
        if kind in _MAY_BE_READ or (kind in _OF_DOCKERFILE and occurrence.nature.for_people):
            files[file.path] = file
    names = sorted({PurePosixPath(path).name for path in files})
    lines = [line for line in naming_lines(names) if not line.lstrip().startswith("#")] if files else []
    commands = [line for line in lines if _READS.search(line)]
    read: set[str] = set()
    for path, file in files.items():
        run = file.type in ("script", "dockerfile")
        if any(_names(line, path) for line in (lines if run else commands)):
            read.add(path)
    scripts = [file for path, file in files.items() if path in read and file.type == "script"]
    for path, file in files.items():
        if file.type == "dockerfile" and any(_builds(script, path) for script in scripts):
            read.add(path)
    for occurrence in occurrences:
        nature = occurrence.nature
        if occurrence.file.path in read and nature.kind in _MAY_BE_READ | _OF_DOCKERFILE:
            why = f"{nature.why}, in a file that CI or a build reads"
            occurrence = replace(occurrence, nature=replace(nature, ci="other", for_people=False, why=why))
        yield occurrence


def _builds(script: SourceFile, path: str) -> bool:
    """Return True if a script names a Dockerfile of its own folder."""
    dockerfile = PurePosixPath(path)
    return PurePosixPath(script.path).parent == dockerfile.parent and f"/{dockerfile.name}" in script.text


def _names(line: str, path: str) -> bool:
    """Return True if the line names the path, or its last part below a folder that a variable names."""
    name = re.escape(PurePosixPath(path).name)
    places = rf"(?<![\w./-])(?:\./)?{re.escape(path)}|\$\S{{1,200}}/{name}"
    return bool(re.search(rf"(?:{places})(?![\w/-]|\.\w)", line[:_LONGEST_LINE]))


def as_known(
    discovered: Iterable[ClassifiedReference], texts: Texts, sites: Sites, name: str
) -> tuple[ClassifiedReference, ...]:
    """Return the references, with the roles of ``check`` for those that are pins of the known repository ``name``.

    ``texts`` has each of ``sites.pin_paths``.
    """
    readings = read(texts, sites)
    remarks = {id(reading.site): f"; {reason}" for reading, reason in dead_arguments(texts, readings)}
    site_by_line = {(pin.path, pin.line): pin.site for reading in readings for pin in reading.pins}
    roles: dict[str, Role] = {"frozen": "frozen", "informational": "informational"}
    result = []
    for reference in discovered:
        if site := site_by_line.get((reference.path, reference.reference.line)):
            role = "informational" if id(site) in remarks else roles.get(site.role, "lockstep")
            reason = f"a known pin of {name}{remarks.get(id(site), '')}"
            reference = replace(reference, role=role, type=site.image_type, reason=reason, reader=site.ci)
        result.append(reference)
    return tuple(result)


def _classify(
    occurrence: _Occurrence, leading: Tag | None, *, differs: bool, only_possible: bool
) -> ClassifiedReference:
    role, reason = _role(occurrence, leading, differs=differs, only_possible=only_possible)
    nature = occurrence.nature
    reader: str = nature.ci if nature.ci in ("github", "gitlab") else ""
    if role == "informational" and not nature.ci and not occurrence.is_read:
        reader = "people"
    path = occurrence.file.path
    return ClassifiedReference(
        path, occurrence.reference, nature, role, occurrence.type, reason, reader, occurrence.is_read
    )


def _role(occurrence: _Occurrence, leading: Tag | None, *, differs: bool, only_possible: bool) -> tuple[Role, str]:
    """Return the role and the reason.

    ``differs``: rows of its file name several tags, so they may do so on purpose.  ``only_possible``: no reference to
    its image is surely read by CI or a build.
    """
    kind = occurrence.nature.kind
    if kind in ("comment", "foreign"):
        return "ignore", "nothing reads it"
    if kind == "test":
        return "ignore", "it belongs to a test"
    if reason := incomparable(occurrence.reference):
        return "ignore", reason
    if kind == "record":
        return "frozen", "a record of the past, which must not move"
    is_read = occurrence.is_read or (only_possible and occurrence.may_be_read)
    if leading is None or not is_read:
        return "informational", "people read or run it"
    newest = shorten(str(leading), _LONGEST_TAG)
    reader = f"{_reader(occurrence.nature)} reads it"
    if not occurrence.is_read:
        reader = "a program may read it"
    if occurrence.reference.tag == str(leading):
        return "lockstep", reader
    if kind in _PINS and not (kind == "matrix-row" and differs):
        return "lockstep", f"{reader}, though the newest that is read is {newest}"
    return "informational", f"{reader}, but the newest that is read is {newest}"


def _reader(nature: Nature) -> str:
    """Return the reader of a reference that is read."""
    if nature.ci:
        return "CI"
    return nature.tool or "a build"


def incomparable(reference: Reference) -> str:
    """Return the reason why the image of the reference cannot be compared; empty if it can."""
    if reference.variable:
        return "a variable or a placeholder stands in place of the tag"
    if reference.tag in _MOVING:
        return f"the image of {reference.tag} changes"
    if not reference.tag:
        return "it has a digest without a tag" if reference.digest else "it has no tag"
    if reference.read_tag is None:
        return f"its tag is none of {reference.family.name}"
    if not reference.complete:
        return "its registry is not written out"
    return ""


def _leading(group: Sequence[_Occurrence]) -> Tag:
    """Return the newest release among the tags that are read; of two that are equally new, the more frequent one."""
    # A deployment may lag or lead; the built and tested image decides.
    group = [occurrence for occurrence in group if not occurrence.is_only_deployed] or group
    counted = Counter(occurrence.reference.tag for occurrence in group)
    known = [tag for occurrence in group if (tag := occurrence.reference.read_tag) is not None]
    candidates = [tag for tag in known if tag.kind == "release"] or known
    candidates.sort(key=lambda tag: (-counted[str(tag)], str(tag)))
    newest = candidates[0]
    for tag in candidates[1:]:
        if is_older(newest, tag):
            newest = tag
    return newest


def shown(text: str) -> str:
    """Return a text of a repository on one line, with control characters escaped."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def times(count: int, noun: str) -> str:
    """Return a count with its noun, such as ``no pins`` or ``1 file``."""
    if count != 1:
        noun += "s"
    return f"{count or 'no'} {noun}"
