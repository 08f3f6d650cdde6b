"""The pin sites of a repository, and the pins that its files have there."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.images.families import NGC, AnyFamily
from runbook_lib.images.reference import ImageRef, ImageType, Tag
from runbook_lib.pins.finders import BuildArg, Counted, DockerArg, Finder, MatrixRows, Place
from runbook_lib.pins.gitlab_matrix import MatrixRow, rows
from runbook_lib.text.dockerfile import arguments

Texts = Mapping[str, str | None]


@dataclass(frozen=True)
class PinSite:
    """A file that names the base image of a type, and how it is found there.

    A *lockstep* site must equal the target of a bump of its type, and is frozen in a bump of the other type.  A site
    that is not is informational: compared with the pins of its type, and never edited; or ``frozen``, a record that
    must not move, and that is compared with nothing.  ``ci`` is who reads it.
    ``needs`` says when the file must be there: ``always``; ``declared`` in a pins file; ``together`` with the others
    that say so, and as soon as a row of the matrix tells types or platforms apart; ``named`` by a row of its type; or
    ``never``.  ``dockerfile`` is what a build argument is passed to.
    """

    path: str
    finder: Finder
    image_type: ImageType
    ci: Literal["github", "gitlab", "people"]
    lockstep: bool = True
    needs: Literal["always", "declared", "together", "named", "never"] = "never"
    frozen: bool = False
    dockerfile: str = ""

    @property
    def role(self) -> str:
        """``lockstep dev``, ``lockstep lts``, ``frozen`` or ``informational``."""
        return f"lockstep {self.image_type}" if self.lockstep else "frozen" if self.frozen else "informational"


@dataclass(frozen=True)
class Coupling:
    """A version that must fit the CUDA of the base image without naming it: groups ``version`` and ``cuda``."""

    path: str
    regex: re.Pattern[str]
    what: str
    image_types: frozenset[ImageType]


@dataclass(frozen=True)
class Sites:
    """The pin sites and couplings of a repository, and ``image``, the name that every pin has.

    A row of its matrix that has one of ``since_keys`` tells that the ``together`` files exist; ``file_key`` names the
    file that the row builds.  ``family`` reads the tags; ``platforms`` are those that a build needs where no row says.
    """

    image: str
    pins: tuple[PinSite, ...]
    couplings: tuple[Coupling, ...] = ()
    since_keys: tuple[str, ...] = ()
    file_key: str = ""
    family: AnyFamily = NGC
    platforms: tuple[str, ...] = ()

    @property
    def pin_paths(self) -> tuple[str, ...]:
        """The files that ``check`` reads."""
        dockerfiles = (site.dockerfile for site in self.pins if site.dockerfile)
        return tuple(dict.fromkeys([*(site.path for site in self.pins), *dockerfiles]))

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that ``plan`` reads."""
        return tuple(dict.fromkeys([*self.pin_paths, *(coupling.path for coupling in self.couplings)]))

    def known(self, texts: Texts) -> bool:
        """Return True if the texts are of such a repository, with pins in a known layout."""
        return any(texts.get(path) is not None for path in self.telling)

    @property
    def telling(self) -> tuple[str, ...]:
        """The files by which such a repository is known."""
        told = (site.path for site in self.pins if site.needs in ("always", "declared", "together"))
        return tuple(dict.fromkeys(told))


@dataclass(frozen=True)
class Pin:
    """An image named in a file; ``tag`` as its family reads it."""

    site: PinSite
    place: Place
    image: ImageRef
    tag: Tag

    @property
    def line(self) -> int:
        """The line, counted from 1."""
        return self.place.line

    @property
    def where(self) -> str:
        """File, line and selector, as messages name the pin."""
        return f"{self.site.path}:{self.line} ({self.place.selector})"


@dataclass(frozen=True)
class Reading:
    """The pins of a site, or the problem that prevents reading them."""

    site: PinSite
    pins: tuple[Pin, ...]
    problem: str = ""


