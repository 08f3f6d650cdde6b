"""What a bump meets, looked at before anything moves: the plan, the image, the checkout and the rights."""

import os

from runbook_lib import display, notebooks
from runbook_lib.bump import Bump
from runbook_lib.checks import Check
from runbook_lib.clients.github import token_scopes
from runbook_lib.clients.github.client import GitHub
from runbook_lib.errors import RunbookError
from runbook_lib.git import editable
from runbook_lib.images import driver_check
from runbook_lib.pins.plan import Plan
from runbook_lib.records.step_record import StepRecord
from runbook_lib.runner.command_line import command
from runbook_lib.workflow import bump_branch
from runbook_lib.workflow.bump_branch import BumpBranch
from runbook_lib.workflow.bump_plan import PlannedBump


def local(branch: BumpBranch, plan: Plan) -> list[Check]:
    """Whether this checkout can be edited and committed to."""
    checkout = branch.checkout
    checks = [Check.of("the checkout has a work tree", not checkout.bare, str(checkout.path))]
    try:
        checks.append(Check.of("git knows who commits", True, "{} <{}>".format(*checkout.identity())))
    except RunbookError as error:
        checks.append(Check.of("git knows who commits", False, str(error)))
    try:
        bump_branch.uncommitted_edits(checkout, plan.edits)
        checks.append(
            Check.of(
                "no other changes are in the way", True, f"{display.count(len(plan.edits), 'file')} would be edited."
            )
        )
    except RunbookError as error:  # Refused, and CannotTell for a link
        checks.append(Check.of("no other changes are in the way", False, str(error)))
    found = list(editable.problems(checkout, [edit.path for edit in plan.edits]))
    checks.append(Check.of("the files can be edited as they are committed", not found, " ".join(found)))
    return checks


def rights(github: GitHub | None, bump: Bump) -> list[Check]:
    """What the token may do.  Skipped where nothing is published; a contributor without push rights is no failure."""
    names = ("the token is valid", "labels can be set", token_scopes.NAME)
    if github is None:
        return [Check(name, "skipped", "There is no token; publishing needs GITHUB_TOKEN.") for name in names]
    try:
        account, repository = github.me(), github.repo()
    except RunbookError as error:
        if bump.publish:
            raise
        return [Check(name, "skipped", str(error)) for name in names]
    may = bool(repository.permissions & {"triage", "push", "maintain", "admin"})
    who = f"{account.login} on {repository.name}"
    labels = (
        Check.of(names[1], True, f"{who} may: {', '.join(sorted(repository.permissions))}.")
        if may
        else Check(names[1], "skipped", f"{who} may not: a maintainer must set the label, and the bump will wait.")
    )
    allowed = token_scopes.check(github, account, repository, publish=bump.publish)
    return [Check.of(names[0], True, who), labels, allowed]


def driver_rows(ahead: PlannedBump) -> list[dict[str, str]]:
    """Return the driver that the image needs, compared with those of the runners (``RUNBOOK_DRIVERS``)."""
    return driver_check.rows(ahead.image, os.environ.get(driver_check.VARIABLE, ""))


def report(step: StepRecord, branch: BumpBranch, ahead: PlannedBump, github: GitHub | None) -> list[Check]:
    """Make all checks and tell the record what was found."""
    bump, plan = branch.bump, ahead.plan
    checks = [*local(branch, plan), *rights(github, bump)]
    step.warn(*branch.warnings, *plan.warnings)
    step.add_inputs(base_commit=branch.base_commit, digest=ahead.image and ahead.image.digest)
    step.table("platforms", ahead.platforms)
    if ahead.changes:
        step.table("image changes", ahead.changes.rows())
    if bump.tag is None:
        step.check(*checks)
        step.done("No tag was given: this is where things stand.", "Run again with a tag, such as -p tag 26.04-py3.")
        return checks
    checks.append(driver_check.check(ahead.image, os.environ.get(driver_check.VARIABLE, "")))
    step.table("drivers", driver_rows(ahead))
    step.check(ahead.check, *checks)
    for name, why in ahead.used_exceptions.items():
        step.allowed(name, why)
    if ahead.check.status == "skipped" and bump.publish:
        ahead.require()
    if ahead.check.status == "skipped":
        step.warn(f"The tag was not verified. {ahead.check.detail} Publishing will need allow=unverified-tag.")
    count = f"{display.count(len(plan.changes), 'value')} in {display.count(len(plan.edits), 'file')}"
    told = f"{count} would move to {bump.tag}." if plan.edits else f"Every pin names {bump.tag} already."
    step.done(told, command(notebooks.BUMP, bump, apply=True))
    return [ahead.check, *checks]
