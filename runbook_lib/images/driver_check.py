"""The drivers of the runners compared with the requirement of an image: verdicts, and preflight's check and table."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runbook_lib.checks import Check
from runbook_lib.errors import RunbookError
from runbook_lib.images import months
from runbook_lib.images.drivers import DriverJudgement, DriverRequirement, Verdict, cuda_of_month, image_notes, numbers
from runbook_lib.images.families import ALIBABA, NGC, OTHER, family_of
from runbook_lib.images.reference import Image, ImageRef, PlatformImage
from runbook_lib.images.tags import alibaba

#: The environment variable with the drivers of the runners.
VARIABLE = "RUNBOOK_DRIVERS"
#: The exit status for the worst verdict.
EXIT_STATUS: dict[Verdict, int] = {
    "runs": 0, "runs by the compatibility package": 0, "does not run": 1, "unknown": 2
}  # fmt: skip


@dataclass(frozen=True)
class DriverNeeds:
    """What platforms need in common, and the judgement on each driver."""

    platforms: str
    requirement: DriverRequirement
    judged: Mapping[str, DriverJudgement]


def listed_drivers(text: str, origin: str = VARIABLE) -> list[str]:
    """Parse a list such as ``535.104.05, 550.54``.  Raises RunbookError, which mentions its ``origin``."""
    drivers = re.findall(r"[^\s,]+", text)
    for driver in drivers:
        try:
            numbers(driver)
        except RunbookError as error:
            raise RunbookError(f"{origin} must be a list of driver versions. {error}") from None
    return sorted(set(drivers))


def judge(image: Image, drivers: Sequence[str]) -> tuple[DriverNeeds, ...]:
    """Judge each driver for each group of platforms with the same requirement."""
    groups: dict[DriverRequirement, list[str]] = {}
    for name, platform in sorted(image.platforms.items()):
        groups.setdefault(DriverRequirement.of(platform.env), []).append(name)
    return tuple(
        DriverNeeds(", ".join(names), requirement, {driver: requirement.judge(driver) for driver in drivers})
        for requirement, names in groups.items()
    )


def documented_image(ref: ImageRef) -> tuple[Image, str] | None:
    """Return an image as described by the documentation of its tag, and a sentence that cites it; None without any.

    The description has only the CUDA release; it replaces the registry's answer for a verdict on drivers.
    """
    family = family_of(ref) or OTHER
    if not family.reads(ref.tag or ""):
        return None
    tag = family.read(ref.tag or "")
    steps = []
    if family is ALIBABA:
        ngc = alibaba.built_on(tag)
        steps.append(f"Alibaba's {tag} is built on NGC's {ngc}, of the month before")
        tag, family = ngc, NGC
    if family is not NGC or tag.kind != "release":
        return None
    month = str(tag).partition("-")[0]
    notes = image_notes("PyTorch", month)
    cuda, source = cuda_of_month(month), f"{notes.name}, {notes.address}"
    if not cuda:
        known = months.cuda_release(month)
        if known is None:
            return None
        cuda, source = known
    steps.append(f"NGC's {tag} has CUDA {cuda} ({source})")
    image = Image("", {"any platform": PlatformImage("", 0, {"CUDA_VERSION": cuda})})
    return image, f"Judged by the tag alone: {'; '.join(steps)}."


def worst(needs: Sequence[DriverNeeds]) -> Verdict:
    """Return the worst verdict: ``does not run``, then ``unknown``, then the rest; ``unknown`` without any driver."""
    ranks: tuple[Verdict, ...] = ("does not run", "unknown", "runs by the compatibility package", "runs")
    verdicts = [judgement.verdict for each in needs for judgement in each.judged.values()]
    return min(verdicts, key=ranks.index, default="unknown")


def rows(image: Image | None, drivers: str) -> list[dict[str, str]]:
    """Return one row per platform and driver of RUNBOOK_DRIVERS; without any, one per platform with its requirement."""
    rows = []
    for each in judge(image, listed_drivers(drivers)) if image else ():
        row = {"platform": each.platforms, "CUDA": each.requirement.cuda, "needs": each.requirement.driver}
        if not each.judged:
            rows.append(row | {"driver": "", "verdict": "", "why": each.requirement.summary.reason})
        for driver, judgement in each.judged.items():
            rows.append(row | {"driver": driver, "verdict": judgement.verdict, "why": judgement.reason})
    return rows


def check(image: Image | None, drivers: str) -> Check:
    """Return preflight's check of the drivers that RUNBOOK_DRIVERS names, such as ``535.104.05, 550.54``.

    It is skipped if the verdict is unknown, and without drivers, when it shows the requirement.  Raises RunbookError
    for an invalid list.
    """
    name = "the driver of the runners"
    listed = listed_drivers(drivers)
    if image is None:
        return Check(name, "skipped", "There is no image to compare with.")
    results = judge(image, listed)
    if not listed:
        needs = " ".join(dict.fromkeys(each.requirement.summary.reason for each in results))
        return Check(name, "skipped", f"{needs} Name the drivers of the runners in {VARIABLE} to have them compared.")
    detail = " ".join(dict.fromkeys(judgement.reason for each in results for judgement in each.judged.values()))
    verdict = worst(results)
    if verdict == "unknown":
        return Check(name, "skipped", detail)
    return Check.of(name, EXIT_STATUS[verdict] == 0, detail)
