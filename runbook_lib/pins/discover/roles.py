"""The role of each reference in a pins file, judged over all of them together."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Literal, TypeAlias

from runbook_lib.images.families import is_older
from runbook_lib.images.reference import ImageType, Tag
from runbook_lib.pins.discover.classify import File, Kind, Nature
from runbook_lib.pins.discover.references import Reference, references
from runbook_lib.pins.sites import Sites, Texts, dead, read

#: ``lockstep``: a bump must move it.  ``informational``: compared, and never moved.  ``frozen``: it says what was.
#: ``ignore``: it names no fixed image, or nothing reads it.
Role: TypeAlias = Literal["lockstep", "informational", "frozen", "ignore"]

_READ: frozenset[Kind] = frozenset({"whole-file", "dockerfile-arg", "dockerfile-from"})
_READ_IN_CI: frozenset[Kind] = frozenset(
    {"build-arg", "container-image", "matrix-row", "ci-variable", "workflow-input", "configuration", "script"}
)
# What is built on it, not only run in it.
_BUILT: frozenset[Kind] = _READ | {"build-arg", "matrix-row", "workflow-input", "configuration"}
# Made to be a pin: such a one that lags was forgotten.
_PINS: frozenset[Kind] = frozenset({"whole-file", "matrix-row"})
# Names that stand for another image every time.
_MOVING = frozenset({"latest", "nightly", "dev", "main", "master", "edge", "stable", "devel"})


@dataclass(frozen=True)
class ClassifiedReference:
    """A reference in a file, what it is, and what a pins file should call it.

    ``type`` tells which image it is, where CI or a build reads it; ``reason`` is a sentence without the full stop.
    ``reader`` is who reads it, where that is known: ``github``, ``gitlab`` or ``people``.
    """

    path: str
    reference: Reference
    nature: Nature
    role: Role
    type: ImageType
    reason: str
    reader: str = ""

    @property
    def called(self) -> str:
        """The role, and of a lockstep one its type."""
        return f"lockstep {self.type}" if self.role == "lockstep" else self.role


@dataclass(frozen=True)
class _Seen:
    file: File
    reference: Reference
    nature: Nature
    type: ImageType

    @property
    def read(self) -> bool:
        """True if CI or a build of the product reads the reference, and its image can be compared."""
        kind = self.nature.kind
        live = kind in _READ or (kind in _READ_IN_CI and bool(self.nature.ci))
        return live and not self.nature.aside and not _unfixed(self.reference)


def discover(texts: Iterable[tuple[str, str]]) -> tuple[ClassifiedReference, ...]:
    """Every reference in files, given as path and text: by path, then as they stand in the file."""
    seen = []
    for name, text in sorted(texts):
        file = File(name, text)
        for reference in references(text):
            nature = file.nature(reference)
            seen.append(_Seen(file, reference, nature, _type(file, reference, nature)))
    compared: defaultdict[tuple[str, ImageType], list[_Seen]] = defaultdict(list)
    for one in seen:
        if one.read:
            compared[one.reference.image, one.type].append(one)
    leading = {key: _leading(those) for key, those in compared.items()}
    found = [_found(one, leading.get((one.reference.image, one.type))) for one in seen]
    passed: dict[tuple[str, ...], ClassifiedReference] = {}
    for pin in found:
        if pin.role == "lockstep":
            for where in (f"in {pin.nature.dockerfile}", f"like {PurePosixPath(pin.path).stem}"):
                passed.setdefault((pin.reference.image, pin.type, _passes(pin), where), pin)
    return tuple(_fallback(one, passed) for one in found)


def as_known(
    found: Iterable[ClassifiedReference], texts: Texts, sites: Sites, name: str
) -> tuple[ClassifiedReference, ...]:
    """The references called as ``check`` calls them where they are pins of the repository ``name``, which we know.

    ``texts`` holds each of ``sites.pin_paths``.
    """
    readings = read(texts, sites)
    idle = {id(reading.site): f"; {why}" for reading, why in dead(texts, readings, sites)}
    pins = {(pin.site.path, pin.line): pin.site for reading in readings for pin in reading.pins}
    told = []
    for one in found:
        if site := pins.get((one.path, one.reference.line)):
            role: Role = "lockstep" if site.lockstep else "frozen" if site.frozen else "informational"
            reason = f"a known pin of {name}{idle.get(id(site), '')}"
            one = replace(one, role=role, type=site.image_type, reason=reason, reader=site.ci)
        told.append(one)
    return tuple(told)


def _fallback(one: ClassifiedReference, passed: Mapping[tuple[str, ...], ClassifiedReference]) -> ClassifiedReference:
    """The default of an argument for which CI passes a pin is a pin too, wherever it stands: it was forgotten.

    The pin has the argument's name, in a build of its Dockerfile or in a file named like its folder.
    """
    if one.nature.kind == "dockerfile-arg" and one.role == "informational" and not one.nature.aside:
        for where in (f"in {one.path}", f"like {PurePosixPath(one.path).parent.name}"):
            if pin := passed.get((one.reference.image, one.type, one.nature.name.lower(), where)):
                reason = f"{pin.path} passes it with {shortened(pin.reference.tag)}, so it lags"
                return replace(one, role="lockstep", reason=reason)
    return one


def _passes(pin: ClassifiedReference) -> str:
    """The name of the argument that a pin is passed as."""
    keys = pin.nature.yaml.keys if pin.nature.yaml else ()
    named = pin.nature.name or next((key for key in reversed(keys) if not key.isdecimal()), "")
    return named.replace("-", "_").lower()


def shortened(tag: str) -> str:
    """A tag, as far as it fits into a sentence."""
    return tag if len(tag) <= 30 else f"{tag[:29]}…"


def _found(one: _Seen, leading: Tag | None) -> ClassifiedReference:
    role, reason = _role(one, leading)
    reader: str = one.nature.ci if one.nature.ci in ("github", "gitlab") else ""
    if role == "informational" and not one.read:
        reader = reader or "people"
    return ClassifiedReference(one.file.path, one.reference, one.nature, role, one.type, reason, reader)


def _role(one: _Seen, leading: Tag | None) -> tuple[Role, str]:
    kind, nature = one.nature.kind, one.nature
    if kind in ("comment", "test"):
        return "ignore", "nothing reads it" if kind == "comment" else "it belongs to a test"
    if unfixed := _unfixed(one.reference):
        return "ignore", unfixed
    if kind == "record":
        return "frozen", "a record of what was, which must not move"
    if leading is None or not one.read:
        return "informational", "people read or run it"
    newest = shortened(str(leading))
    who = "CI reads it" if nature.ci else "a build reads it"
    if one.reference.tag == str(leading):
        return "lockstep", who
    if kind in _PINS:
        return "lockstep", f"{who}, though the newest that is read is {newest}"
    return "informational", f"{who}, but the newest that is read is {newest}"


def _unfixed(reference: Reference) -> str:
    """Return why the image of the reference cannot be compared; empty where it can."""
    if reference.variable:
        return "a variable or a placeholder stands in the tag's place"
    if reference.tag in _MOVING:
        return f"{reference.tag} names another image every time"
    if not reference.tag:
        return "a digest stands there without a tag" if reference.digest else "no tag stands beside the name"
    if reference.read_tag is None:
        return f"its tag is none of {reference.family.name}"
    if not reference.complete:
        return "its registry is not written there"
    return ""


def _leading(read: Sequence[_Seen]) -> Tag:
    """The newest release among tags that something is built on, else among all that are read.

    Of two that are equally new it is the more frequent one.
    """
    read = [one for one in read if one.nature.kind in _BUILT] or read
    counted = Counter(one.reference.tag for one in read)
    tags = [one.reference.read_tag for one in read if one.reference.read_tag is not None]
    candidates = [tag for tag in tags if tag.kind == "release"] or tags
    candidates.sort(key=lambda tag: (-counted[str(tag)], str(tag)))
    best = candidates[0]
    for tag in candidates[1:]:
        if is_older(best, tag):
            best = tag
    return best


def _type(file: File, reference: Reference, nature: Nature) -> ImageType:
    """LTS where the file's name, or a row's other keys, say so."""
    if file.lts:
        return "lts"
    if nature.kind not in ("matrix-row", "ci-variable", "configuration", "container-image", "build-arg"):
        return "dev"
    return "lts" if file.lts_beside(reference.start) else "dev"


def shown(text: str) -> str:
    """A text from a repository on one line, without what speaks to a terminal or ends a comment."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def times(count: int, what: str) -> str:
    """A number of things."""
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"
