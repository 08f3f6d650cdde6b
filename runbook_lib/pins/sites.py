"""The pin sites of a repository, and the pins that its files have at these sites."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Literal

from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.images.families import NGC, Family
from runbook_lib.images.reference import ImageRef, ImageType, Tag
from runbook_lib.pins.finders import (
    KEY,
    BuildArg,
    Counted,
    DockerArg,
    Finder,
    MatrixRow,
    MatrixRows,
    PinLocation,
    YamlValue,
    matrix_rows,
)
from runbook_lib.text.dockerfile import arguments
from runbook_lib.text.yaml_spans import is_plain, is_text

_YAML = re.compile(r"\.ya?ml(?:\.\w+)?$|\.tpl$")  # with templates of YAML

#: Why a file must exist, by what needs it; empty if nothing does.
_REASONS = {"always": "every known layout of the repository has it", "declared": "the pins file names it", "never": ""}
#: The keys of matrix rows that exist only since the files with ``needs="together"`` do.
_SINCE = ("IMAGE_TYPE", "PLATFORM")

Texts = Mapping[str, str | None]


@dataclass(frozen=True)
class PinSite:
    """A file that contains the base image of a type, and the finder for it.

    A *lockstep* site must equal the target of a bump of its type, and is frozen in a bump of the other type.  Other
    sites are never edited: *informational* ones are compared with the pins of their type, and *frozen* ones, records
    that must not move, with nothing.  ``ci`` is the reader of the file.
    ``needs``: the file must exist ``always``; if ``declared`` in a pins file; ``together`` with the other files of this
    kind, and once a matrix row distinguishes types or platforms; if ``named`` by a row of its type; or ``never``.
    ``dockerfile`` is the file that gets the build argument.  ``image`` is the name of the image, empty for the
    repository's first one, and ``value`` the part of the reference that the file contains.  ``edition`` is that of the
    tags, where an image is pinned in several; None for any.
    """

    path: str
    finder: Finder
    image_type: ImageType
    ci: Literal["github", "gitlab", "people"]
    kind: Literal["lockstep", "frozen", "informational"] = "lockstep"
    needs: Literal["always", "declared", "together", "named", "never"] = "never"
    dockerfile: str = ""
    image: str = ""
    value: Literal["image", "tag"] = "image"
    edition: str | None = None

    @property
    def lockstep(self) -> bool:
        """True if a bump of its type moves it."""
        return self.kind == "lockstep"

    @property
    def role(self) -> str:
        """``lockstep dev``, ``lockstep lts``, ``frozen`` or ``informational``."""
        return f"lockstep {self.image_type}" if self.lockstep else self.kind

    @property
    def search(self) -> Finder:
        """The finder, whatever the number of its places is."""
        return self.finder.finder if isinstance(self.finder, Counted) else self.finder

    @property
    def build_argument(self) -> tuple[str, str]:
        """The Dockerfile and the build argument that the site declares or passes to it; empty where it names none."""
        finder = self.search
        if isinstance(finder, DockerArg):
            return self.path, finder.name
        return (self.dockerfile, finder.name) if isinstance(finder, BuildArg) else ("", "")


@dataclass(frozen=True)
class Coupling:
    """A version that must fit the CUDA of the base image without naming it: groups ``version`` and ``cuda``."""

    path: str
    regex: re.Pattern[str]
    what: str
    image_type: ImageType


@dataclass(frozen=True)
class PinnedImage:
    """An image that a repository pins, and the family of its tags.

    ``short`` is the name by which a tag parameter chooses it, as in ``cuda:13.0.2``; empty for the only image.
    """

    name: str
    family: Family = NGC
    short: str = ""


@dataclass(frozen=True)
class Sites:
    """The pin sites and couplings of a repository, and the images that they pin, the first of which is the main one.

    ``platforms`` are those that a build needs if no row names them.
    """

    images: tuple[PinnedImage, ...]
    pins: tuple[PinSite, ...]
    couplings: tuple[Coupling, ...] = ()
    platforms: tuple[str, ...] = ()

    @property
    def image(self) -> str:
        """The name of the main image."""
        return self.images[0].name

    @property
    def family(self) -> Family:
        """The family of the main image."""
        return self.images[0].family

    def image_of(self, site: PinSite) -> PinnedImage:
        """Return the image of a site."""
        return next((image for image in self.images if image.name == site.image), self.images[0])

    def only(self, image: PinnedImage) -> "Sites":
        """Return only the sites of one image."""
        return replace(self, images=(image,), pins=tuple(site for site in self.pins if self.image_of(site) == image))

    @property
    def pin_paths(self) -> tuple[str, ...]:
        """The files that ``check`` reads."""
        paths = [site.path for site in self.pins]
        paths += [site.dockerfile for site in self.pins if site.dockerfile]
        return tuple(dict.fromkeys(paths))

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that ``plan`` reads."""
        return tuple(dict.fromkeys((*self.pin_paths, *(coupling.path for coupling in self.couplings))))

    @property
    def marker_paths(self) -> tuple[str, ...]:
        """The files by which such a repository is recognized."""
        required = (site.path for site in self.pins if site.needs in ("always", "declared", "together"))
        return tuple(dict.fromkeys(required))

    def matches(self, texts: Texts) -> bool:
        """Return True if the texts are of such a repository, with pins in a known layout."""
        return any(texts.get(path) is not None for path in self.marker_paths)


