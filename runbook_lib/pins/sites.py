"""The pin sites of a repository, and the pins that its files have at these sites."""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Literal

from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.images.families import NGC, AnyFamily, edition
from runbook_lib.images.reference import ImageRef, ImageType, Tag
from runbook_lib.pins import tag_parts
from runbook_lib.pins.finders import BuildArg, Counted, DockerArg, Finder, MatrixRows, PinLocation
from runbook_lib.pins.gitlab_matrix import MatrixRow, rows
from runbook_lib.text.dockerfile import arguments

Texts = Mapping[str, str | None]


@dataclass(frozen=True)
class PinSite:
    """A file that contains the base image of a type, and the finder for it.

    A *lockstep* site must equal the target of a bump of its type, and is frozen in a bump of the other type.  Other
    sites are informational, compared with the pins of their type and never edited; with ``follows`` a bump moves older
    ones; or ``frozen``, a record that must not move and is compared with nothing.  ``ci`` is the reader of the file.
    ``needs``: the file must exist ``always``; if ``declared`` in a pins file; ``together`` with the other files of this
    kind, and once a matrix row distinguishes types or platforms; if ``named`` by a row of its type; or ``never``.
    ``dockerfile`` is the file that gets the build argument.  ``tag_form``: the file names only a part of the tag, which
    is in braces in this form.  ``group`` is the name of its group, and ``image`` the name of an image of its own.
    """

    path: str
    finder: Finder
    image_type: ImageType
    ci: Literal["github", "gitlab", "people"]
    lockstep: bool = True
    needs: Literal["always", "declared", "together", "named", "never"] = "never"
    frozen: bool = False
    follows: bool = False
    dockerfile: str = ""
    tag_form: str = ""
    group: str = ""
    image: str = ""

    @property
    def role(self) -> str:
        """``lockstep dev``, ``lockstep lts``, ``frozen``, ``follow`` or ``informational``."""
        if self.lockstep:
            return f"lockstep {self.image_type}"
        if self.follows:
            return "follow"
        return "frozen" if self.frozen else "informational"


@dataclass(frozen=True)
class Coupling:
    """A version that must fit the CUDA of the base image without naming it: groups ``version`` and ``cuda``."""

    path: str
    regex: re.Pattern[str]
    what: str
    image_types: frozenset[ImageType]


@dataclass(frozen=True)
class PinGroup:
    """Pins that move together: the name of their ``image``, and the ``family`` that reads their tags.

    ``edition``: a bump to a tag of another edition leaves the group; None for any.  ``title`` of a bump of this group
    alone; empty for that of the repository.  ``alone``: a bump moves it only if it names it, or if of several such
    groups it has the highest ``major`` version that the tag is not below.  ``leader``: the name of the group with
    which it moves; empty if it moves on its own.  ``digests``: lockstep pins that name a complete image have a digest.
    """

    image: str
    family: AnyFamily = NGC
    name: str = ""
    edition: str | None = None
    title: str = ""
    alone: bool = False
    major: int | None = None
    leader: str = ""
    digests: bool = False

    def target(self, text: str) -> Tag:
        """Parse a tag to move to.  Raises RunbookError for a tag of a different family or edition."""
        tag = self.family.read(text)
        if self.edition is not None and edition(tag) != self.edition:
            raise RunbookError(
                f"{text!r} is a tag of the edition {edition(tag) or '(plain)'}, and the pins of {self.image} are of "
                f"{self.edition or '(plain)'}."
            )
        return tag

    def accepts(self, text: str) -> bool:
        """Return True if a bump to this tag moves the group."""
        try:
            self.target(text)
        except RunbookError:
            return False
        return True


