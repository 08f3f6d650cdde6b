"""The plan of a bump: the edits that move the pins of one image type to a new tag."""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.images.reference import ImageType, Tag
from runbook_lib.pins.sites import Pin, SiteReading, Sites, Texts, dead_arguments, read
from runbook_lib.text.edits import Edit, Span, splice
from runbook_lib.text.lists import join_first
from runbook_lib.text.yaml_spans import is_text

_MAX_LISTED = 5  # files in one sentence


@dataclass(frozen=True)
class PinChange:
    """A value to replace."""

    path: str
    line: int
    selector: str
    old: str
    new: str
    ci: str


@dataclass(frozen=True)
class PinPlan:
    """The changes of a bump to the files; empty if it is already done.  ``warnings`` are complete sentences.

    ``cuda_bound`` are sentences about versions that fit only one CUDA release, each with that release, such as 13.3.
    ``readers`` are those of the pins of this type, moved or not.
    """

    changes: tuple[PinChange, ...]
    edits: tuple[Edit, ...]
    warnings: tuple[str, ...]
    platforms: tuple[str, ...]
    target: str = ""
    cuda_bound: tuple[tuple[str, str], ...] = ()
    readers: frozenset[str] = frozenset()

    def for_cuda(self, cuda: str | None) -> "PinPlan":
        """Return the plan with a warning for each version that does not fit the new image's CUDA, such as ``13.3``.

        If that is unknown, there is a warning for each version to be checked.
        """
        release = re.match(r"\d+(?:\.\d+)*", cuda or "")
        advice = f"{self.target} has CUDA {cuda}" if release else f"check which CUDA {self.target} has"
        warnings = list(self.warnings)
        for sentence, bound in self.cuda_bound:
            # 13 covers all of 13, and 13.3 covers 13.3.0.5.
            required = bound.split(".")
            if not release or release[0].split(".")[: len(required)] != required:
                warnings.append(f"{sentence}: {advice}.")
        return replace(self, warnings=tuple(warnings), cuda_bound=())

    def part(self, ci: str) -> "PinPlan":
        """Return the changes read by one CI: ``gitlab``, or ``github`` including those read only by people."""
        changes = tuple(change for change in self.changes if (change.ci == "gitlab") == (ci == "gitlab"))
        paths = {change.path for change in changes}
        edits = tuple(edit for edit in self.edits if edit.path in paths)
        return replace(self, changes=changes, edits=edits)


def plan(
    texts: Texts,
    sites: Sites,
    target: Tag,
    image_type: ImageType,
    *,
    allow: frozenset[str] = frozenset(),
    digest_of_target: Callable[[], str],
) -> PinPlan:
    """Plan to move the pins of ``image_type`` to ``target``; pins that already have it are left alone.

    ``sites`` pin one image.  A pin with a digest gets that of the target, which ``digest_of_target`` returns or raises
    RunbookError for.  ``texts`` has each of ``sites.paths``.

    Raises CannotTell for a lockstep site that is missing, duplicated or of an unknown shape, and Refused for a
    target older than such a pin (``older-tag`` permits it), for pins of another edition that would stay behind
    (``other-edition``) and for a value shared with the other type (``both-types`` moves the pins of both).
    """
    moving: tuple[ImageType, ...] = ("dev", "lts") if "both-types" in allow else (image_type,)
    readings = read(texts, sites)
    warnings = _stop_or_warn(readings, moving)
    pins = [pin for reading in readings for pin in reading.pins]
    of_type = [pin for pin in pins if pin.site.lockstep and pin.site.image_type in moving]
    if not of_type:
        raise CannotTell(f"No {image_type} pin was found in {', '.join(sites.pin_paths)}: there is nothing to bump.")
    chosen = _of_edition(of_type, target)
    if "other-edition" not in allow:
        _refuse_left_behind([pin for pin in of_type if pin not in chosen], target)
    if "older-tag" not in allow:
        _refuse_older(chosen, target)
    _refuse_overlap(chosen, pins)

    moved = [pin for pin in chosen if str(pin.tag) != str(target) or pin.lacks_quotes]
    digest = ""
    of_index = {pin.image.digest for pin in chosen if pin.image.digest and not pin.location.platform}
    if len(of_index) > 1 or any(pin.image.digest for pin in moved):
        digest = digest_of_target()
        # Pins that have another digest of the target get this one too; those of platforms may differ.
        for pin in chosen:
            if pin.image.digest not in (None, digest) and not pin.location.platform and pin not in moved:
                moved.append(pin)
    changes, edits = _edit(moved, texts, target, digest)
    _prove(pins, {**texts, **{edit.path: edit.after for edit in edits}}, sites, moved, target, digest)
    platforms = tuple(dict.fromkeys(pin.location.platform for pin in chosen if pin.location.platform))
    warnings += _pin_warnings(pins, moving, target)
    for reading, reason in dead_arguments(texts, readings):
        for pin in reading.pins:
            warnings.append(f"{pin.name}: This is a dead build argument: {reason}. Moving it changes no image.")
    cuda_bound = tuple(_cuda_bound(sites, texts, moving))
    readers = frozenset(pin.site.ci for pin in of_type)
    return PinPlan(changes, edits, tuple(warnings), platforms or sites.platforms, str(target), cuda_bound, readers)


