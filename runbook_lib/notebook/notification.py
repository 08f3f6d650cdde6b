"""The notification that a run has changed its bump's state."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from runbook_lib.record.archive import read_records
from runbook_lib.record.run_file import Identity
from runbook_lib.record.status import BumpStatus, bump_status
from runbook_lib.world import commands
from runbook_lib.world.machine.notify import Event, notify

_EVENTS: Mapping[str, Event] = {"waiting": "waiting", "ready": "ready", "failed": "failed", "interrupted": "failed"}


def after_run(folder: Path) -> str:
    """Notify if the run with this record has changed its bump's state; return a warning, if any."""
    runs = read_records(folder.parent).readable
    status = bump_status(folder.parent, runs)
    before = bump_status(folder.parent, [run for run in runs if run["id"] != folder.name])
    event = _event(status)
    if status is None or event is None or event == _event(before):
        return ""
    bump = {each.name: getattr(status, each.name) for each in fields(Identity)}
    return notify(event, bump, status.sentence, next_action=commands.text(status.next), links=status.links)


def _event(status: BumpStatus | None) -> Event | None:
    """Return the event for a state; None if nobody has to do anything in that state."""
    if status is None or not status.tag or status.for_ci:
        return None
    return _EVENTS.get(status.state)
