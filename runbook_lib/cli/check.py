"""``runbook check``: check that all pins of the base image agree."""

import json
from dataclasses import replace

import click

from runbook_lib.bump import sync_survey
from runbook_lib.cli.command import command, json_option
from runbook_lib.git.checkout import Checkout
from runbook_lib.images.reference import ImageType
from runbook_lib.world.repository import choose, is_named_by_files

_EXIT = {"in sync": 0, "out of sync": 1, "cannot tell": 2}


@command("check", "runbook check ~/Megatron-LM --ref main --ref 'core_r*'")
@click.argument("repo", default=".")
@click.option(
    "--ref",
    "refs",
    multiple=True,
    help="Check this ref without checking it out; repeatable; a pattern such as 'origin/core_r*' selects several "
    "branches, and '^NAME' leaves one out (default: the files of the work tree).",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Also fail for outdated informational pins, and for quarantined tests past their review date.",
)
@click.option(
    "--tag",
    default="",
    help="The tag that the pins should have, such as 26.04-py3; NAME:TAG checks one of several images.",
)
@click.option(
    "--image-type", type=click.Choice(("dev", "lts")), default="dev", help="The image type whose pins have --tag."
)
@click.option(
    "--pins",
    default="",
    metavar="WHOSE",
    help="Whose pins: megatron-lm, megatron-bridge, ml-containers, or the path of a pins file "
    "(default: the clone's own file, else the repository of its remote).",
)
@click.option("-v", "--verbose", is_flag=True, help="Print the table of all pins in any case.")
@json_option
def check(
    repo: str,
    refs: tuple[str, ...],
    strict: bool,
    tag: str,
    image_type: ImageType,
    pins: str,
    verbose: bool,
    as_json: bool,
) -> int:
    """Check that all pins of the base image agree in REPO, a clone, possibly bare (default: the current one).

    Exit status: 0 they do, 1 they do not, 2 unknown.
    """
    checkout = Checkout.open(repo)
    repository = choose(checkout, pins, refs)
    expected = None
    if tag:
        repository, expected = repository.of_tag(tag)
    result = sync_survey.survey(
        repo,
        refs,
        strict=strict,
        expected=expected,
        image_type=image_type,
        repository=repository,
    )
    in_sync = result.outcome == "in sync"
    has_details = verbose or not in_sync
    if (has_details or as_json) and not pins and is_named_by_files(checkout, repository):
        note = f"No remote names the repository. It was identified as {repository.name} from its files."
        result = replace(result, notes=(*result.notes, note))
    if as_json:
        print(json.dumps(result.as_json(), indent=2))
    else:
        hint = " --verbose lists them." if result.sentences and not has_details else ""
        print(f"{result.as_text(details=has_details)}{hint}")
    return _EXIT[result.outcome]
