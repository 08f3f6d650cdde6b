"""The plan of a bump: the edits that move the pins of one image type to a new tag."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.images.families import is_older
from runbook_lib.images.reference import ImageType, Tag
from runbook_lib.pins.sites import Pin, Reading, Sites, Texts, dead, read
from runbook_lib.text.edits import Edit, edited_paths, splice


@dataclass(frozen=True)
class Change:
    """A value to replace."""

    path: str
    line: int
    selector: str
    old: str
    new: str
    ci: str


@dataclass(frozen=True)
class CudaBoundVersion:
    """A version in a file that fits one CUDA release only: ``where`` is path and line, ``cuda`` such as ``13.3``."""

    where: str
    what: str
    version: str
    cuda: str


@dataclass(frozen=True)
class Plan:
    """The changes of a bump to the files.  Without changes it is done already.  ``warnings`` are whole sentences.

    ``ci`` is whose part of it this is, empty for the whole.
    """

    changes: tuple[Change, ...]
    edits: tuple[Edit, ...]
    warnings: tuple[str, ...]
    platforms: tuple[str, ...]
    ci: str = ""
    target: str = ""
    cuda_bound: tuple[CudaBoundVersion, ...] = ()

    def for_cuda(self, cuda: str | None) -> "Plan":
        """Return the plan with a warning for each version that does not fit the new image's CUDA, such as ``13.3``.

        Where that is unknown, there is one for each version to be checked.
        """
        release = re.match(r"\d+(?:\.\d+)*", cuda or "")
        known = f"{self.target} has CUDA {cuda}" if release else f"check which CUDA {self.target} has"
        warnings = list(self.warnings)
        for bound in self.cuda_bound:
            # 13 stands for all of 13, and 13.3 for 13.3.0.5 as well.
            made_for = bound.cuda.split(".")
            if not release or release[0].split(".")[: len(made_for)] != made_for:
                warnings.append(f"{bound.where} fixes {bound.what} at {bound.version}, for CUDA {bound.cuda}: {known}.")
        return replace(self, warnings=tuple(warnings), cuda_bound=())

    def part(self, ci: str) -> "Plan":
        """The changes that one CI reads: ``gitlab``, or ``github`` with those that only people read."""
        changes = tuple(change for change in self.changes if (change.ci == "gitlab") == (ci == "gitlab"))
        paths = {change.path for change in changes}
        edits = tuple(edit for edit in self.edits if edit.path in paths)
        return replace(self, changes=changes, edits=edits, ci=ci)


def plan(
    texts: Texts,
    sites: Sites,
    target: Tag,
    image_type: ImageType,
    *,
    allow: frozenset[str] = frozenset(),
) -> Plan:
    """Plan to move the pins of ``image_type`` to ``target``; those that are there already are left alone.

    ``texts`` holds each of ``sites.paths``.
    Raises CannotTell when a site is missing, doubled or of an unknown shape, and Refused for a target older than a pin
    (``older-tag`` permits it) or a value shared with the other type (``both-types`` moves the pins of both).
    """
    moving: tuple[ImageType, ...] = ("dev", "lts") if "both-types" in allow else (image_type,)
    readings = read(texts, sites)
    warnings = _stop_or_warn(readings, moving)
    pins = [pin for reading in readings if reading.site.lockstep for pin in reading.pins]
    chosen = [pin for pin in pins if pin.site.image_type in moving]
    if not chosen:
        raise CannotTell(f"No {image_type} pin was found in {', '.join(sites.pin_paths)}: there is nothing to bump.")
    if "older-tag" not in allow:
        _refuse_older(chosen, target)
    _refuse_shared(chosen, [pin for pin in pins if pin.site.image_type not in moving])

    _refuse_overlap(chosen, [pin for reading in readings for pin in reading.pins])

    stale = [pin for pin in chosen if pin.tag != target]
    spans: dict[tuple[str, int, int], list[Pin]] = {}
    for pin in stale:
        spans.setdefault((pin.site.path, pin.place.start, pin.place.end), []).append(pin)
    changes = tuple(_change(same, target) for same in spans.values())
    edits = tuple(_edit(path, texts, spans, target) for path in dict.fromkeys(path for path, _, _ in spans))
    _prove(texts, edits, sites, moving, target)
    platforms = tuple(dict.fromkeys(pin.place.platform for pin in chosen if pin.place.platform)) or sites.platforms
    warnings += _warnings(readings, sites, texts, moving, target)
    bound = tuple(_cuda_bound(sites, texts, moving))
    return Plan(changes, edits, tuple(warnings), platforms, target=str(target), cuda_bound=bound)


def _stop_or_warn(readings: Sequence[Reading], moving: Sequence[ImageType]) -> list[str]:
    """Stop for every problem in a file that pins of these types stand in; warn of those in others."""
    files = {reading.site.path for reading in readings if reading.site.lockstep and reading.site.image_type in moving}
    problems = [reading for reading in readings if reading.problem]
    if stops := [reading.problem for reading in problems if reading.site.lockstep and reading.site.path in files]:
        own = any(reading.site.needs == "declared" for reading in problems)
        how = "correct the pins file" if own else "declare it in runbook_lib/pins/known_sites.py"
        raise CannotTell(
            f"The pins cannot be planned, so nothing was changed. {' '.join(stops)} "
            f"Fix the file by hand; or, where the repository has a new layout, {how}."
        )
    return [f"{reading.problem} This bump does not touch it." for reading in problems]


def _refuse_older(pins: Sequence[Pin], target: Tag) -> None:
    if newer := [pin for pin in pins if is_older(target, pin.tag)]:
        listed = ", ".join(f"{pin.site.path}:{pin.line} ({pin.tag})" for pin in newer)
        raise Refused(f"The tag {target} is older than the pin in {listed}, so nothing was planned.", "older-tag")


def _refuse_shared(moving: Sequence[Pin], frozen: Sequence[Pin]) -> None:
    fixed = {(pin.site.path, pin.place.start): pin for pin in frozen}
    for pin in moving:
        if other := fixed.get((pin.site.path, pin.place.start)):
            raise Refused(
                f"{pin.site.path}:{pin.line} is one value (an anchor) for {pin.place.selector} and for "
                f"{other.place.selector}, so a bump of {pin.site.image_type} would move a pin of "
                f"{other.site.image_type} too; nothing was planned. Give each its own value.",
                "both-types",
            )


def _refuse_overlap(moving: Sequence[Pin], pins: Sequence[Pin]) -> None:
    """A value that moves is no other pin's, nor a part of one; that of an anchor is the same for all its rows."""
    for pin in moving:
        for other in pins:
            place, beside = pin.place, other.place
            if other.site.lockstep and (place.start, place.end) == (beside.start, beside.end):
                continue
            if pin.site.path == other.site.path and place.start < beside.end and beside.start < place.end:
                raise CannotTell(
                    f"{pin.where} is declared as {pin.site.role}, and {other.place.selector} in line {other.line} as "
                    f"{other.site.role} finds the same text; nothing was planned. Declare each value once."
                )


