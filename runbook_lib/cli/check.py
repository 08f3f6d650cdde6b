"""``runbook check``: check that all pins of the base image agree."""

import click

from runbook_lib.bump import sync_survey
from runbook_lib.cli.command import Answer, command
from runbook_lib.images.reference import ImageType
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.repository import choose

_EXIT = {"in sync": 0, "out of sync": 1, "cannot tell": 2}
_REF = """Check this ref without checking it out; repeatable; a pattern such as 'origin/core_r*' selects several
branches, and '^NAME' leaves one out (default: the files of the work tree)."""
_STRICT = "Also fail for outdated informational pins, and for quarantined tests past their review date."
_TAG = "The tag that the pins should have, such as 26.04-py3; NAME:TAG checks one of several images."
_PINS = """Whose pins: megatron-lm, megatron-bridge, ml-containers, or the path of a pins file (default: the clone's
own file, else the repository of its remote)."""


@command("check ~/Megatron-LM --ref main --ref 'origin/core_r*'")
@click.argument("repo", default=".")
@click.option("--ref", "refs", multiple=True, help=_REF)
@click.option("--strict", is_flag=True, help=_STRICT)
@click.option("--tag", default="", help=_TAG)
@click.option("--image-type", type=click.Choice(("dev", "lts")), default="dev", help="Whose pins have --tag.")
@click.option("--pins", default="", metavar="WHOSE", help=_PINS)
@click.option("-v", "--verbose", is_flag=True, help="Print the table of all pins in any case.")
def check(
    repo: str, refs: tuple[str, ...], strict: bool, tag: str, image_type: ImageType, pins: str, verbose: bool
) -> Answer:
    """Check that all pins of the base image agree in REPO, a clone, possibly bare (default: the current one).

    Exit status: 0 they do, 1 they do not, 2 unknown.
    """
    checkout = Checkout.open(repo)
    repository = choose(checkout, pins, refs)
    expected = None
    if tag:
        repository, expected = repository.of_tag(tag)
    result = sync_survey.survey(
        checkout, refs, strict=strict, expected=expected, image_type=image_type, repository=repository
    )
    has_details = verbose or result.outcome != "in sync"
    hint = " --verbose lists them." if result.sentences and not has_details else ""
    return Answer(_EXIT[result.outcome], result.as_json(), [f"{result.as_text(details=has_details)}{hint}"])
