"""``runbook image``: the tags of an image, the changes between two images, and the drivers that run one."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from runbook_lib.clients.registry.cache import ago
from runbook_lib.clients.registry.client import Registry, Tags
from runbook_lib.clients.registry.lookup import read, reference
from runbook_lib.errors import RunbookError
from runbook_lib.images import driver_inventory
from runbook_lib.images.compare import compare
from runbook_lib.images.driver_check import EXIT_STATUS, DriverResult, judge, needs, worst
from runbook_lib.images.families import COREWEAVE, OTHER, family_of
from runbook_lib.images.reference import Image, ImageRef, Tag
from runbook_lib.images.tags.coreweave import CoreWeaveTag, search


def listed(ref: ImageRef, known: Tags, constraints: Sequence[str]) -> tuple[Sequence[Tag], int]:
    """The tags that the family of the image reads, newest first, and how many it does not read.

    ``constraints``, such as ``cuda>=12.9``, are for CoreWeave's images, whose tags name what is in them; RunbookError
    for others, and for one that is none.
    """
    family = family_of(ref) or OTHER
    if constraints and family is not COREWEAVE:
        raise RunbookError(
            f"The tags of {ref.name} do not name what is in the image, so {' '.join(constraints)!r} cannot be looked "
            "for. Leave the constraints out; they are for CoreWeave's ml-containers."
        )
    listing = family.listed(known.names)
    tags: list[Tag] = sorted([*listing.releases, *listing.candidates, *listing.specials], reverse=True)
    if constraints:
        tags = list(search([tag for tag in tags if isinstance(tag, CoreWeaveTag)], " ".join(constraints)))
    return tags, len(listing.others)


def command_list(options: argparse.Namespace) -> int:
    """Print one tag per line; return 0 if there is a tag, 1 if there is none."""
    ref = ImageRef.parse(options.image)
    with Registry.connect(ref) as registry:
        known = registry.known_tags()
    tags, others = listed(ref, known, options.constraint)
    for tag in tags:
        print(tag if tag.kind == "release" else f"{tag}  {tag.kind}")
    if known.problem:
        print(f"This list was read {ago(known.age)}: {known.problem}", file=sys.stderr)
    if others:
        print(f"Left out: {others} of another form.", file=sys.stderr)
    if not tags:
        print(f"{ref.name} has no such tag.", file=sys.stderr)
    return 0 if tags else 1


def command_diff(options: argparse.Namespace) -> int:
    """Print what differs between two images, as Markdown; return 0."""
    print(compare(read(options.old), read(options.new), (options.old, options.new)).markdown())
    return 0


def command_driver(options: argparse.Namespace) -> int:
    """Print the driver that an image needs, and whether each given driver runs it; return the exit status."""
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
        return EXIT_STATUS[worst(judged)]
    return 0 if all(it.driver for it in needs(image)) else 2


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


def _lines(name: str, image: Image, judged: Sequence[DriverResult]) -> Iterator[str]:
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


def _document(name: str, image: Image, judged: Sequence[DriverResult]) -> dict[str, object]:
    needed = [
        {"platforms": platforms, **asdict(it), "needs": it.driver, "reason": it.told.reason, "sources": it.told.sources}
        for it, platforms in needs(image).items()
    ]
    drivers = [
        {"platforms": one.platforms, "driver": one.driver, "nodes": one.nodes, **asdict(one.answer)} for one in judged
    ]
    verdict = worst(judged) if judged else None
    return {"image": name, "digest": image.digest, "needs": needed, "drivers": drivers, "verdict": verdict}
