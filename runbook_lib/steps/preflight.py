"""Notebook 00-preflight: check the checkout, the image, the runners' drivers and the token before a bump starts."""

import os

from runbook_lib import display, notebooks
from runbook_lib.bump import Bump
from runbook_lib.checks import Check
from runbook_lib.clients.github import token_scopes
from runbook_lib.clients.github.client import GitHub
from runbook_lib.errors import RunbookError
from runbook_lib.git import editable
from runbook_lib.images import driver_check
from runbook_lib.pins.plan import PinPlan
from runbook_lib.records.step_record import StepRecord
from runbook_lib.runner.command_line import command
from runbook_lib.text.edits import edited_paths
from runbook_lib.workflow import bump_branch, lts_validation
from runbook_lib.workflow.bump_branch import BumpBranch
from runbook_lib.workflow.bump_plan import PlannedBump


def _checkout_checks(branch: BumpBranch, plan: PinPlan) -> list[Check]:
    """Check that the planned files can be edited and committed in this checkout."""
    checkout, paths = branch.checkout, edited_paths(plan.edits)
    checks = [Check.of("the checkout has a work tree", not checkout.bare, str(checkout.path))]
    name = "git has a committer identity"
    try:
        checks.append(Check.of(name, True, "{} <{}>".format(*checkout.identity())))
    except RunbookError as error:
        if branch.bump.apply:
            checks.append(Check(name, "failed", str(error)))
        else:
            checks.append(Check(name, "skipped", f"{error} A preview does not commit, so it works without one."))
    name = "no other changes are in the way"
    try:
        bump_branch.uncommitted_edits(checkout, plan.edits)
        checks.append(Check.of(name, True, f"{display.count(len(paths), 'file')} would be edited."))
    except RunbookError as error:  # Refused, or CannotTell for a symbolic link
        checks.append(Check.of(name, False, str(error)))
    problems = list(editable.problems(checkout, paths))
    return [*checks, Check.of("the files can be edited as committed", not problems, " ".join(problems))]


def rights(github: GitHub | None, bump: Bump) -> list[Check]:
    """Check the token's permissions.  A contributor who may not set labels is not a failure."""
    valid, can_label = "the token is valid", "labels can be set"
    names = (valid, can_label, token_scopes.NAME)
    if github is None:
        return Check.each(names, "skipped", "There is no token. Set GITHUB_TOKEN to publish.")
    try:
        login, repository = github.me(), github.repo()
    except RunbookError as error:
        if bump.publish:
            raise
        return Check.each(names, "skipped", str(error))
    subject = f"{login} on {repository.name}"
    labels = Check(can_label, "passed", f"Permissions of {subject}: {', '.join(sorted(repository.permissions))}.")
    if repository.permissions.isdisjoint({"triage", "push", "maintain", "admin"}):
        detail = f"{subject} has no permission to set labels, so the bump will wait for a maintainer to set them."
        labels = Check(can_label, "skipped", detail)
    scopes = token_scopes.check(github, login, repository, publish=bump.publish)
    return [Check.of(valid, True, subject), labels, scopes]


def driver_rows(planned: PlannedBump) -> list[dict[str, str]]:
    """Return the driver that the image needs, compared with the runners' drivers (``RUNBOOK_DRIVERS``)."""
    return driver_check.rows(planned.image, os.environ.get(driver_check.VARIABLE, ""))


def report(step: StepRecord, branch: BumpBranch, planned: PlannedBump, github: GitHub | None) -> list[Check]:
    """Run all checks and record them.  Raises Refused if this run publishes and the tag was not verified."""
    bump, plan = branch.bump, planned.plan
    checks = [*_checkout_checks(branch, plan), *rights(github, bump)]
    step.warn(*branch.warnings, *plan.warnings)
    step.add_inputs(base_commit=branch.base_commit, digest=planned.image and planned.image.digest)
    step.table("platforms", planned.platforms)
    if planned.changes:
        step.table("image changes", planned.changes.rows())
    step.table("known issues", [issue.row() for issue in planned.known_issues])
    if bump.tag is None:
        step.check(*checks)
        step.done("No tag was given: this is the current state.", "Run again with a tag, such as -p tag 26.04-py3.")
        return checks
    checks.append(driver_check.check(planned.image, os.environ.get(driver_check.VARIABLE, "")))
    checks.insert(0, planned.check)
    step.table("drivers", driver_rows(planned))
    if validation := lts_validation.describe(branch):
        step.table("validation", [{"step": sentence} for sentence in validation])
    step.check(*checks)
    for exception, reason in planned.used_exceptions.items():
        step.allowed(exception, reason)
    if planned.check.status == "skipped":
        if bump.publish:
            planned.require()
        step.warn(f"The tag was not verified. {planned.check.detail} Publishing requires allow=unverified-tag.")
    count = f"{display.count(len(plan.changes), 'value')} in {display.count(len(plan.edits), 'file')}"
    sentence = f"{count} would move to {bump.tag}." if plan.edits else f"All pins are already at {bump.tag}."
    step.done(sentence, command(notebooks.BUMP, bump, apply=True))
    return checks
