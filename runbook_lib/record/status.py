"""A bump's status, derived from its records."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runbook_lib.checks import Next
from runbook_lib.display import count
from runbook_lib.notebooks import BUMP, CHANGING_STEPS
from runbook_lib.record.archive import bump_folders, read_records
from runbook_lib.record.journal import file_prefix
from runbook_lib.record.run_file import Identity, requirements

Predicate = Mapping[str, Any]

_BECAUSE = {
    "failed": "Fix what failed. Completed work is detected and kept.",
    "interrupted": "Completed work is detected and kept.",
    "in progress": "To check every requirement for the merge:",
}
#: The parameters that the bump notebook has in common with its steps.
_OF_BUMP = ("tag", "repo", "image_type", "base", "remote", "decisions", "mode")


@dataclass(frozen=True, kw_only=True)
class BumpStatus(Identity):
    """The status of a bump.

    ``state`` is ``ready`` if the bump notebook has found every requirement met and no step has changed anything since;
    ``in progress`` if all steps that ran are done; else the state of the step that blocks the bump:
    waiting, running, failed or interrupted.  Without a run that applied anything it is ``previewed``,
    or ``not begun`` if no run got past its inputs.  It is ``unreadable`` if no record can be read.

    ``active`` is the start of the last run, and ``since`` the time when ``state`` was reached.  ``links`` maps names,
    such as ``CI run`` and ``issue #12``, to URLs.  ``record`` is the folder of the record that decides the state,
    ``folder`` the bump's; both are absolute paths.  ``for_ci``: it waits for CI, and nobody has to do anything.
    ``warning`` names unreadable records.
    """

    state: str
    step: str
    sentence: str
    next: Next
    since: str
    record: str
    folder: str
    links: Mapping[str, str]
    active: str = ""
    for_ci: bool = False
    warning: str = ""

    @property
    def is_started(self) -> bool:
        """True if the bump can be continued: it has a tag, and a run got past its inputs."""
        return bool(self.tag) and self.state != "not begun"

    @property
    def is_in_flight(self) -> bool:
        """True if something was applied and the bump is not ready."""
        return self.is_started and self.state not in ("ready", "previewed")


def bump_status(folder: Path, runs: Sequence[Predicate], unreadable: Sequence[str] = ()) -> BumpStatus | None:
    """Return the status of a bump from its records, oldest first; None if there are no records.

    ``unreadable`` are the names of unreadable records.
    """
    warning = ""
    if unreadable:
        warning = (
            f"{count(len(unreadable), 'record')} cannot be read, so this status may be incomplete "
            f"({', '.join(unreadable)}). Run `runbook audit verify` for details."
        )
    if not runs:
        return _unreadable_status(folder, warning) if unreadable else None
    runs = with_steps(runs)
    applied = [run for run in runs if _has_applied(run)]
    applied = [run for run in applied if _is_step(run)] or applied
    state, deciding = _deciding_run(applied) if applied else _deciding_preview(runs)
    considered = applied or list(runs)
    outcome = deciding.get("outcome") or {}
    # The bump notebook takes all steps into account, not only the one that blocks the bump.
    whole = deciding.get("whole") or deciding
    following = Next.from_json((whole.get("outcome") or {}).get("next")) or Next.from_json(outcome.get("next"))
    return BumpStatus(
        **asdict(Identity.from_json(deciding["bump"])),
        state=state,
        step=deciding["notebook"]["name"],
        sentence=outcome.get("sentence") or "",
        next=following or _next(state, deciding),
        since=_since(considered, deciding),
        record=str(folder / deciding["id"]),
        folder=str(folder),
        links=links(considered),
        active=str(runs[-1]["started"]),
        for_ci=state == "waiting" and bool(outcome.get("for_ci")),
        warning=warning,
    )


def with_steps(runs: Iterable[Predicate]) -> list[Predicate]:
    """Return the runs, each of a bump followed by its steps as runs of their own, with the bump's as the ``whole``.

    ``prefix`` of a step is the beginning of the names of its files.
    """
    entries: list[Predicate] = []
    for run in runs:
        entries.append(run)
        for step in run.get("steps") or () if run["notebook"]["name"] == BUMP else ():
            if step["state"] != "not run":
                place = {"notebook": {"name": step["name"]}, "whole": run, "inputs": {}}
                entries.append({**run, **step, **place, "prefix": file_prefix(step["name"], step["round"])})
    return entries


def links(runs: Iterable[Predicate]) -> dict[str, str]:
    """Return the newest URL for each name that the runs link to, and for the issues they opened."""
    addresses: dict[str, str] = {}
    # A run ends after its steps, and knows which of their links are those of the last commit.
    for run in sorted(runs, key=lambda run: str(run.get("ended") or "~")):
        addresses |= {str(name): str(url) for name, url in (run.get("links") or {}).items()}
        for effect in run.get("effects") or ():
            if effect.get("effect") == "issue" and effect.get("url"):
                addresses[f"issue {effect.get('target')}"] = str(effect["url"])
    return addresses


def _reason(run: Predicate) -> str:
    """Return the reason of a run's outcome: its sentence without its progress, such as ``3 of 7 jobs done``."""
    outcome = run.get("outcome") or {}
    return str(outcome.get("reason") or outcome.get("sentence") or "")


