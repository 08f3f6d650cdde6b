"""``runbook labels``: the labels that a pull request or a range of commits needs.  Changes nothing."""

import argparse
import re

from runbook_lib import display
from runbook_lib.clients.github.client import GitHub
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins.repositories import MEGATRON_LM
from runbook_lib.steps.labels import of_pull, of_range, table_rows
from runbook_lib.workflow.repository import choose, short


def command(options: argparse.Namespace) -> int:
    """Print the table of labels; return 0."""
    checkout = Checkout.open(options.repo)
    repository = choose(checkout)
    if short(repository) != short(MEGATRON_LM):
        raise RunbookError(
            f"{checkout.path} is a clone of {repository.name}, but the table of labels is that of {MEGATRON_LM.name}. "
            "See the repository's own guide for contributors."
        )
    what = options.what
    if number := re.fullmatch(r"#?([0-9]{1,9})", what):
        with GitHub(checkout.repository()) as github:
            changed = of_pull(checkout, github, int(number[1]))
    elif ".." in what or not what:
        changed = of_range(checkout, what or _default(checkout))
    else:
        raise RunbookError(f"{what!r} is neither the number of a pull request nor a range such as origin/main..HEAD.")
    print(f"{changed.name}: {display.count(len(changed.paths), 'changed path')}")
    print(
        display.table(table_rows(changed.needed, changed.present), empty="Nothing changes, so no label is needed.").text
    )
    if changed.limitation:
        print(changed.limitation)
    return 0


def _default(checkout: Checkout) -> str:
    remote = checkout.base_remote()
    base = next((ref for ref in (f"{remote}/main", "main") if checkout.has(ref)), None)
    if base is None:
        raise CannotTell(f"{checkout.path} has no branch main to compare with. Give a range, such as BASE..HEAD.")
    return f"{base}..HEAD"