@dataclass(frozen=True)
class Pin:
    """An image named in a file; ``tag`` as its family reads it.

    ``is_plain``: the file is YAML, and has the tag without quotes.
    """

    site: PinSite
    location: PinLocation
    image: ImageRef
    tag: Tag
    is_plain: bool

    @property
    def path(self) -> str:
        """The file."""
        return self.site.path

    @property
    def line(self) -> int:
        """The line, counted from 1."""
        return self.location.line

    @property
    def position(self) -> tuple[str, int]:
        """The file, and where the value begins in it: what tells a pin from others."""
        return self.path, self.location.start

    @property
    def name(self) -> str:
        """File, line and selector, for messages."""
        return f"{self.path}:{self.line} ({self.location.selector})"

    @property
    def lacks_quotes(self) -> bool:
        """True if a reader of the file takes the tag for a number: 26.10 for 26.1."""
        return self.is_plain and not is_text(self.location.value)


@dataclass(frozen=True)
class SiteReading:
    """The pins of a site, or the problem that prevents reading them."""

    site: PinSite
    pins: tuple[Pin, ...]
    problem: str = ""


def read(texts: Texts, sites: Sites) -> tuple[SiteReading, ...]:
    """Read every site.  ``texts`` has each of ``sites.pin_paths``, None for a file that does not exist."""
    readings = []
    for site in sites.pins:
        text = texts.get(site.path)
        try:
            pins: tuple[Pin, ...] = ()
            if text is not None:
                pins = tuple(_pins(site, text, sites.image_of(site)))
            elif reason := _needed(site, texts, sites):
                raise CannotTell(f"the file does not exist, but {reason}.")
            readings.append(SiteReading(site, pins))
        except RunbookError as error:
            readings.append(SiteReading(site, (), f"{site.path} ({site.role}): {error}"))
    return tuple(readings)


def _pins(site: PinSite, text: str, pinned: PinnedImage) -> Iterator[Pin]:
    for location in site.finder.find(text, pinned.name):
        value = location.value if site.value == "image" else f"{pinned.name}:{location.value}"
        if not site.lockstep and not re.match(rf"{re.escape(pinned.name)}(?![\w./-])", value):
            continue  # such a site may name another image
        try:
            image = ImageRef.parse(value)
            if image.name != pinned.name:
                raise CannotTell(f"it names the image {image.name}; expected {pinned.name}.")
            tag = pinned.family.read(image.tag or "")
            if text.startswith("@", location.end):
                raise CannotTell("a digest follows that the finder leaves out; let it find the digest too.")
        except RunbookError as error:
            raise CannotTell(f"line {location.line}, {location.selector}: {error}") from error
        is_yaml = isinstance(site.search, YamlValue) or _YAML.search(site.path)
        yield Pin(site, location, image, tag, bool(is_yaml) and is_plain(text, location.start, location.end))


def dead_arguments(texts: Texts, readings: Sequence[SiteReading]) -> Iterator[tuple[SiteReading, str]]:
    """Yield the sites that pass a build argument without effect, with the reason, a clause without a full stop.

    The Dockerfile declares no such argument, or does not exist.
    """
    for reading in readings:
        path, name = reading.site.build_argument
        if not reading.pins or not reading.site.dockerfile:
            continue
        dockerfile = texts.get(path)
        if dockerfile is None:
            yield reading, f"{name} is passed to {path}, which does not exist"
        elif name not in arguments(dockerfile):
            own = [other.site.build_argument[1] for other in readings if other.site.path == path]
            declared = " and ".join(f"ARG {argument}" for argument in own if argument)
            instead = f" (its image comes from {declared})" if declared else ""
            yield reading, f"{path} declares no ARG {name}, so it does nothing{instead}"


def unpassed_defaults(readings: Sequence[SiteReading]) -> Iterator[tuple[SiteReading, str]]:
    """Yield the defaults of a Dockerfile's ARG that no build overrides, though builds pass others to that file."""
    for reading in readings:
        site, name = reading.site, reading.site.build_argument[1]
        passing = [build for build in readings if build.site.dockerfile == site.path]
        passed = {build.site.build_argument[1] for build in passing if build.pins}
        # A build that currently passes no image may compute it.
        known = {build.site.build_argument[1] for build in passing}
        if reading.pins and name and not site.dockerfile and passed and name not in known:
            yield reading, f"Nothing passes ARG {name} (CI passes {', '.join(sorted(passed))}): this default is built."


def _needed(site: PinSite, texts: Texts, sites: Sites) -> str:
    """Return the reason why the file must exist; empty if it need not."""
    if site.needs in _REASONS:
        return _REASONS[site.needs]
    for sibling in sites.pins:
        if site.needs == sibling.needs == "together" and texts.get(sibling.path) is not None:
            return f"{sibling.path} does"
    for row in _rows(texts, sites):
        key = next(filter(row.texts, _SINCE), "")
        if key and site.needs == "together":
            return f"the matrix row in line {row.line} has {key}, as rows have only since that file exists"
        if key and PurePosixPath(site.path).name in row.texts("FILE"):
            return f"the matrix row in line {row.line} builds it"
    return ""


def _rows(texts: Texts, sites: Sites) -> Iterator[MatrixRow]:
    """Yield the rows of pins of any type."""
    for site in sites.pins:
        finder = site.finder
        if not isinstance(finder, MatrixRows):
            continue
        try:
            matrix = matrix_rows(texts.get(site.path) or "")
        except CannotTell:
            continue  # the site of the matrix itself reports this
        yield from (row for row in matrix if finder.value in row.texts(KEY))
