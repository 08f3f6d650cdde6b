"""The drivers of the runners against what an image needs: ``runbook image driver``, preflight's check and table."""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from runbook_lib.checks import Check
from runbook_lib.clients.registry.lookup import read, reference
from runbook_lib.errors import RunbookError
from runbook_lib.images import driver_inventory
from runbook_lib.images.driver_inventory import Seen
from runbook_lib.images.drivers import Answer, Needed, Verdict
from runbook_lib.images.reference import Image

#: What preflight reads the drivers of the runners from.
VARIABLE = "RUNBOOK_DRIVERS"
_EXIT: dict[Verdict, int] = {
    "runs": 0,
    "runs by the compatibility package": 0,
    "does not run": 1,
    "unknown": 2,
}
_MOST = 6  # nodes that one sentence names


@dataclass(frozen=True)
class Judged:
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


def judge(image: Image, seen: Sequence[Seen], *, data_center: bool = True) -> tuple[Judged, ...]:
    """Each driver that was seen, for each group of platforms that need the same."""
    nodes: dict[str, list[str]] = {}
    for one in seen:
        nodes.setdefault(one.driver, []).extend([one.node] if one.node else [])
    return tuple(
        Judged(platforms, driver, tuple(nodes[driver]), _answer(needed, driver, data_center))
        for needed, platforms in needs(image).items()
        for driver in sorted(nodes)
    )


def needs(image: Image) -> dict[Needed, tuple[str, ...]]:
    """What the image needs, and the platforms on which it needs that."""
    found: dict[Needed, tuple[str, ...]] = {}
    for platform, it in sorted(image.platforms.items()):
        needed = Needed.of(it.env)
        found[needed] = (*found.get(needed, ()), platform)
    return found


def worst(judged: Sequence[Judged]) -> Verdict:
    """``does not run`` before ``unknown``, that before those that run; ``unknown`` for no driver at all."""
    ranks: tuple[Verdict, ...] = ("does not run", "unknown", "runs by the compatibility package", "runs")
    return min((one.answer.verdict for one in judged), key=ranks.index, default="unknown")


def rows(image: Image | None, env: Mapping[str, str] = os.environ) -> list[dict[str, str]]:
    """One row a platform and driver of RUNBOOK_DRIVERS; without any, one a platform with what it needs."""
    if image is None:
        return []
    seen = driver_inventory.named(env.get(VARIABLE, ""), VARIABLE)
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


def check(image: Image | None, env: Mapping[str, str] = os.environ) -> Check:
    """Preflight's check of the drivers that RUNBOOK_DRIVERS names, such as ``535.104.05, 550.54``.

    Skipped where there are none, with what the image needs, and where nothing tells.  Raises RunbookError for a list
    that cannot be read.
    """
    name = "the driver of the runners"
    seen = driver_inventory.named(env.get(VARIABLE, ""), VARIABLE)
    if image is None:
        return Check(name, "skipped", "There is no image to compare with.")
    if not seen:
        told = " ".join(dict.fromkeys(it.told.reason for it in needs(image)))
        return Check(name, "skipped", f"{told} Name the drivers of the runners in {VARIABLE} to have them compared.")
    judged = judge(image, seen)
    detail = " ".join(dict.fromkeys(one.answer.reason for one in judged))
    verdict = worst(judged)
    return Check(name, "skipped", detail) if verdict == "unknown" else Check.of(name, not _EXIT[verdict], detail)


def command(options: argparse.Namespace) -> int:
    """``runbook image driver TAG``: prints what the image needs, and whether each driver given runs it."""
    seen = (
        *driver_inventory.named(",".join(options.driver), "--driver"),
        *(one for path in options.nvidia_smi for one in driver_inventory.nvidia_smi(_text(path))),
        *(one for path in options.slurm for one in driver_inventory.slurm(_text(path))),
    )
    name, image = str(reference(options.image)), read(options.image)
    judged = judge(image, seen, data_center=not options.workstation)
    document = json.dumps(_document(name, image, judged), indent=2) if options.json else None
    print(document or "\n".join(_lines(name, image, judged)))
    if seen:
        return _EXIT[worst(judged)]
    return 0 if all(it.driver for it in needs(image)) else 2


def _answer(needed: Needed, driver: str, data_center: bool) -> Answer:
    if driver:
        return needed.judge(driver, data_center=data_center)
    return Answer("unknown", "What was given does not name the driver.")


def _text(path: str) -> str:
    """A file, or standard input for ``-``; bytes that are no text are passed over."""
    if path == "-":
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    try:
        return Path(path).read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise RunbookError(
            f"{path} could not be read: {error.strerror}. Name a file, or - for standard input."
        ) from None


def _lines(name: str, image: Image, judged: Sequence[Judged]) -> Iterator[str]:
    sources: list[str] = []
    for needed, platforms in needs(image).items():
        told = needed.told
        yield f"{name} for {', '.join(platforms)}: {told.reason}"
        mine = [one for one in judged if one.platforms == platforms]
        yield from (f"- {one.name}: {one.answer.verdict}. {one.answer.reason}" for one in mine)
        sources += [*told.sources, *(source for one in mine for source in one.answer.sources)]
    if sources:
        yield "Sources:"
        yield from (f"- {source}" for source in dict.fromkeys(sources))


def _document(name: str, image: Image, judged: Sequence[Judged]) -> dict[str, object]:
    needed = [
        {"platforms": platforms, **asdict(it), "needs": it.driver, "reason": it.told.reason, "sources": it.told.sources}
        for it, platforms in needs(image).items()
    ]
    drivers = [
        {"platforms": one.platforms, "driver": one.driver, "nodes": one.nodes, **asdict(one.answer)} for one in judged
    ]
    verdict = worst(judged) if judged else None
    return {"image": name, "digest": image.digest, "needs": needed, "drivers": drivers, "verdict": verdict}
