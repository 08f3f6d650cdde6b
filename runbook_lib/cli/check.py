"""``runbook check``: check that all pins of the base image agree."""

import argparse
import json
from dataclasses import replace

from runbook_lib.bump import sync_survey
from runbook_lib.cli.style import paint
from runbook_lib.errors import RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.world.repository import choose, is_named_by_files

_EXIT = {"in sync": 0, "out of sync": 1, "cannot tell": 2}
_COLOURS = {"in sync": "green", "out of sync": "red", "cannot tell": "yellow"}


def command(options: argparse.Namespace) -> int:
    """Check that the pins agree, print the result, and return the exit status."""
    if [] in options.ref:  # argparse's value of --ref=-- before Python 3.12
        raise RunbookError("--ref=-- names no commit. Give a branch, a tag or a commit.")
    checkout = Checkout.open(options.repo)
    repository = choose(checkout, options.pins, options.ref)
    expected = None
    if options.tag:
        repository, expected = repository.of_tag(options.tag)
    result = sync_survey.survey(
        options.repo,
        options.ref,
        strict=options.strict,
        expected=expected,
        image_type=options.image_type,
        repository=repository,
    )
    in_sync = result.outcome == "in sync"
    has_details = options.verbose or not in_sync
    if (has_details or options.json) and not options.pins and is_named_by_files(checkout, repository):
        note = f"No remote names the repository. It was identified as {repository.name} from its files."
        result = replace(result, notes=(*result.notes, note))
    if options.json:
        print(json.dumps(result.as_json(), indent=2))
    else:
        details, newline, summary = result.as_text(details=has_details).rpartition("\n")
        hint = " --verbose lists them." if result.sentences and not has_details else ""
        print(f"{details}{newline}{paint(summary + hint, _COLOURS[result.outcome])}")
    return _EXIT[result.outcome]
