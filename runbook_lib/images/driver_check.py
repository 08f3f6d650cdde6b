"""The drivers of the runners compared with what an image needs: verdicts, and preflight's check and table."""

from collections.abc import Sequence
from dataclasses import dataclass

from runbook_lib.checks import Check
from runbook_lib.images import driver_inventory
from runbook_lib.images.driver_inventory import NodeDriver
from runbook_lib.images.drivers import Answer, Needed, Verdict
from runbook_lib.images.reference import Image

#: The environment variable that names the drivers of the runners.
VARIABLE = "RUNBOOK_DRIVERS"
#: The exit status for the worst verdict.
EXIT_STATUS: dict[Verdict, int] = {
    "runs": 0,
    "runs by the compatibility package": 0,
    "does not run": 1,
    "unknown": 2,
}
_MOST = 6  # nodes that one sentence names


@dataclass(frozen=True)
class DriverResult:
    """One driver (empty: unknown) on the nodes that have it, and whether it runs the image on the platforms."""

    platforms: tuple[str, ...]
    driver: str
    nodes: tuple[str, ...]
    answer: Answer

    @property
    def name(self) -> str:
        """The driver, with the first of its nodes."""
        more = f" and {len(self.nodes) - _MOST} more" if len(self.nodes) > _MOST else ""
        where = f" ({', '.join(self.nodes[:_MOST])}{more})" if self.nodes else ""
        return f"{self.driver or 'an unknown driver'}{where}"


def judge(image: Image, seen: Sequence[NodeDriver], *, data_center: bool = True) -> tuple[DriverResult, ...]:
    """Each driver that was seen, for each group of platforms that need the same."""
    nodes: dict[str, list[str]] = {}
    for one in seen:
        nodes.setdefault(one.driver, []).extend([one.node] if one.node else [])
    return tuple(
        DriverResult(platforms, driver, tuple(nodes[driver]), _answer(needed, driver, data_center))
        for needed, platforms in needs(image).items()
        for driver in sorted(nodes)
    )


def needs(image: Image) -> dict[Needed, tuple[str, ...]]:
    """Return each requirement of the image, and the platforms that have it."""
    found: dict[Needed, tuple[str, ...]] = {}
    for platform, it in sorted(image.platforms.items()):
        needed = Needed.of(it.env)
        found[needed] = (*found.get(needed, ()), platform)
    return found


def worst(judged: Sequence[DriverResult]) -> Verdict:
    """``does not run`` before ``unknown``, that before those that run; ``unknown`` for no driver at all."""
    ranks: tuple[Verdict, ...] = ("does not run", "unknown", "runs by the compatibility package", "runs")
    return min((one.answer.verdict for one in judged), key=ranks.index, default="unknown")


def rows(image: Image | None, drivers: str) -> list[dict[str, str]]:
    """One row a platform and driver of RUNBOOK_DRIVERS; without any, one a platform with what it needs."""
    if image is None:
        return []
    seen = driver_inventory.named(drivers, VARIABLE)
    if not seen:
        return [
            {"platform": ", ".join(platforms), "CUDA": it.cuda, "needs": it.driver, "driver": "", "verdict": ""}
            | {"why": it.told.reason}
            for it, platforms in needs(image).items()
        ]
    asked = {platforms: it for it, platforms in needs(image).items()}
    return [
        {"platform": ", ".join(one.platforms), "CUDA": asked[one.platforms].cuda}
        | {"needs": asked[one.platforms].driver, "driver": one.driver}
        | {"verdict": one.answer.verdict, "why": one.answer.reason}
        for one in judge(image, seen)
    ]


def check(image: Image | None, drivers: str) -> Check:
    """Preflight's check of the drivers that RUNBOOK_DRIVERS names, such as ``535.104.05, 550.54``.

    Skipped where there are none, with what the image needs, and where nothing tells.  Raises RunbookError for a list
    that cannot be read.
    """
    name = "the driver of the runners"
    seen = driver_inventory.named(drivers, VARIABLE)
    if image is None:
        return Check(name, "skipped", "There is no image to compare with.")
    if not seen:
        told = " ".join(dict.fromkeys(it.told.reason for it in needs(image)))
        return Check(name, "skipped", f"{told} Name the drivers of the runners in {VARIABLE} to have them compared.")
    judged = judge(image, seen)
    detail = " ".join(dict.fromkeys(one.answer.reason for one in judged))
    verdict = worst(judged)
    return Check(name, "skipped", detail) if verdict == "unknown" else Check.of(name, not EXIT_STATUS[verdict], detail)


def _answer(needed: Needed, driver: str, data_center: bool) -> Answer:
    if driver:
        return needed.judge(driver, data_center=data_center)
    return Answer("unknown", "What was given does not name the driver.")
