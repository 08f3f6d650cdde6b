"""The run of a notebook: check the parameters, open the checkout and the record, carry out steps, close."""

import atexit
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

from IPython.display import display as show

from runbook_lib import display, practice
from runbook_lib.bump import Bump
from runbook_lib.clients.github.client import GitHub
from runbook_lib.git.checkout import Checkout
from runbook_lib.model import Plan
from runbook_lib.records import archive, chain, statement
from runbook_lib.records.step_record import StepRecord, close_incomplete
from runbook_lib.runner import session
from runbook_lib.system import clock, provenance
from runbook_lib.text.redact import Redactor
from runbook_lib.workflow import branch_history, bump_branch, bump_plan, repository
from runbook_lib.workflow.carry_out import carry_out
from runbook_lib.workflow.pull_request import connect_github
from runbook_lib.world.outside import World

_MODES = {
    "preview": "preview: nothing is changed",
    "apply": "apply: the checkout is changed, and nothing leaves this machine",
    "publish": "publish: the checkout is changed, and changes are pushed and published",
}
#: Parameters of `Bump.parse`; each notebook defines only the ones it uses.
_BUMP_PARAMETERS = ("tag", "image_type", "base", "remote", "allow")


F = TypeVar("F")


class Step(Protocol[F]):
    """A module or object that looks at the outside once, and plans from what it saw."""

    def look(self, world: World, bump: Bump) -> F:
        """Read what the step needs."""

    def plan(self, facts: F, bump: Bump) -> Plan[World]:
        """Plan, purely from the facts and the parameters."""


@dataclass(frozen=True)
class Context:
    """One run of a notebook.  Its branch, plan and forge are read when they are first needed."""

    bump: Bump
    checkout: Checkout
    record: StepRecord

    @property
    def branch(self) -> bump_branch.BumpBranch:
        """The bump's branch and its base.  Raises RunbookError like ``bump_branch.find``."""
        return bump_branch.look(self.world, self.bump)

    @cached_property
    def plan(self) -> bump_plan.PlannedBump:
        """The plan of the bump on its branch.  Raises RunbookError as ``bump_plan.plan_bump`` does."""
        return bump_plan.plan_bump(self.branch)

    @cached_property
    def forge(self) -> GitHub | None:
        """GitHub, or None if there is no usable token and this run publishes nothing."""
        return connect_github(self.checkout.repository(), self.bump)

    @cached_property
    def world(self) -> World:
        """The outside, as the steps see it."""
        return World(self.checkout, self.forge, self.record, self.record.records, folder=self.record.folder)

    def step(self, step: Step[F]) -> None:
        """Show a step's plan, carry it out as far as the mode allows, and record it.

        Nothing is built on commits that the runbook did not make, or published with them, until a person has confirmed
        them.  Raises RunbookError if a condition cannot be made true.
        """
        plan = step.plan(step.look(self.world, self.bump), self.bump)
        if plan.conditions and plan.on_branch:
            plan = self._reviewed(plan)
        carry_out(self.record, plan, self.world, show)

    def close(self) -> None:
        """Show the record's outcome.  Raises RunbookError if a check failed."""
        show(self.record.show())
        self.record.raise_if_failed()

    def _reviewed(self, plan: Plan[World]) -> Plan[World]:
        """Return the plan with the review of the commits on the branch that it builds on."""
        branch = self.world.branches[plan.on_branch] if isinstance(plan.on_branch, str) else self.branch
        if branch.tip is None:
            return plan
        return branch_history.apply_review(plan, branch_history.review(branch, branch.tip, self.record.records))


def begin(notebook: str, parameters: Mapping[str, Any]) -> Context:
    """Start a run of ``notebook`` (a file name); ``parameters`` are the notebook's ``globals()``.

    Without ``repo`` the run uses the practice environment, and starts it if it is not running.  In JupyterLab
    ``apply`` and ``publish`` count as False, because the form starts a headless run instead.
    Raises RunbookError for an invalid parameter, checkout or record.
    """
    repo = parameters["repo"]
    checkout = Checkout.open(practice.enter(repo))
    headless = not session.interactive()
    bump = Bump.parse(
        **{name: parameters[name] for name in _BUMP_PARAMETERS if name in parameters},
        apply=headless and parameters.get("apply", False),
        publish=headless and parameters.get("publish", False),
        practice=not repo,
        repository=repository.choose(checkout, parameters.get("pins", "")),
    )
    name = checkout.repository()
    record = open_record(notebook, bump, repository=name, audit=parameters.get("audit", ""))
    show(_inputs(bump, checkout.path, name, practice=not repo))
    return Context(bump, checkout, record)


def open_record(name: str, bump: Bump, *, repository: str, audit: str = "") -> StepRecord:
    """Open the record of the notebook ``name``; ``repository`` is ``owner/name`` on the forge.

    A run started by the library already has a record, and ignores ``audit``.  In JupyterLab nothing is recorded.
    Raises RunbookError for a record that cannot be written.
    """
    if folder := os.environ.get("RUNBOOK_RECORD"):
        return StepRecord(name, bump, repository, Path(folder))
    identity = statement.Identity(
        repository, bump.base, bump.image_type, bump.target, practice=bool(os.environ.get("RUNBOOK_PRACTICE"))
    )  # fmt: skip
    identity = statement.Identity.from_json(Redactor(os.environ).data(identity.as_json()))
    root = Path(audit).expanduser().absolute() if audit else archive.default()
    records = root.joinpath(*identity.parts)
    incomplete = None if session.interactive() else _open_incomplete(name, records, identity)
    return StepRecord(name, bump, repository, incomplete, records)


def _open_incomplete(name: str, records: Path, identity: statement.Identity) -> Path:
    """Open a record that the notebook itself keeps, for a run not started through the library's papermill."""
    started = clock.now()
    record = statement.record_id(started, name)
    predicate = {
        "id": record,
        "state": "running",
        "bump": identity.as_json(),
        "notebook": {"name": name, "sha256": None},
        "launcher": None,
        "library": provenance.library(),
        "requirements": provenance.requirements(),
        "who": provenance.who(os.environ),
        "process": provenance.process(),
        "started": clock.stamp(started),
        "ended": None,
        "parent": None,
    }
    with chain.Ledger.locked(records) as ledger:
        folder = ledger.open(record, Redactor(os.environ).data(predicate))
    atexit.register(close_incomplete, folder)
    return folder


def _inputs(bump: Bump, checkout: Path, repository: str, *, practice: bool) -> display.View:
    """Return the checked parameters, preceded by a notice in the practice environment."""
    facts = display.facts(
        tag=bump.tag, image_type=bump.image_type, base=bump.base, remote=bump.remote, checkout=checkout,
        repository=repository, pins_of=bump.repository.origin or bump.repository.name,
        allowed=bump.allow, mode=_MODES[bump.mode if bump.tag else "preview"],
    )  # fmt: skip
    if not practice:
        return facts
    notice = "PRACTICE: nothing here is real, and nothing leaves this machine."
    return display.View(f"<p><strong>{notice}</strong></p>", notice) + facts