def _of_edition(pins: Sequence[Pin], target: Tag) -> list[Pin]:
    """Return the pins of the target's edition.

    Raises CannotTell without such a pin, and for pins of several editions that the pins file does not tell apart: some
    may be for another purpose.
    """
    chosen = [pin for pin in pins if pin.site.edition in (None, target.edition)]
    if not chosen:
        editions = ", ".join(sorted({repr(pin.site.edition) for pin in pins}))
        raise CannotTell(
            f"{target} is of the edition {target.edition!r}, and the pins of {pins[0].image.name} are of {editions}: "
            "nothing was planned.",
            "Give a tag of one of these.",
        )
    others = [pin for pin in chosen if pin.tag.edition != target.edition]
    if others and (len(others) < len(chosen) or others[0].site.edition is not None):
        raise CannotTell(
            f"{others[0].name} names {others[0].tag}, which is of another edition than {target}: nothing was planned.",
            "Correct the file; or, if that pin is meant to differ, give each of the image's pins its edition in the "
            "pins file.",
        )
    return chosen


def _refuse_left_behind(pins: Iterable[Pin], target: Tag) -> None:
    if behind := [f"{pin.path}:{pin.line} ({pin.tag})" for pin in pins if pin.tag.release < target.release]:
        raise Refused(
            f"Pins of other editions than {target} would stay behind: {join_first(behind, _MAX_LISTED)}. Nothing was "
            "planned. Each edition is bumped to a tag of its own.",
            exception="other-edition",
        )


def _stop_or_warn(readings: Sequence[SiteReading], moving: Sequence[ImageType]) -> list[str]:
    """Raise CannotTell for a problem in a file with pins of these types; return warnings for problems in others."""
    lockstep = [reading for reading in readings if reading.site.lockstep]
    paths = {reading.site.path for reading in lockstep if reading.site.image_type in moving}
    stops = [reading.problem for reading in lockstep if reading.problem and reading.site.path in paths]
    others = [reading.problem for reading in readings if reading.problem and reading.problem not in stops]
    warnings = [f"{problem} This bump does not touch it." for problem in others]
    if stops:
        fix = "declare it in runbook_lib/pins/repositories.py"
        if any(reading.problem and reading.site.needs == "declared" for reading in readings):
            fix = "correct the pins file"
        raise CannotTell(
            f"The pins cannot be planned, so nothing was changed. {' '.join(stops)}",
            f"Fix the file by hand; or, if the repository has a new layout, {fix}.",
        )
    return warnings


def _refuse_older(pins: Sequence[Pin], target: Tag) -> None:
    newer = ", ".join(f"{pin.path}:{pin.line} ({pin.tag})" for pin in pins if target.is_older(pin.tag))
    if newer:
        raise Refused(
            f"The tag {target} is older than the pin in {newer}, so nothing was planned.", exception="older-tag"
        )


def _refuse_overlap(moving: Sequence[Pin], pins: Sequence[Pin]) -> None:
    """Raise RunbookError if a value that moves overlaps another pin; rows of one type may share that of an anchor."""
    for pin, other in itertools.product(moving, pins):
        (start, end), (other_start, other_end) = pin.location.span, other.location.span
        is_same = (start, end) == (other_start, other_end)
        if pin.path != other.path or start >= other_end or other_start >= end or (is_same and other in moving):
            continue
        if is_same and other.site.lockstep:
            raise Refused(
                f"{pin.path}:{pin.line} is one value (an anchor) for {pin.location.selector} and for "
                f"{other.location.selector}, so a bump of {pin.site.image_type} would move a pin of "
                f"{other.site.image_type} too; nothing was planned.",
                "Give each its own value.",
                exception="both-types",
            )
        raise CannotTell(
            f"{pin.name} is declared as {pin.site.role}, and {other.location.selector} in line {other.line} as "
            f"{other.site.role} finds the same text; nothing was planned.",
            "Declare each value once.",
        )