def is_preview(run: Predicate) -> bool:
    """Return True for a run that could not change anything, whatever its final state."""
    mode = run.get("mode") or (run.get("parameters") or {}).get("mode")
    return run["state"] == "previewed" or mode == "preview"


def _next(state: str, deciding: Predicate) -> Next:
    """Return what comes next after a run that does not say it: the same run again, or that of the whole bump."""
    if state not in _BECAUSE:
        return Next()
    run = deciding.get("whole") or deciding
    name, given = str(run["notebook"]["name"]), dict(run.get("parameters") or {})
    if state == "in progress":
        name, given = BUMP, {each: value for each, value in given.items() if each in _OF_BUMP}
    return Next(_BECAUSE[state], name, given)


def _has_applied(run: Predicate) -> bool:
    """Return True for a run that counts: neither a preview nor stopped by its inputs."""
    parts = ("inputs", "effects", "checks", "conditions", "steps")
    return not is_preview(run) and (run["state"] != "failed" or any(run.get(name) for name in parts))


def _is_step(run: Predicate) -> bool:
    """Return True for the bump notebook and its steps; other notebooks, such as a build, do not block a bump."""
    name = str(run["notebook"]["name"])
    return name == BUMP or name[:2].isdigit()


def _deciding_preview(runs: Sequence[Predicate]) -> tuple[str, Predicate]:
    """Return the state of a bump with nothing applied, and the run that decides it."""
    if runs[-1]["state"] == "running":
        return "running", runs[-1]
    previewed = [run for run in runs if run["state"] == "previewed"]
    if not previewed:
        return "not begun", runs[-1]
    return "previewed", _last_started(previewed)


def _last_started(runs: Sequence[Predicate]) -> Predicate:
    """Return the last run that a person started."""
    return next(run for run in reversed(runs) if "whole" not in run)


def _deciding_run(runs: Sequence[Predicate]) -> tuple[str, Predicate]:
    """Return the state of a bump, and the run that decides it: of the last run of all steps, or of a step since."""
    last, bump = _last_started(runs), next((run for run in reversed(runs) if run["notebook"]["name"] == BUMP), None)
    steps = [run for run in runs if bump and run.get("whole") and run["id"] == bump["id"]]
    since = runs[runs.index(steps[-1] if steps else bump) + 1 :] if bump else runs
    if last["state"] == "running":  # its current step is more specific
        return "running", next((step for step in steps if step["state"] == "running" and last is bump), last)
    by_itself = {run["notebook"]["name"]: run for run in since}
    for name in sorted(by_itself):
        if by_itself[name]["state"] != "done":
            return by_itself[name]["state"], by_itself[name]
    found = requirements(bump) if bump and bump["state"] == "done" else ()
    is_ready = bool(found) and not any(each.get("blocks", True) for each in found)
    if bump and is_ready and not any(map(_changes, by_itself.values())):
        return "ready", bump
    if bump is None or by_itself or bump["state"] == "done":
        return "in progress", last
    newest = {step["notebook"]["name"]: step for step in steps}
    blocking = next((newest[name] for name in sorted(newest) if newest[name]["state"] != "done"), bump)
    is_held = any(each.get("kind") == "hold" for each in requirements(bump))
    return bump["state"], blocking if bump["state"] == "waiting" and not is_held else bump


def _changes(run: Predicate) -> bool:
    return run["notebook"]["name"] in CHANGING_STEPS and bool(run.get("effects"))


def _since(runs: Sequence[Predicate], deciding: Predicate) -> str:
    """Return when the deciding notebook first ended with this outcome: repeating it does not reset the time."""
    first = deciding
    for run in reversed(runs):
        if run["notebook"]["name"] != deciding["notebook"]["name"]:
            continue
        if (run["state"], _reason(run)) != (deciding["state"], _reason(deciding)):
            break
        first = run
    return str(first.get("ended") or first["started"])


def _unreadable_status(folder: Path, warning: str) -> BumpStatus:
    """Return the status of a bump of which only the folder name is known."""
    repository, base, name = folder.parts[-3:]
    image_type, _, tag = name.partition("-")
    return BumpStatus(
        repository, base, image_type, tag, practice="practice" in folder.parts[-4:-3], state="unreadable", step="",
        sentence="None of its records can be read.", next=Next("Restore it from the archive's history."), since="",
        record=str(folder), folder=str(folder), links={}, warning=warning,
    )  # fmt: skip


def status(root: Path) -> list[BumpStatus]:
    """Return the status of each bump in an archive, most recently active first."""
    statuses = []
    for folder in bump_folders(root.absolute()):
        records = read_records(folder)
        if bump := bump_status(folder, records.readable, records.unreadable):
            statuses.append(bump)
    return sorted(statuses, key=lambda bump: bump.active, reverse=True)
