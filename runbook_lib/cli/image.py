"""``runbook image``: the tags of an image, the changes between two images, and the drivers that support an image."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from runbook_lib.clients.registry.client import Registry
from runbook_lib.clients.registry.lookup import read, reference
from runbook_lib.errors import RunbookError, Unreachable
from runbook_lib.images import months
from runbook_lib.images.compare import compare
from runbook_lib.images.driver_check import (
    EXIT_STATUS,
    DriverResult,
    documented_image,
    judge,
    listed_drivers,
    requirements,
    worst,
)  # fmt: skip
from runbook_lib.images.families import COREWEAVE, OTHER, family_of
from runbook_lib.images.reference import Image, ImageRef, Tag
from runbook_lib.images.tags.coreweave import CoreWeaveTag, search


def listed(ref: ImageRef, names: Sequence[str], constraints: Sequence[str]) -> tuple[Sequence[Tag], int]:
    """Return the tags that the image's family can parse, newest first, and the number of other tags.

    ``constraints``, such as ``cuda>=12.9``, work for CoreWeave's images, whose tags describe their contents.  Raises
    RunbookError for other images, and for an invalid constraint.
    """
    family = family_of(ref) or OTHER
    if constraints and family is not COREWEAVE:
        raise RunbookError(
            f"The tags of {ref.name} do not describe the image's contents, so they cannot be filtered by "
            f"{' '.join(constraints)!r}. Constraints work only for CoreWeave's ml-containers; leave them out."
        )
    listing = family.listed(names)
    tags: list[Tag] = sorted([*listing.releases, *listing.candidates, *listing.specials], reverse=True)
    if constraints:
        tags = list(search([tag for tag in tags if isinstance(tag, CoreWeaveTag)], " ".join(constraints)))
    return tags, len(listing.unreadable)


def command_list(options: argparse.Namespace) -> int:
    """Print one tag per line; return 0 if there is a tag, 1 if there is none."""
    ref = ImageRef.parse(options.image)
    with Registry.connect(ref) as registry:
        names = registry.tags()
    tags, unreadable = listed(ref, names, options.constraint)
    for tag in tags:
        print(tag if tag.kind == "release" else f"{tag}  {tag.kind}")
    if unreadable:
        print(f"Left out: {unreadable} in another format.", file=sys.stderr)
    if not tags:
        print(f"{ref.name} has no matching tag.", file=sys.stderr)
    return 0 if tags else 1


def command_diff(options: argparse.Namespace) -> int:
    """Print the differences between two images, as Markdown or JSON; return 0."""
    changes = compare(read(options.old), read(options.new), (options.old, options.new))
    if options.json:
        document: dict[str, object] = {"format": 1, "components": changes.rows(), "environment": changes.environment()}
        print(json.dumps(document, indent=2))
        return 0
    print(changes.markdown())
    print(months.markdown(months.new_issues(_month(options.old), _month(options.new))), end="")
    return 0


def _month(image: str) -> str:
    ref = reference(image)
    return months.month_of(ref.repository, ref.tag or "")


def command_driver(options: argparse.Namespace) -> int:
    """Print the driver that an image needs, and for each given driver if it supports the image; return the exit status.

    If the registry cannot be read, the documentation of the tag decides, if there is any.
    """
    drivers = listed_drivers(" ".join(options.driver), "--driver")
    ref, remark = reference(options.image), ""
    try:
        image = read(options.image)
    except Unreachable as error:
        documented = documented_image(ref)
        if documented is None:
            raise
        image, sentence = documented
        remark = f"{error} {sentence}"
    name = str(ref)
    results = judge(image, drivers, data_center=not options.workstation)
    if options.json:
        print(json.dumps(_document(name, image, results) | {"remark": remark}, indent=2))
    else:
        print("\n".join(filter(None, (remark, *_lines(name, image, results)))))
    if drivers:
        return EXIT_STATUS[worst(results)]
    return 0 if all(requirement.driver for requirement in requirements(image)) else 2


def _lines(name: str, image: Image, results: Sequence[DriverResult]) -> Iterator[str]:
    sources: dict[str, None] = {}
    for requirement, platforms in requirements(image).items():
        summary = requirement.summary
        yield f"{name} for {', '.join(platforms)}: {summary.reason}"
        sources |= dict.fromkeys(summary.sources)
        for result in results:
            if result.platforms == platforms:
                yield f"- {result.driver}: {result.judgement.verdict}. {result.judgement.reason}"
                sources |= dict.fromkeys(result.judgement.sources)
    if sources:
        yield "Sources:"
        yield from (f"- {source}" for source in sources)


def _document(name: str, image: Image, results: Sequence[DriverResult]) -> dict[str, object]:
    needs: list[dict[str, object]] = []
    for requirement, platforms in requirements(image).items():
        summary = requirement.summary
        needs.append(
            {"platforms": platforms, **asdict(requirement), "needs": requirement.driver}
            | {"reason": summary.reason, "sources": summary.sources}
        )
    drivers: list[dict[str, object]] = []
    for result in results:
        drivers.append({"platforms": result.platforms, "driver": result.driver, **asdict(result.judgement)})
    verdict = worst(results) if results else None
    return {"image": name, "digest": image.digest, "needs": needs, "drivers": drivers, "verdict": verdict}
