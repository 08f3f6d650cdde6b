"""``runbook image``: the tags of an image, the changes between two images, and the drivers that support an image."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

from runbook_lib.cli.command import Answer, command
from runbook_lib.errors import Unreachable
from runbook_lib.images import months
from runbook_lib.images.compare import compare
from runbook_lib.images.drivers import EXIT_STATUS, DriverNeeds, judge, listed_drivers, worst
from runbook_lib.images.families import OTHER, family_of
from runbook_lib.images.reference import ImageRef
from runbook_lib.world.image_lookup import read, reference
from runbook_lib.world.ports import ONLINE


@click.group()
def image() -> None:
    """Show what a new image changes, and which drivers support it."""


@command("image list ghcr.io/coreweave/ml-containers/torch", image)
@click.argument("name", metavar="REPOSITORY")
def list_tags(name: str) -> Answer:
    """List the tags of an image, such as nvcr.io/nvidia/nemo, newest first.

    Exit status: 0 found, 1 none found, 2 cannot tell.
    """
    ref = ImageRef.parse(name)
    names = ONLINE.registry(ref).tags()
    tags = (family_of(ref) or OTHER).listed(names)
    unreadable = len(names) - len(tags)
    remarks = [f"Left out: {unreadable} in another format."] if unreadable else []
    return Answer(
        0 if tags else 1,
        {"image": ref.name, "tags": [{"tag": str(tag), "kind": tag.kind} for tag in tags], "unreadable": unreadable},
        [str(tag) if tag.kind == "release" else f"{tag}  {tag.kind}" for tag in tags],
        remarks if tags else [*remarks, f"{ref.name} has no matching tag."],
    )


@command("image diff 26.02-py3 26.04-py3", image)
@click.argument("old")
@click.argument("new")
def diff(old: str, new: str) -> Answer:
    """Compare two images, each a reference or a tag of nvcr.io/nvidia/pytorch, and print Markdown.

    Their configurations are compared, which name the versions of their components; no layer is read.
    Exit status: 0 compared, 2 cannot tell.
    """
    changes = compare(read(ONLINE, old), read(ONLINE, new), (old, new))
    issues = months.markdown(months.new_issues(_month(old), _month(new)))
    document = {"components": changes.rows(), "environment": changes.environment()}
    return Answer(0, document, filter(None, [changes.markdown(), issues]))


def _month(name: str) -> str:
    ref = reference(name)
    return months.month_of(ref.repository, ref.tag or "")


@command("image driver 26.04-py3 --driver 535.104.05", image)
@click.argument("tag")
@click.option(
    "--driver", "given", multiple=True, metavar="VERSION",
    help="A driver such as 535.104.05, or a list of them; repeatable.",
)  # fmt: skip
def driver(tag: str, given: tuple[str, ...]) -> Answer:
    """Show which driver an image needs on data-center GPUs, and whether the given drivers support it.

    TAG is an image, or a tag of nvcr.io/nvidia/pytorch such as 26.04-py3.  If the registry cannot be read, the
    documentation of the tag decides, if there is any.  Exit status: 0 all do, possibly with the compatibility package,
    1 one does not, 2 cannot tell.
    """
    drivers, name, remark = listed_drivers(" ".join(given), "--driver"), str(reference(tag)), ""
    try:
        found = read(ONLINE, tag)
    except Unreachable as error:
        documented = months.documented_image(reference(tag))
        if documented is None:
            raise
        found, sentence = documented
        remark = f"{error} {sentence}"
    needs = judge(found, drivers)
    verdict = worst(needs) if drivers else None
    status = EXIT_STATUS[verdict] if verdict else 2 * any(not each.requirement.driver for each in needs)
    described = [
        {
            "platforms": each.platforms, **asdict(each.requirement), "needs": each.requirement.driver,
            **asdict(each.requirement.summary), "drivers": {name: asdict(it) for name, it in each.judged.items()},
        }
        for each in needs
    ]  # fmt: skip
    document = {"image": name, "digest": found.digest, "needs": described, "verdict": verdict, "remark": remark}
    return Answer(status, document, filter(None, (remark, *_lines(name, needs))))


def _lines(name: str, needs: Sequence[DriverNeeds]) -> Iterator[str]:
    sources: dict[str, None] = {}
    for each in needs:
        yield f"{name} for {each.platforms}: {each.requirement.summary.reason}"
        for driver, judgement in each.judged.items():
            yield f"- {driver}: {judgement.verdict}. {judgement.reason}"
        for judgement in (each.requirement.summary, *each.judged.values()):
            sources |= dict.fromkeys(judgement.sources)
    if sources:
        yield "Sources:"
        yield from (f"- {source}" for source in sources)
