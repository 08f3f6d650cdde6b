"""Notebook 00-preflight: check the checkout, the image, the runners' drivers and the token before a bump starts."""

import os
from dataclasses import dataclass, replace

from runbook_lib import display, notebooks
from runbook_lib.bump import gitlab_tests, pins_step, policy, sync_survey
from runbook_lib.bump.pins_step import PlannedBump
from runbook_lib.errors import RunbookError
from runbook_lib.images import months
from runbook_lib.images.compare import merged
from runbook_lib.images.drivers import DRIVERS_VARIABLE, DriverNeeds, check_drivers, driver_rows, judge, listed_drivers
from runbook_lib.model import Check, Evidence, Next, Outcome, Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.plan import PinPlan
from runbook_lib.text.edits import diff
from runbook_lib.text.recipes import rows
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.git.commits import tree_with
from runbook_lib.world.github.models import RIGHTS, GitHubRepository, scopes
from runbook_lib.world.ports import Forge, World

NAME = notebooks.PREFLIGHT


@dataclass(frozen=True)
class PreflightFacts:
    """The branch, the plan and the image, the runners' drivers, and the checks of checkout and token.

    ``pins`` are the present pins, ``validation`` says how the LTS image is validated, and ``recipes`` what CI does not
    read as it is written.
    """

    branch: BumpBranch
    planned: PlannedBump
    drivers: tuple[DriverNeeds, ...]
    checks: tuple[Check, ...]
    pins: list[dict[str, str]]
    validation: tuple[str, ...]
    recipes: tuple[str, ...]


def look(world: World, bump: Bump) -> PreflightFacts:
    """Read the branch, the registry, the checkout and the token.  Raises RunbookError like ``plan_bump``."""
    branch = BumpBranch.look(world, bump)
    _require_known(branch)
    planned = pins_step.plan_bump(branch)
    checks = (*_checkout_checks(branch, planned.plan), *policy.checks(branch), *rights(world.github, bump))
    drivers = judge(planned.described, listed_drivers(os.environ.get(DRIVERS_VARIABLE, "")))
    pins = sync_survey.survey(branch.checkout, [branch.start], repository=bump.repository)
    recipes: tuple[str, ...] = ()
    if bump.repository.tests.recipes:
        found, unreadable = gitlab_tests.read_recipes(branch.checkout, branch.start)
        recipes = (*unreadable, *rows.problems(found))
    return PreflightFacts(branch, planned, drivers, checks, pins.rows(), gitlab_tests.describe(branch), recipes)


def _require_known(branch: BumpBranch) -> None:
    """Raise Refused for decisions on files or tests that are not on the branch, before a step changes anything."""
    decisions = branch.bump.decisions
    if branch.bump.tag and decisions.entries:
        from runbook_lib.failures import quarantines  # most bumps begin without decisions
        from runbook_lib.golden import comparison

        comparison.require_known(branch, decisions)
        quarantines.resolve_targets(branch)


def plan(facts: PreflightFacts, bump: Bump) -> Plan[World]:
    """Return the checks of a bump that has not begun.  Raises Refused if this run publishes an unverified tag."""
    branch, planned = facts.branch, facts.planned
    checks = facts.checks
    tables = {
        "pins": facts.pins,
        "platforms": planned.platforms,
        "image changes": merged(planned.changes.rows()) if planned.changes else [],
        "environment": merged(planned.changes.environment()) if planned.changes else [],
        "known issues": [issue.row() for issue in planned.known_issues],
        "published facts": months.facts(*planned.compared_months),
        "drivers": driver_rows(facts.drivers) if bump.tag else [],
        "validation": [{"step": sentence} for sentence in facts.validation],
        "recipes that CI does not run as they are written": [{"problem": sentence} for sentence in facts.recipes],
    }
    tables = {name: rows for name, rows in tables.items() if rows}
    shown = [display.note(f"{name.capitalize()}:") + display.table(rows) for name, rows in tables.items()]
    warnings = [*branch.warnings, *planned.plan.warnings]
    warnings += [check.detail for check in checks if check.name in policy.NAMES and check.status != "passed"]
    done = Outcome("No tag was given: this is the current state.", Next.again(tag="26.04-py3"))
    if bump.tag:
        moves, files = len(planned.plan.changes), len(planned.plan.edits)
        sentence = f"{display.count(moves, 'value')} in {display.count(files, 'file')} would move to {bump.tag}."
        if not files:
            sentence = f"All pins are already at {bump.tag}."
        done = Outcome(sentence, Next.run(notebooks.BUMP, mode="publish"))
        drivers = check_drivers(facts.drivers)
        if planned.documented:
            drivers = replace(drivers, detail=f"{planned.documented[1]} {drivers.detail}")
        checks = (planned.check, *checks, drivers)
        if planned.check.status == "skipped":
            if bump.publish:
                planned.require()
            advice = bump.decisions.advice("allow", "unverified-tag")
            warnings.append(f"The tag was not verified. {planned.check.detail} To publish it, {advice}.")
    return Plan(
        done,
        shown=(display.diff(diff(planned.plan.edits)), *shown),
        checks=checks,
        evidence=Evidence(
            inputs={"base_commit": branch.base_commit, "digest": planned.image and planned.image.digest},
            tables=tables,
            decided=planned.decided,
            warnings=tuple(warnings),
        ),
    )


