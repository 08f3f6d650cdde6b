"""The check that all pins of a repository agree."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from runbook_lib.images.reference import ImageRef, ImageType, Tag
from runbook_lib.pins.sites import Pin, SiteReading, Sites, Texts, dead_arguments, read, unpassed_defaults

#: The state of one pin.
PinState: TypeAlias = Literal["in sync", "out of sync", "lagging", "ahead", "frozen", "cannot tell"]
#: The state of several pins, the best one first.
Agreement: TypeAlias = Literal["in sync", "cannot tell", "out of sync"]


@dataclass(frozen=True)
class PinVerdict:
    """The state of a pin compared with the others; ``line`` is 0 and ``image`` empty if no pin could be read."""

    path: str
    line: int
    selector: str
    image: str
    role: str
    state: PinState
    sentence: str

    @property
    def site(self) -> str:
        """File and line in the format of editors and terminals."""
        return f"{self.path}:{self.line}" if self.line else self.path


def check_pins(
    texts: Texts, sites: Sites, expected: Tag | None = None, image_type: ImageType = "dev"
) -> tuple[PinVerdict, ...]:
    """Compare the pins of each image, type and declared edition with the newest among them.

    ``expected`` is the tag that the pins of the first image and of ``image_type`` should have instead.
    Pins of sites that are not lockstep are *lagging* or *ahead* if they differ; so is a build argument without effect.
    A site that cannot be read is one verdict, and does not hide the others.  ``texts`` has each of ``sites.pin_paths``.
    """
    readings = list(read(texts, sites))
    remarks: dict[tuple[str, int], str] = {}
    for reading, reason in list(dead_arguments(texts, readings)):
        site = replace(reading.site, kind="informational")
        moot = tuple(replace(pin, site=site) for pin in reading.pins)
        remarks |= {pin.position: f"This is a dead build argument: {reason}." for pin in moot}
        readings[readings.index(reading)] = SiteReading(site, moot)
    references, conflicts = _newest(readings, sites), _conflicting_digests(readings)
    if expected is not None:
        for of_edition in (None, expected.edition):
            references[sites.image, image_type, of_edition] = expected
    for reading, sentence in unpassed_defaults(readings):
        for pin in reading.pins:
            remarks[pin.position] = sentence
    verdicts: list[PinVerdict] = []
    for reading in readings:
        site = reading.site
        reference = references.get((sites.image_of(site).name, site.image_type, site.edition))
        verdicts += _verdicts(reading, reference, remarks, conflicts)
    return tuple(verdicts)


def _newest(readings: Sequence[SiteReading], sites: Sites) -> dict[tuple[str, ImageType, str | None], Tag]:
    """Return the newest tag of the lockstep pins by image, type and edition, and of all editions."""
    newest: dict[tuple[str, ImageType, str | None], Tag] = {}
    for reading in readings:
        site = reading.site
        for pin in reading.pins if site.lockstep else ():
            for of_edition in (None, site.edition):
                key = sites.image_of(site).name, site.image_type, of_edition
                if key not in newest or newest[key] < pin.tag:
                    newest[key] = pin.tag
    return newest


def _conflicting_digests(readings: Sequence[SiteReading]) -> dict[tuple[str, int], str]:
    """Return a sentence, by path and start, for each lockstep pin whose digest differs from an equal tag's before.

    Pins of different platforms may have the digests of their platforms.
    """
    first: dict[tuple[str, ImageType, str, str], Pin] = {}
    conflicts = {}
    for pin in (pin for reading in readings for pin in reading.pins):
        if not pin.site.lockstep or not pin.image.digest:
            continue
        key = pin.image.name, pin.site.image_type, str(pin.tag), pin.location.platform
        known = first.setdefault(key, pin)
        if known.image.digest != pin.image.digest:
            sentence = f"{pin.name} names another digest of {pin.tag} than {known.path}:{known.line}."
            conflicts[pin.position] = sentence
    return conflicts


def _verdicts(
    reading: SiteReading,
    reference: Tag | None,
    remarks: Mapping[tuple[str, int], str],
    conflicts: Mapping[tuple[str, int], str],
) -> Iterator[PinVerdict]:
    site = reading.site
    if reading.problem:
        yield PinVerdict(site.path, 0, "", "", site.role, "cannot tell", reading.problem)
    for pin in reading.pins:
        state, sentence = _compare(pin, reference)
        if state == "in sync" and (conflict := conflicts.get(pin.position)):
            state, sentence = "out of sync", conflict
        if remark := remarks.get(pin.position):
            sentence = f"{sentence or f'{pin.name} names {pin.tag}.'} {remark}"
        yield PinVerdict(site.path, pin.line, pin.location.selector, str(pin.image), site.role, state, sentence)


def _compare(pin: Pin, reference: Tag | None) -> tuple[PinState, str]:
    image_type = pin.site.image_type
    if pin.site.kind == "frozen":
        return "frozen", ""
    if reference is None:
        return "cannot tell", f"{pin.name} names {pin.tag}, and no {image_type} pin could be read to compare it with."
    if pin.site.lockstep and pin.site.edition not in (None, pin.tag.edition):
        return "out of sync", f"{pin.name} names {pin.tag}, and its edition should be {pin.site.edition!r}."
    if pin.site.lockstep and pin.lacks_quotes:
        return "out of sync", f'{pin.name} has no quotes, so YAML reads a number: write "{pin.tag}".'
    if pin.tag == reference:
        return "in sync", ""
    if pin.site.lockstep:
        return "out of sync", f"{pin.name} names {pin.tag}, the {image_type} pins should be {reference}."
    sentence = f"{pin.name} names {pin.tag}, the {image_type} pins {reference}."
    return ("lagging" if pin.tag < reference else "ahead"), sentence


def lockstep_tags(verdicts: Iterable[PinVerdict], image_type: ImageType | None = None) -> dict[str, tuple[str, ...]]:
    """Return the tags that the lockstep pins of one type, or of all types, have: by image, each once."""
    tags: dict[str, tuple[str, ...]] = {}
    for pin in verdicts:
        if pin.image and pin.role.startswith(f"lockstep {image_type or ''}"):
            image = ImageRef.parse(pin.image)
            tags[image.name] = tuple(dict.fromkeys((*tags.get(image.name, ()), image.tag or "")))
    return tags


def outcome(verdicts: Sequence[PinVerdict], *, strict: bool = False) -> Agreement:
    """Return the state of all pins: one pin that is out of sync decides, even if others cannot be read.

    Sites that only inform decide nothing, unless ``strict``; a frozen one only if it cannot be read.
    """
    states = {verdict.state for verdict in verdicts if strict or verdict.role != "informational"}
    if states & {"out of sync", "lagging", "ahead"}:
        return "out of sync"
    return "cannot tell" if "cannot tell" in states or not states else "in sync"
