"""The places in a repository's files that name a known image: ``name:tag``, or its tag alone.

A tag stands alone behind a registry that is a variable, as the value of the variable in ``name:${TAG}``, at a key
beside that of the image, or as a word that is the tag of another place.  What is not understood has a ``skip_reason``.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from runbook_lib.errors import RunbookError
from runbook_lib.images.families import CUDA, FAMILIES, NGC_HOST, OTHER, family_of
from runbook_lib.images.reference import ImageRef, ImageType, Tag

#: Path of a known image → its name.
_HOMES = {image.partition("/")[2]: image for family in (CUDA, *FAMILIES) for image in reversed(family.images)}
#: Every file with a place has one of these texts, or the tag of another place.
SEARCHED = (NGC_HOST, *_HOMES)

_HOST = r"(?:(?:[A-Za-z0-9-]++\.)+[A-Za-z0-9-]++(?::[0-9]++)?|localhost:[0-9]++)"
_TAG = r"(?>[A-Za-z0-9_](?:[\w.-]{0,126}\w)?)"
_AFTER = rf"(?::(?P<tag>{_TAG}(?![\w/]))?(?P<more>[$%{{(]|<(?!/)|\[\[)?)?(?P<digest>@sha256:[0-9a-f]{{64}})?"
_NAMED = re.compile(
    rf"(?:(?<![\w.#/-])|(?<=://))(?P<registry>{_HOST})(?P<sign>[/#])(?P<path>[a-z0-9]++(?:[._/-]++[a-z0-9]++)*+)"
    rf"(?![\w/]){_AFTER}"
)
_UNREGISTERED = re.compile(rf"(?<![\w.-])(?P<path>{'|'.join(map(re.escape, _HOMES))})(?![\w/.-]){_AFTER}")
_LINK = re.compile(r"(?:https?|git|ssh)://\S{0,255}$")
_VARIABLE = re.compile(r"[$%{(<\[]{1,3}[ \t]{0,3}(?:\w{1,60}\.){0,3}(?P<name>[A-Za-z_]\w{0,60})")
#: What follows a variable that is only a part of a tag, such as ``}-py3``.
_COMPOSED = re.compile(r"[-.]|[^\s\"'`]{0,100}?[ \t]{0,3}[})\]>%]{1,3}[\w.-]")
_ASSIGNED = re.compile(
    rf"(?<![\w-])(?P<name>[A-Za-z_]\w*+)[\"']?[ \t]*+(?:[:?+]?=>?|:[-=]?)[ \t]*+[\"']?(?P<tag>{_TAG})(?![\w${{/:@=])"
)
_TAG_KEY = re.compile(rf"(?i:tag|version)[\"']?[ \t]{{0,9}}[:=][ \t]{{0,9}}[\"']?(?P<tag>{_TAG})(?=[\"' \t,;}})\r]|$)")
_WORD = re.compile(rf"(?<![\w./@-]){_TAG}(?![\w/:@])")
#: A tag that means the same image wherever it stands, unlike a mere version.
_DISTINCT = re.compile(r"(?=.*[A-Za-z])(?=.*[0-9]\.[0-9])(?=.*-)[\w.-]+")
_LTS = re.compile(r"(?<![a-z])lts(?![a-z])", re.IGNORECASE)
_NEAR = 5  # lines between the keys of an image and of its tag
_CLIPPED = 2000  # characters of a line that are read beside a place
_MAX_VALUES = 50  # of a variable in a file


@dataclass(frozen=True)
class Place:
    """A tag, and the digest behind it, at ``text[start:end]`` of a file; ``line`` counts from 1.

    ``alone``: the name of the image is not before it.  ``skip_reason``: why it is no pin; empty for a pin.
    """

    path: str
    line: int
    start: int
    end: int
    image: str
    tag: str
    image_type: ImageType
    alone: bool
    skip_reason: str


class Source:
    """A file's path and text, with its lines, as git splits them, and the offset of each."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text = path, text
        self.lines = text.split("\n")
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]

    @cached_property
    def values(self) -> Mapping[str, list[re.Match[str]]]:
        """The values that are given to each variable."""
        values: defaultdict[str, list[re.Match[str]]] = defaultdict(list)
        for match in _ASSIGNED.finditer(self.text):
            values[match["name"]].append(match)
        return values

    def place(self, span: tuple[int, int], image: str, tag: str, *, alone: bool = True, skip_reason: str = "") -> Place:
        """Return a place in this file; its type is LTS if its path, its line or a line beside it says so."""
        line = bisect_right(self.starts, span[0])
        beside = [self.path, *(self.lines[number - 1][:_CLIPPED] for number in (line, *self.beside(line)))]
        image_type: ImageType = "lts" if any(map(_LTS.search, beside)) else "dev"
        return Place(self.path, line, *span, image, tag, image_type, alone, skip_reason)

    def beside(self, line: int) -> Iterator[int]:
        """Yield the lines near a line that are of the same mapping: those after it, then those before it."""
        column = self._column(line)
        for step in (1, -1):
            for number in range(line + step, line + step * (_NEAR + 1), step):
                first = number if step > 0 else number + 1  # an item of a list begins with it
                if not 0 < number <= len(self.lines) or self._column(number) < column:
                    break
                if self.lines[first - 1][:_CLIPPED].lstrip().startswith("- "):
                    break
                if self._column(number) == column:
                    yield number

    def _column(self, line: int) -> int:
        """Return the column of a line's first sign after the hyphen of a list; -1 for an empty line."""
        text = self.lines[line - 1][:_CLIPPED]
        return len(text) - len(text.lstrip(" \t-")) if text.strip() else -1