@dataclass(frozen=True)
class Sites:
    """The pin sites and couplings of a repository, and the groups of pins, the first of which is the main one.

    A matrix row with one of ``since_keys`` shows that the ``together`` files exist; ``file_key`` names the file that
    the row builds.  ``platforms`` are those that a build needs if no row names them.
    """

    groups: tuple[PinGroup, ...]
    pins: tuple[PinSite, ...]
    couplings: tuple[Coupling, ...] = ()
    since_keys: tuple[str, ...] = ()
    file_key: str = ""
    platforms: tuple[str, ...] = ()

    @property
    def image(self) -> str:
        """The name of the main group's image."""
        return self.groups[0].image

    @property
    def family(self) -> AnyFamily:
        """The family of the main group."""
        return self.groups[0].family

    def group_of(self, site: PinSite) -> PinGroup:
        """Return the group of a site."""
        return next(group for group in self.groups if group.name == site.group)

    def only(self, groups: Iterable[PinGroup]) -> "Sites":
        """Return only the sites of these groups."""
        chosen = tuple(groups)
        names = {group.name for group in chosen}
        return replace(self, groups=chosen, pins=tuple(site for site in self.pins if site.group in names))

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

    ``tag_form``: the file names only a part of the tag, which is in braces in this form.
    """

    site: PinSite
    location: PinLocation
    image: ImageRef
    tag: Tag
    tag_form: str = ""
    group: PinGroup = field(kw_only=True)

    @property
    def path(self) -> str:
        """The file."""
        return self.site.path

    @property
    def line(self) -> int:
        """The line, counted from 1."""
        return self.location.line

    @property
    def has_edition(self) -> bool:
        """True if the tag is of the edition that the group requires, if any."""
        return self.group.edition in (None, edition(self.tag))

    @property
    def lacks_digest(self) -> bool:
        """True if the pin should have a digest by its group, and has none."""
        return self.group.digests and self.site.lockstep and not self.tag_form and not self.image.digest

    @property
    def name(self) -> str:
        """File, line and selector, for messages."""
        return f"{self.path}:{self.line} ({self.location.selector})"


@dataclass(frozen=True)
class SiteReading:
    """The pins of a site, or the problem that prevents reading them."""

    site: PinSite
    pins: tuple[Pin, ...]
    problem: str = ""

    @property
    def argument(self) -> str:
        """The build argument that the site passes or declares; empty for other kinds of sites."""
        finder = self.site.finder
        if isinstance(finder, Counted):
            finder = finder.finder
        return finder.name if isinstance(finder, BuildArg | DockerArg) else ""


def read(texts: Texts, sites: Sites) -> tuple[SiteReading, ...]:
    """Read every site.  ``texts`` has each of ``sites.pin_paths``, None for a file that does not exist."""
    readings = []
    for site in sites.pins:
        text = texts.get(site.path)
        try:
            pins: tuple[Pin, ...] = ()
            if text is not None:
                pins = tuple(_pins(site, text, sites))
            elif reason := _needed(site, texts, sites):
                raise CannotTell(f"the file does not exist, but {reason}.")
            readings.append(SiteReading(site, pins))
        except RunbookError as error:
            readings.append(SiteReading(site, (), f"{site.path} ({site.role}): {error}"))
    return tuple(readings)


def _pins(site: PinSite, text: str, sites: Sites, *, only_tags: bool = False) -> Iterator[Pin]:
    """Yield the pins of a site; with ``only_tags`` no digests apart from their tag."""
    group = sites.group_of(site)
    name = site.image or group.image
    for location in site.finder.find(text, name):
        value, form = location.value, site.tag_form
        if location.part and not form:
            form = tag_parts.default_form(location.part)
        is_digest = tag_parts.part_of(form) == "digest"
        if is_digest and only_tags:
            continue
        try:
            if is_digest:
                value = f"{name}:{_tag_beside(location, site, text, sites)}@{value}"
            elif form:
                value = f"{name}:{tag_parts.compose(_with_parts(form, location, site, text, sites), value)}"
            if not site.lockstep and not re.match(rf"{re.escape(name)}(?![\w./-])", value):
                continue  # an informational site may name another image
            image = ImageRef.parse(value)
            if image.name != name:
                raise CannotTell(f"it names the image {image.name}; expected {name}.")
            pin = Pin(site, location, image, group.family.read(image.tag or ""), form, group=group)
        except RunbookError as error:
            raise CannotTell(f"line {location.line}, {location.selector}: {error}") from error
        yield pin


def siblings(site: PinSite, pins: Iterable[PinSite]) -> Iterator[PinSite]:
    """Yield the other sites with the image of a site in its file."""
    for other in pins:
        if (other.path, other.group, other.image) == (site.path, site.group, site.image) and other is not site:
            yield other


def unread_parts(site: PinSite, pins: Iterable[PinSite]) -> bool:
    """Return True if no other site of the file holds the tag of a digest, or a part that a ``*`` stands for."""
    forms = [other.tag_form for other in siblings(site, pins)]
    if tag_parts.part_of(site.tag_form) == "digest":
        return all(tag_parts.part_of(form) == "digest" for form in forms)
    same = [form for form in forms if tag_parts.skeleton(form) == tag_parts.skeleton(site.tag_form)]
    positions = {tag_parts.position(form) for form in (site.tag_form, *same)}
    return len(positions) <= site.tag_form.count(tag_parts.ANY)


def _with_parts(form: str, location: PinLocation, site: PinSite, text: str, sites: Sites) -> str:
    """Return the form with the nearest value of each part that other sites of the file hold in place of its ``*``."""
    parts: dict[int, PinLocation] = {}
    for other in siblings(site, sites.pins) if tag_parts.ANY in form else ():
        if tag_parts.skeleton(other.tag_form) != tag_parts.skeleton(form):
            continue
        number = tag_parts.position(other.tag_form)
        with contextlib.suppress(CannotTell):  # reported where the other site itself is read
            for part in other.finder.find(text, other.image or sites.group_of(other).image):
                nearest = parts.setdefault(number, part)
                if abs(part.start - location.start) < abs(nearest.start - location.start):
                    parts[number] = part
    pieces = form.split(tag_parts.ANY)
    result, own = pieces[0], tag_parts.position(form)
    for number, piece in enumerate(pieces[1:]):
        part_number = number + (number >= own)
        if part_number not in parts:
            raise CannotTell(f"no other pin of the file holds part {part_number + 1} of the tag {form}.")
        result += parts[part_number].value + piece
    return result


def _tag_beside(digest: PinLocation, site: PinSite, text: str, sites: Sites) -> Tag:
    """Return the tag of a digest that stands apart from it: that of the nearest pin of its group in its file."""
    tags: list[Pin] = []
    for other in siblings(site, sites.pins):
        with contextlib.suppress(CannotTell):  # reported where the other site itself is read
            tags += [pin for pin in _pins(other, text, sites, only_tags=True) if not pin.image.digest]
    if not tags:
        raise CannotTell("no other pin of the file names the tag of this digest.")
    return min(tags, key=lambda pin: abs(pin.location.start - digest.start)).tag


def dead_arguments(texts: Texts, readings: Sequence[SiteReading]) -> Iterator[tuple[SiteReading, str]]:
    """Yield the sites that pass a build argument without effect, with the reason, a clause without a full stop.

    The Dockerfile declares no such argument, or does not exist.
    """
    for reading in readings:
        path, name = reading.site.dockerfile, reading.argument
        if not reading.pins or not path or not name:
            continue
        dockerfile = texts.get(path)
        if dockerfile is None:
            yield reading, f"{name} is passed to {path}, which does not exist"
        elif name not in arguments(dockerfile):
            own = [other for other in readings if other.site.path == path and not other.site.dockerfile]
            declared = " and ".join(f"ARG {other.argument}" for other in own if other.argument)
            instead = f" (its image comes from {declared})" if declared else ""
            yield reading, f"{path} declares no ARG {name}, so it does nothing{instead}"


def unpassed_defaults(readings: Sequence[SiteReading]) -> Iterator[tuple[SiteReading, str]]:
    """Yield the defaults of a Dockerfile's ARG that no build overrides, though builds pass others to that file."""
    for reading in readings:
        site, name = reading.site, reading.argument
        passing = [build for build in readings if build.site.dockerfile == site.path]
        passed = {build.argument for build in passing if build.pins}
        # A build that currently passes no image may compute it.
        known = {build.argument for build in passing}
        if reading.pins and name and not site.dockerfile and passed and name not in known:
            yield reading, f"Nothing passes ARG {name} (CI passes {', '.join(sorted(passed))}): this default is built."


def _needed(site: PinSite, texts: Texts, sites: Sites) -> str:
    """Return the reason why the file must exist; empty if it need not."""
    if site.needs == "always":
        return "every known layout of the repository has it"
    if site.needs == "declared":
        return "the pins file names it"
    if site.needs == "together":
        for sibling in sites.pins:
            if sibling.needs == "together" and texts.get(sibling.path) is not None:
                return f"{sibling.path} does"
    for row in _rows(texts, sites):
        key = next(filter(row.texts, sites.since_keys), "")
        if key and site.needs == "together":
            return f"the matrix row in line {row.line} has {key}, as rows have only since that file exists"
        if key and site.needs == "named" and PurePosixPath(site.path).name in row.texts(sites.file_key):
            return f"the matrix row in line {row.line} builds it"
    return ""


def _rows(texts: Texts, sites: Sites) -> Iterator[MatrixRow]:
    """Yield the rows of pins of any type."""
    for site in sites.pins:
        finder = site.finder
        if not isinstance(finder, MatrixRows):
            continue
        try:
            matrix = rows(texts.get(site.path) or "")
        except CannotTell:
            continue  # the site of the matrix itself reports this
        yield from (row for row in matrix if finder.value in row.texts(finder.key))