def read(texts: Texts, sites: Sites) -> tuple[Reading, ...]:
    """Read every site.  ``texts`` holds each of ``sites.pin_paths``, None for a file that does not exist."""
    readings = []
    for site in sites.pins:
        text = texts.get(site.path)
        try:
            if text is not None:
                readings.append(Reading(site, tuple(_pins(site, text, sites))))
            elif reason := _needed(site, texts, sites):
                raise CannotTell(f"the file does not exist, but {reason}.")
            else:
                readings.append(Reading(site, ()))
        except RunbookError as error:
            readings.append(Reading(site, (), f"{site.path} ({site.role}): {error}"))
    return tuple(readings)


def _pins(site: PinSite, text: str, sites: Sites) -> Iterator[Pin]:
    name = sites.image
    for place in site.finder.find(text, name):
        if not site.lockstep and not re.match(rf"{re.escape(name)}(?![\w./-])", place.value):
            continue  # an informational site may well name another image
        try:
            image = ImageRef.parse(place.value)
            if image.name != name:
                raise CannotTell(f"it names the image {image.name}; expected {name}.")
            pin = Pin(site, place, image, sites.family.read(image.tag or ""))
        except RunbookError as error:
            raise CannotTell(f"line {place.line}, {place.selector}: {error}") from error
        yield pin


def dead(texts: Texts, readings: Sequence[Reading], sites: Sites) -> Iterator[tuple[Reading, str]]:
    """The sites whose build argument does nothing, with the reason, without the full stop.

    The Dockerfile declares no such argument, or does not exist; what it takes its image from instead is named.
    """
    for reading in readings:
        site, name = reading.site, _argument(reading.site.finder)
        dockerfile = texts.get(site.dockerfile)
        if not reading.pins or not site.dockerfile or not name:
            continue
        if dockerfile is None:
            yield reading, f"{name} is passed to {site.dockerfile}, which does not exist"
        elif name not in arguments(dockerfile):
            taken = [_argument(it.finder) for it in sites.pins if it.path == site.dockerfile and not it.dockerfile]
            told = " and ".join(f"ARG {it}" for it in taken if it)
            instead = f" (its image comes from {told})" if told else ""
            yield reading, f"{site.dockerfile} declares no ARG {name}, so it does nothing{instead}"


def unpassed(readings: Sequence[Reading]) -> Iterator[tuple[Reading, str]]:
    """The defaults of a Dockerfile's ARG that nothing passes, though builds pass others to that Dockerfile."""
    for reading in readings:
        site, name = reading.site, _argument(reading.site.finder)
        given = [it for it in readings if it.site.dockerfile == site.path]
        passed = {_argument(it.site.finder) for it in given if it.pins}
        known = {_argument(it.site.finder) for it in given}  # one that holds no image now may be worked out by a build
        if reading.pins and name and not site.dockerfile and passed and name not in known:
            yield reading, f"Nothing passes ARG {name} (CI passes {', '.join(sorted(passed))}): this default is built."


def _argument(finder: Finder) -> str:
    inner = finder.finder if isinstance(finder, Counted) else finder
    return inner.name if isinstance(inner, BuildArg | DockerArg) else ""


def _needed(site: PinSite, texts: Texts, sites: Sites) -> str:
    """Return why the file must exist; empty where it need not."""
    if site.needs == "always":
        return "every known layout of the repository has it"
    if site.needs == "declared":
        return "the pins file names it"
    later = [(row, key) for row in _rows(texts, sites) if (key := next(filter(row.texts, sites.since_keys), ""))]
    if site.needs == "together":
        if sibling := next((s.path for s in sites.pins if s.needs == "together" and texts.get(s.path) is not None), ""):
            return f"{sibling} does"
        if later:
            return f"the matrix row in line {later[0][0].line} has {later[0][1]}, as rows have only since it was made"
    if site.needs == "named":
        for row, _ in later:
            if PurePosixPath(site.path).name in row.texts(sites.file_key):
                return f"the matrix row in line {row.line} builds it"
    return ""


def _rows(texts: Texts, sites: Sites) -> list[MatrixRow]:
    """The rows of pins of any type."""
    found: list[MatrixRow] = []
    for site in sites.pins:
        if isinstance(finder := site.finder, MatrixRows):
            with suppress(CannotTell):  # told by the reading of the matrix itself
                found += [row for row in rows(texts.get(site.path) or "") if finder.value in row.texts(finder.key)]
    return found