def places(source: Source) -> list[Place]:
    """Return the places in a file that names their images, in order."""
    found: dict[int, Place] = {}
    matches = [*_NAMED.finditer(source.text), *_UNREGISTERED.finditer(source.text)]
    end = 0
    for match in sorted(matches, key=re.Match.start):
        image = _image(source.text, match)
        if image and match.start() >= end:
            end = match.end()
            for place in _places(source, match, image):
                known = found.get(place.start)
                if known is None or known.skip_reason:
                    found[place.start] = place
    return sorted(found.values(), key=lambda place: place.start)


def _image(text: str, match: re.Match[str]) -> str:
    """Return the name of the known image that a match names; empty if it names none."""
    path, before = match["path"], text[max(match.start() - 255, 0) : match.start()]
    if _LINK.search(before):
        return ""
    if match.re is _UNREGISTERED:
        hub = f"docker.io/{path}"  # what a name without a registry means
        return hub if hub in CUDA.images and before[-1:] not in ("/", "#") else _HOMES[path]
    try:
        image = ImageRef.parse(f"{match['registry']}/{path}")
    except RunbookError:
        return ""
    return image.name if "/" in path and family_of(image) else ""


def _places(source: Source, match: re.Match[str], image: str) -> Iterator[Place]:
    """Yield the place of a match, or where it has no tag itself the places of its tag."""
    tag, more = match["tag"] or "", match["more"]
    if tag:
        reason = "a part of its tag is a variable" if more else _problem(image, tag)
        end = match.end("digest") if match["digest"] else match.end("tag")
        reason = "its digest is not written out" if source.text[end : end + 1] == "@" else reason
        alone = match.re is _UNREGISTERED or match["sign"] == "#"  # enroot's notation is not that of a reference
        yield source.place((match.start("tag"), end), image, tag, alone=alone, skip_reason=reason)
        return
    elsewhere = _assigned(source, match, image) if more else list(_beside(source, match, image))
    yield from elsewhere
    if match.re is _NAMED and not elsewhere:
        reason = "it has a digest and no tag" if match["digest"] else "it names no tag"
        if more:
            reason = "its tag is a variable, and this file gives it no complete tag"
        yield source.place(match.span("path"), image, "", skip_reason=reason)


def _problem(image: str, tag: str) -> str:
    """Return why a tag is not that of a release of the image; empty if it is."""
    if not re.search("[0-9]", tag):
        return f"{tag} is a name whose image changes"
    try:
        read_tag(image, tag)
    except RunbookError as error:
        return str(error)
    return ""


def read_tag(image: str, tag: str) -> Tag:
    """Return a tag as the family of its image reads it.  Raises RunbookError for text of another format."""
    return (family_of(ImageRef.parse(image)) or OTHER).read(tag)


def _assigned(source: Source, match: re.Match[str], image: str) -> Sequence[Place]:
    """Return the values of the variable that is the tag of a match."""
    variable = _VARIABLE.match(source.text, match.start("more"))
    is_part = variable and _COMPOSED.match(source.text, variable.end())
    return _values(source, image, variable["name"]) if variable and not is_part else ()


@lru_cache(maxsize=100)
def _values(source: Source, image: str, name: str) -> Sequence[Place]:
    values = [value for value in source.values.get(name, [])[:_MAX_VALUES] if not _problem(image, value["tag"])]
    return [source.place(value.span("tag"), image, value["tag"]) for value in values]


def _beside(source: Source, match: re.Match[str], image: str) -> Iterator[Place]:
    """Yield the tag at a key beside that of the image, such as ``repository: …`` and ``tag: …``."""
    line = bisect_right(source.starts, match.start())
    numbers = [line, *source.beside(line)]
    has_digest = any("sha256:" in source.lines[number - 1][:_CLIPPED] for number in numbers)
    for number in numbers:
        begin = source.starts[number - 1]
        start = match.end() if number == line else begin
        value = _TAG_KEY.search(source.text, start, min(begin + _CLIPPED, begin + len(source.lines[number - 1])))
        if value and not _problem(image, value["tag"]):
            reason = "its digest stands apart from it" if has_digest else ""
            yield source.place(value.span("tag"), image, value["tag"], skip_reason=reason)
            return


def distinct_tags(found: Iterable[Place]) -> Mapping[str, set[str]]:
    """Return the images of each tag of the places that stands for them wherever it occurs."""
    images: defaultdict[str, set[str]] = defaultdict(set)
    for place in found:
        if not place.skip_reason and _DISTINCT.fullmatch(place.tag):
            images[place.tag].add(place.image)
    return images


def lone_tags(source: Source, images: Mapping[str, set[str]], known: Sequence[Place]) -> Iterator[Place]:
    """Yield the words outside the ``known`` places of a file that are a tag of ``images``, which are given by tag."""
    starts = {place.start for place in known}
    of_file = {place.image for place in known}
    for word in _WORD.finditer(source.text):
        candidates = images.get(word[0], set())
        if not candidates or word.start() in starts:
            continue
        candidates = candidates & of_file or candidates
        reason = f"it may be a tag of {' or '.join(sorted(candidates))}" if len(candidates) > 1 else ""
        if source.text[word.start() - 1 : word.start()] == ":":
            reason = "the name of its image is not written out"
        yield source.place(word.span(), min(candidates), word[0], skip_reason=reason)