def _checkout_checks(branch: BumpBranch, plan: PinPlan) -> list[Check]:
    """Check that the planned files can be committed in this repository."""
    checkout, checks = branch.checkout, []
    name = "git has a committer identity"
    try:
        checks.append(Check.of(name, True, "{} <{}>".format(*checkout.identity())))
    except RunbookError as error:
        if branch.bump.apply:
            checks.append(Check(name, "failed", str(error)))
        else:
            checks.append(Check(name, "skipped", f"{error} A preview does not commit, so it works without one."))
    name = "the planned files can be committed"
    try:
        tree_with(checkout, branch.start, plan.edits)
        checks.append(Check.of(name, True, f"{display.count(len(plan.edits), 'file')} would be edited."))
    except RunbookError as error:  # Refused, or CannotTell for a symbolic link
        checks.append(Check.of(name, False, str(error)))
    return checks


def rights(github: Forge | None, bump: Bump) -> list[Check]:
    """Check the token's permissions.  A contributor who may not set labels is not a failure."""
    valid, can_label = "the token is valid", "labels can be set"
    if github is None:
        return [Check(valid, "skipped", "There is no token. Set GITHUB_TOKEN to publish.")]
    try:
        login, repository = github.me(), github.repo()
    except RunbookError as error:
        if bump.publish:
            raise
        return [Check(valid, "skipped", str(error))]
    subject = f"{login} on {repository.name}"
    labels = Check(can_label, "passed", f"Permissions of {subject}: {', '.join(sorted(repository.permissions))}.")
    if repository.permissions.isdisjoint({"triage", "push", "maintain", "admin"}):
        detail = f"{subject} has no permission to set labels, so the bump will wait for a maintainer to set them."
        labels = Check(can_label, "skipped", detail)
    enough = _token_check(github, login, repository, publish=bump.publish)
    return [Check.of(valid, True, subject), labels, enough]


_RIGHTS = "the token may do what the steps need"
#: A fine-grained token's, for all steps of a bump of a private repository; of a public one anybody may read.
PERMISSIONS = (
    "actions=write", "contents=read", "deployments=read", "issues=write", "metadata=read", "pull_requests=write"
)  # fmt: skip


def _token_check(github: Forge, login: str, repository: GitHubRepository, *, publish: bool) -> Check:
    """Check that the token has the permissions that the steps need; skipped if only writing would show.

    ``github`` must have answered once.  Missing permissions fail the check of a run that publishes.
    """
    token, owned = f"The token of {login}", scopes(github.scopes)
    if "repo" in owned:
        return Check(_RIGHTS, "passed", f"The scope repo is enough for every step on {repository.name}.")
    if "public_repo" in owned and not repository.private:
        limit = "to read artifacts and to rerun failed jobs, GitHub's description of its API requires the scope repo"
        return Check(_RIGHTS, "skipped", f"{token} may write to {repository.name} by its scope public_repo; {limit}.")
    areas = [permission.partition("=")[0] for permission in PERMISSIONS if permission != "metadata=read"]
    if github.scopes is not None:
        problem = f"{token} has no scope for {repository.name}."
    elif repository.private and (denied := [area for area in areas if not github.may_read(area)]):
        problem = f"{token} may not read {', '.join(denied)} of {repository.name}."
    else:
        return Check(
            _RIGHTS, "skipped", f"Only writing shows whether {token[0].lower()}{token[1:]} may write. {RIGHTS}"
        )
    return Check(_RIGHTS, "failed" if publish else "skipped", f"{problem} {RIGHTS}")
