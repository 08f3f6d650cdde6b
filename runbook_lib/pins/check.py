"""The check that all pins of a repository agree."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from runbook_lib.images.reference import ImageType, Tag
from runbook_lib.pins.sites import Pin, Reading, Sites, Texts, dead, read, unpassed

#: The state of one pin.
Answer: TypeAlias = Literal["in sync", "out of sync", "lagging", "ahead", "frozen", "cannot tell"]


@dataclass(frozen=True)
class Verdict:
    """The state of a pin compared with the others; ``line`` is 0 and ``image`` empty where no pin could be read."""

    path: str
    line: int
    selector: str
    image: str
    role: str
    answer: Answer
    sentence: str

    @property
    def site(self) -> str:
        """File and line, as editors and terminals understand them."""
        return f"{self.path}:{self.line}" if self.line else self.path


def check_pins(
    texts: Texts, sites: Sites, expected: Tag | None = None, image_type: ImageType = "dev"
) -> tuple[Verdict, ...]:
    """Compare the pins of each type with the newest of them, or those of ``image_type`` with an ``expected`` tag.

    Pins of sites that are not lockstep are *lagging* (or *ahead*) where they differ.  A site that cannot be read is
    one verdict, and does not hide the others.  ``texts`` holds each of ``sites.pin_paths``.
    """
    readings = read(texts, sites)
    newest: dict[str, Tag] = {}
    for reading in readings:
        for pin in reading.pins if reading.site.lockstep else ():
            known = newest.setdefault(reading.site.image_type, pin.tag)
            newest[reading.site.image_type] = pin.tag if known < pin.tag else known
    if expected is not None:
        newest[image_type] = expected
    remarks: dict[tuple[str, int], str] = {}
    for reading, why in dead(texts, readings, sites):
        for pin in reading.pins:
            remarks[reading.site.path, pin.place.start] = f"This is a dead build argument: {why}."
    for reading, sentence in unpassed(readings):
        for pin in reading.pins:
            remarks[reading.site.path, pin.place.start] = sentence
    return tuple(
        verdict for reading in readings for verdict in _verdicts(reading, newest.get(reading.site.image_type), remarks)
    )


def _verdicts(reading: Reading, reference: Tag | None, remarks: Mapping[tuple[str, int], str]) -> Iterator[Verdict]:
    site = reading.site
    if reading.problem:
        yield Verdict(site.path, 0, "", "", site.role, "cannot tell", reading.problem)
    for pin in reading.pins:
        answer, sentence = _compare(pin, reference)
        if remark := remarks.get((site.path, pin.place.start)):
            sentence = f"{sentence or f'{pin.where} names {pin.tag}.'} {remark}"
        yield Verdict(site.path, pin.line, pin.place.selector, str(pin.image), site.role, answer, sentence)


def _compare(pin: Pin, reference: Tag | None) -> tuple[Answer, str]:
    where, kind = pin.where, pin.site.image_type
    if pin.site.frozen:
        return "frozen", ""
    if reference is None:
        return "cannot tell", f"{where} names {pin.tag}, and no {kind} pin could be read to compare it with."
    if pin.tag == reference:
        return "in sync", ""
    sentence = f"{where} names {pin.tag}, the {kind} pins should be {reference}."
    if pin.site.lockstep:
        return "out of sync", sentence
    return ("lagging" if pin.tag < reference else "ahead"), f"{where} names {pin.tag}, the {kind} pins {reference}."


def outcome(verdicts: Sequence[Verdict], *, strict: bool = False) -> Literal["in sync", "out of sync", "cannot tell"]:
    """Return the answer for all pins: one that is out of sync decides, even where others cannot be read.

    Informational sites decide nothing, unless ``strict``; a frozen one only where it cannot be read.
    """
    answers = {verdict.answer for verdict in verdicts if strict or verdict.role != "informational"}
    if answers & {"out of sync", "lagging", "ahead"}:
        return "out of sync"
    return "cannot tell" if "cannot tell" in answers or not answers else "in sync"