def _new_image(pin: Pin, target: Tag, digest: str) -> str:
    return str(pin.image.with_tag(target, digest if pin.image.digest else None))


def _edit(
    pins: Sequence[Pin], texts: Texts, target: Tag, digest: str
) -> tuple[tuple[PinChange, ...], tuple[Edit, ...]]:
    """Return the changes of these pins, one per value, and the edits that make them, one per file."""
    pins_by_span: dict[tuple[str, tuple[int, int]], list[Pin]] = {}
    for pin in pins:
        pins_by_span.setdefault((pin.path, pin.location.span), []).append(pin)
    changes: list[PinChange] = []
    spans: dict[str, list[Span]] = {}
    for (path, (start, end)), sharing in pins_by_span.items():
        pin, new = sharing[0], _new_image(sharing[0], target, digest)
        selector = "; ".join(dict.fromkeys(pin.location.selector for pin in sharing))
        changes.append(PinChange(path, pin.line, selector, str(pin.image), new, pin.site.ci))
        written = new if pin.site.value == "image" else new.removeprefix(f"{pin.image.name}:")
        if pin.is_plain and not is_text(written):
            written = f'"{written}"'
        spans.setdefault(path, []).append((start, end, written))
    edits = (Edit(path, texts[path], splice(texts[path] or "", spans[path])) for path in spans)
    return tuple(changes), tuple(edits)


def _prove(pins: Iterable[Pin], edited: Texts, sites: Sites, moved: Sequence[Pin], target: Tag, digest: str) -> None:
    """Read the edited texts again: moved pins must be at the target, and every other pin must be unchanged."""
    positions = {pin.position for pin in moved}
    expected: list[tuple[str, str, int, str]] = []
    for pin in pins:
        image = _new_image(pin, target, digest) if pin.position in positions else str(pin.image)
        expected.append((pin.path, pin.location.selector, pin.line, image))
    readings = read(edited, sites)
    after = [pin for reading in readings for pin in reading.pins]
    if expected == [(pin.path, pin.location.selector, pin.line, str(pin.image)) for pin in after]:
        return
    for reading in readings:
        if reading.problem and reading.site.needs == "declared":
            raise CannotTell(
                f"After the planned edits the pins file would no longer find its pin, so nothing was changed. "
                f"{reading.problem}",
                "Correct its finder: it may contain the old tag or digest, or allow no quotes.",
            )
    paths = list(dict.fromkeys(pin.path for pin in moved))
    raise RunbookError(
        f"The edits of {join_first(paths, _MAX_LISTED)} were made on a copy and read again, and the pins are not as "
        "planned. Nothing was changed. This is a bug of the runbook: please report it."
    )


def _pin_warnings(pins: Iterable[Pin], moving: Sequence[ImageType], target: Tag) -> Iterator[str]:
    older: dict[str, list[str]] = {}
    for pin in pins:
        if pin.site.image_type not in moving:
            continue
        if pin.site.kind == "informational" and pin.tag < target:
            older.setdefault(str(pin.image), []).append(f"{pin.path}:{pin.line}")
    for image, places in older.items():
        yield (
            f"{image}, older than {target}, stays in {join_first(places, _MAX_LISTED)}: no bump moves it; change it by "
            "hand if you want to."
        )


def _cuda_bound(sites: Sites, texts: Texts, moving: Sequence[ImageType]) -> Iterator[tuple[str, str]]:
    for coupling in sites.couplings:
        if coupling.image_type not in moving:
            continue
        text = texts.get(coupling.path) or ""
        for match in coupling.regex.finditer(text):
            place = f"{coupling.path}:{text.count(chr(10), 0, match.start('version')) + 1}"
            sentence = f"{place} fixes {coupling.what} at {match['version']}, for CUDA {match['cuda']}"
            yield sentence, match["cuda"]
