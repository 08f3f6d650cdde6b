"""``runbook add-test``: the checks of a new test, and its missing recipe row."""

import argparse
import re
from collections.abc import Sequence

from runbook_lib import display
from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.golden.file_names import FOLDER
from runbook_lib.recipes import draft, rows
from runbook_lib.recipes.targets import Target
from runbook_lib.steps.new_test import UNIT_TESTS, functional, registered_in, unit
from runbook_lib.text import edits


def command(options: argparse.Namespace) -> int:
    """Print the checks and the drafted row; return 0 if no check failed, also with ``--apply``."""
    checkout = Checkout.open(options.repo)
    path = options.test.strip("/")
    if path.startswith(f"{UNIT_TESTS}/"):
        texts = _read(checkout, ("pyproject.toml", path, rows.FOLDER))
        checks = unit(path, texts.get(path), texts, registered_in(texts.get("pyproject.toml")))
        print(display.checks(checks).text)
        return int(any(check.status == "failed" for check in checks))
    model, _, case = path.removeprefix(f"{FOLDER}/").rpartition("/")
    if not all(re.fullmatch(r"[A-Za-z0-9][\w.+-]*", part) for part in (model, case)):
        raise RunbookError(
            f"{options.test!r} does not name a test. Give MODEL/CASE, or the path of a file below {UNIT_TESTS}/."
        )
    failed = False
    for platform in options.platform or ["dgx_h100"]:
        test = Target(case, platform, options.environment, model)
        failed |= _check(checkout, test, options)
    return int(failed)


def _check(checkout: Checkout, test: Target, options: argparse.Namespace) -> bool:
    """Check a test on one platform and draft its row; return True if a check failed."""
    paths = (f"{FOLDER}/{test.model}/{test.case}", rows.FOLDER)
    texts = _read(checkout, paths)
    print(f"{test}")
    if not any(test.is_of(row) for row in rows.read_all(texts)[0]):
        try:
            recipe = options.recipe or draft.recipe_for(test, texts)
            if texts.get(recipe) is None:
                raise Refused(f"There is no recipe {recipe} in {checkout.path}. It must be below {rows.FOLDER}/.")
            drafted = draft.draft(recipe, texts[recipe] or "", test)
        except (Refused, CannotTell) as error:
            print(f"No row could be drafted. {error}")
        else:
            print(f"The missing row, modelled on {drafted.like}:\n\n{edits.diff([drafted.edit])}")
            if options.apply:
                checkout.apply([drafted.edit])
                print(f"Written to {recipe}.")
                texts = _read(checkout, paths)
    checks = functional(test, texts)
    print(display.checks(checks).text)
    return any(check.status == "failed" for check in checks)


def _read(checkout: Checkout, paths: Sequence[str]) -> dict[str, str | None]:
    """Return the files at or below these paths, from the work tree, or in a bare clone from HEAD."""
    if checkout.bare:
        listed = checkout.git("ls-tree", "-r", "-z", "--name-only", "--full-tree", "HEAD", "--", *paths)
        return checkout.read([path for path in listed.split("\0") if path], "HEAD")
    # git does not track a new test yet.
    listed = checkout.git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths)
    wanted = [
        path for path in dict.fromkeys(listed.split("\0")) if path.endswith((".yaml", ".yml", ".py", ".json", ".toml"))
    ]
    return checkout.read(wanted)