def _change(same: Sequence[Pin], target: Tag) -> Change:
    pin = same[0]
    selector = "; ".join(dict.fromkeys(pin.place.selector for pin in same))
    return Change(pin.site.path, pin.line, selector, pin.place.value, str(pin.image.with_tag(target)), pin.site.ci)


def _edit(path: str, texts: Texts, spans: Mapping[tuple[str, int, int], Sequence[Pin]], target: Tag) -> Edit:
    before = texts[path] or ""
    here = [(start, end, str(same[0].image.with_tag(target))) for (p, start, end), same in spans.items() if p == path]
    return Edit(path, before, splice(before, here))


def _prove(texts: Texts, edits: Sequence[Edit], sites: Sites, moving: Sequence[ImageType], target: Tag) -> None:
    """Read the edited texts again: what was to move is at the target, and every other pin is what it was."""

    def pins(given: Texts) -> list[tuple[str, str, int, bool, str]]:
        return [
            (pin.site.path, pin.place.selector, pin.line, moves, str(pin.tag if moves else pin.image))
            for reading in read(given, sites)
            for pin in reading.pins
            for moves in [pin.site.lockstep and pin.site.image_type in moving]
        ]

    wanted = [(*pin[:4], str(target) if pin[3] else pin[4]) for pin in pins(texts)]
    if pins({**texts, **{edit.path: edit.after for edit in edits}}) != wanted:
        raise RunbookError(
            f"The edits of {', '.join(edited_paths(edits))} were made on a copy and read again, and the pins "
            "are not as planned. Nothing was changed. This is a bug of the runbook: please report it."
        )


def _warnings(
    readings: Sequence[Reading],
    sites: Sites,
    texts: Texts,
    moving: Sequence[ImageType],
    target: Tag,
) -> Iterator[str]:
    for pin in (pin for reading in readings for pin in reading.pins if pin.site.image_type in moving):
        where = f"{pin.site.path}:{pin.line}"
        if pin.site.lockstep and pin.image.digest and pin.tag != target:
            yield f"{where} names its image with a digest as well ({pin.image}); the digest goes with the old tag."
        elif not pin.site.lockstep and not pin.site.frozen and pin.tag < target:
            yield f"{where} names {pin.image}, behind {target}: no bump moves it; change it by hand if wanted."
    for reading, why in dead(texts, readings, sites):
        for pin in reading.pins:
            yield f"{pin.where}: This is a dead build argument: {why}. Moving it changes no image."


def _cuda_bound(sites: Sites, texts: Texts, moving: Sequence[ImageType]) -> Iterator[CudaBoundVersion]:
    for coupling in sites.couplings:
        if coupling.image_types.isdisjoint(moving):
            continue
        text = texts.get(coupling.path) or ""
        for match in coupling.regex.finditer(text):
            line = text.count("\n", 0, match.start("version")) + 1
            yield CudaBoundVersion(f"{coupling.path}:{line}", coupling.what, match["version"], match["cuda"])
