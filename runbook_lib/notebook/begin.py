"""The beginning of a notebook's run: check the parameters, open the checkout and the record."""

import atexit
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from IPython.display import display as show

from runbook_lib import display, practice
from runbook_lib.bump.run import Run
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins.bump import Bump, default_mode
from runbook_lib.records import archive, chain, statement
from runbook_lib.records.step_record import StepRecord, close_incomplete
from runbook_lib.runner import session
from runbook_lib.system import clock, provenance
from runbook_lib.text.redact import Redactor
from runbook_lib.world import repository

_MODES = {
    "preview": "preview: nothing is changed",
    "local": "local: the bump's branch is changed in the checkout, and nothing leaves this machine",
    "publish": "publish: the bump's branch is changed, pushed and published",
}
#: Parameters of `Bump.parse`; each notebook defines only the ones it uses.
_BUMP_PARAMETERS = ("tag", "image_type", "base", "remote", "allow")


def begin(notebook: str, parameters: Mapping[str, Any]) -> Run:
    """Start a run of ``notebook`` (a file name); ``parameters`` are the notebook's ``globals()``.

    Without ``repo`` the run uses the practice environment, and starts it if it is not running.  Without ``mode``
    it publishes there, and is a preview elsewhere.  In JupyterLab it is a preview: the form starts a headless run.
    Raises RunbookError for an invalid parameter, checkout or record.
    """
    repo = parameters["repo"]
    checkout = Checkout.open(practice.enter(repo))
    mode = "preview" if session.interactive() else parameters.get("mode") or default_mode(repo)
    bump = Bump.parse(
        **{name: parameters[name] for name in _BUMP_PARAMETERS if name in parameters},
        mode=mode,
        repository=repository.choose(checkout),
    )
    name = checkout.repository()
    record = open_record(notebook, bump, repository=name)
    show(_inputs(bump, checkout.path, name, practice=not repo))
    return Run(bump, checkout, record)


def open_record(name: str, bump: Bump, *, repository: str) -> StepRecord:
    """Open the record of the notebook ``name``; ``repository`` is ``owner/name`` on the forge.

    A run started by the library already has a record.  In JupyterLab nothing is recorded.
    Raises RunbookError for a record that cannot be written.
    """
    if folder := os.environ.get("RUNBOOK_RECORD"):
        return StepRecord(name, bump, repository, Path(folder))
    identity = statement.Identity(
        repository, bump.base, bump.image_type, bump.target, practice=bool(os.environ.get("RUNBOOK_PRACTICE"))
    )  # fmt: skip
    identity = statement.Identity.from_json(Redactor(os.environ).data(identity.as_json()))
    records = archive.default().joinpath(*identity.parts)
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
