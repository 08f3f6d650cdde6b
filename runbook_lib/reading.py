"""What the files of a repository say: its pin sites as we know them, and the pins that stand there."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from runbook_lib.bump import ImageType
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.image import ImageRef, NgcTag
from runbook_lib.locate import Finder, MatrixRows, Place
from runbook_lib.matrix import Row, rows

Texts = Mapping[str, str | None]


@dataclass(frozen=True)
class PinSite:
    """A file that names the base image of a type, and how it is found there.

    A *lockstep* site must equal the target of a bump of its type, and is frozen in a bump of the other type.  A site
    that is not is informational: compared with the pins of its type, and never edited.  ``ci`` is who reads it.
    ``needs`` says when the file must be there: ``always``; ``together`` with the others that say so, and as soon as a
    row of the matrix tells types or platforms apart; ``named`` by a row of its type; or ``never``.
    """

    path: str
    finder: Finder
    image_type: ImageType
    ci: Literal["github", "gitlab", "people"]
    lockstep: bool = True
    needs: Literal["always", "together", "named", "never"] = "never"

    @property
    def role(self) -> str:
        """``lockstep dev``, ``lockstep lts`` or ``informational``."""
        return f"lockstep {self.image_type}" if self.lockstep else "informational"


@dataclass(frozen=True)
class Coupling:
    """A version that must fit the CUDA of the base image without naming it: groups ``version`` and ``cuda``."""

    path: str
    regex: re.Pattern[str]
    what: str
    image_types: frozenset[ImageType]


@dataclass(frozen=True)
class Sites:
    """What is known of a repository: its pin sites and couplings, and ``image``, the name that every pin has.

    A row of its matrix that has one of ``since_keys`` tells that the ``together`` files exist; ``file_key`` names the
    file that the row builds.
    """

    image: str
    pins: tuple[PinSite, ...]
    couplings: tuple[Coupling, ...] = ()
    since_keys: tuple[str, ...] = ()
    file_key: str = ""

    @property
    def pin_paths(self) -> tuple[str, ...]:
        """The files that ``check`` reads."""
        return tuple(dict.fromkeys(site.path for site in self.pins))

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that ``plan`` reads."""
        return tuple(dict.fromkeys([*self.pin_paths, *(coupling.path for coupling in self.couplings)]))

    def known(self, texts: Texts) -> bool:
        """Whether the texts are of such a repository, with pins in a layout that we know."""
        return any(texts.get(site.path) is not None for site in self.pins if site.needs in ("always", "together"))


@dataclass(frozen=True)
class Pin:
    """An image named in a file."""

    site: PinSite
    place: Place
    image: ImageRef

    @property
    def line(self) -> int:
        """Counted from 1."""
        return self.place.line

    @property
    def tag(self) -> NgcTag:
        """The month it names."""
        return NgcTag.parse(self.image.tag or "")


@dataclass(frozen=True)
class Reading:
    """What a site holds: its pins, or the problem that keeps us from telling."""

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
                readings.append(Reading(site, tuple(_pins(site, text, sites.image))))
            elif reason := _needed(site, texts, sites):
                raise CannotTell(f"the file does not exist, but {reason}.")
            else:
                readings.append(Reading(site, ()))
        except RunbookError as error:
            readings.append(Reading(site, (), f"{site.path} ({site.role}): {error}"))
    return tuple(readings)


def _pins(site: PinSite, text: str, name: str) -> Iterator[Pin]:
    for place in site.finder.find(text, name):
        if not site.lockstep and not place.value.startswith(name):
            continue  # an informational site may well name another image
        try:
            pin = Pin(site, place, ImageRef.parse(place.value))
            if pin.image.name != name:
                raise CannotTell(f"it names the image {pin.image.name}; expected {name}.")
            pin.tag  # noqa: B018 - raises for what is no month
        except RunbookError as error:
            raise CannotTell(f"line {place.line}, {place.selector}: {error}") from error
        yield pin


def _needed(site: PinSite, texts: Texts, sites: Sites) -> str:
    """Why the file must exist; empty where it need not."""
    if site.needs == "always":
        return "every known layout of the repository has it"
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


def _rows(texts: Texts, sites: Sites) -> list[Row]:
    """The rows of pins of any type."""
    found: list[Row] = []
    for site in sites.pins:
        if isinstance(finder := site.finder, MatrixRows):
            with suppress(CannotTell):  # told by the reading of the matrix itself
                found += [row for row in rows(texts.get(site.path) or "") if finder.value in row.texts(finder.key)]
    return found
