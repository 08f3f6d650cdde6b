"""A bump's status, derived from its records."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook_lib.display import count
from runbook_lib.model import Next
from runbook_lib.notebooks import BUMP, CHANGING_STEPS
from runbook_lib.record.archive import read_all
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

    ``state`` is that of its last run: waiting, running, failed or interrupted, with the ``step`` that blocks it;
    ``ready`` if the bump notebook has found every requirement met and no step has changed anything since, else ``in
    progress``.  Without a run that applied anything it is ``previewed``, or ``not begun``.

    ``since`` is the time when ``state`` was reached.  ``links`` maps names, such as ``CI run`` and ``issue #12``, to
    URLs.  ``record`` is the folder of the record that decides the state, ``folder`` the bump's; both are absolute
    paths.  ``for_ci``: it waits for CI, and nobody has to do anything.
    """

    state: str
    step: str
    sentence: str
    next: Next
    since: str
    record: str
    folder: str
    links: Mapping[str, str]
    for_ci: bool = False

    @property
    def title(self) -> str:
        """Its name, such as ``owner/name main dev 26.04-py3 (practice)``."""
        practice = " (practice)" if self.practice else ""
        return f"{self.repository} {self.base} {self.image_type} {self.tag or 'no tag'}{practice}"

    @property
    def is_started(self) -> bool:
        """True if the bump can be continued: it has a tag, and a run got past its inputs."""
        return bool(self.tag) and self.state != "not begun"

    @property
    def is_in_flight(self) -> bool:
        """True if something was applied and the bump is not ready."""
        return self.is_started and self.state not in ("ready", "previewed")


def bump_status(folder: Path, runs: Sequence[Predicate]) -> BumpStatus | None:
    """Return the status of a bump from its records, oldest first; None if there are no records."""
    if not runs:
        return None
    applied = [run for run in runs if _has_applied(run)]
    found = [_decide(applied[: end + 1]) for end in range(len(applied))] or [_decide_preview(runs)]
    state, run, step = found[-1]
    name = _name(run, step)
    same = itertools.takewhile(lambda each: (each[0], _name(*each[1:])) == (state, name), reversed(found))
    since = [str(each[1].get("ended") or each[1]["started"]) for each in same][-1]  # repeating it does not reset it
    outcome = step["outcome"]
    # The bump notebook takes all steps into account, not only the one that blocks the bump.
    following = Next(**run["outcome"]["next"]) or Next(**outcome["next"])
    return BumpStatus(
        **run["bump"],
        state=state,
        step=name,
        sentence=outcome["sentence"],
        next=following or _next(state, run),
        since=since,
        record=str(folder / run["id"]),
        folder=str(folder),
        links=_links(applied or runs),
        for_ci=state == "waiting" and bool(outcome.get("for_ci")),
    )


#: A state, the run that decides it, and its step that does; the run itself if it is not one of its steps.
_Decided = tuple[str, Predicate, Predicate]


def _decide(runs: Sequence[Predicate]) -> _Decided:
    """Return the state of a bump by its last run of all steps, and the steps that ran by themselves since."""
    last, since = runs[-1], list(itertools.takewhile(lambda run: run["notebook"]["name"] != BUMP, reversed(runs)))
    if last in since and last["state"] == "running":
        return "running", last, last
    by_itself = {run["notebook"]["name"]: run for run in reversed(since)}
    for _, run in sorted(by_itself.items()):
        if run["state"] != "done":
            return run["state"], run, run
    has_changed = any(run["effects"] and run["notebook"]["name"] in CHANGING_STEPS for run in since)
    if has_changed or len(since) == len(runs):
        return "in progress", last, last
    return _of_bump(runs[-1 - len(since)], last)


def _of_bump(run: Predicate, last: Predicate) -> _Decided:
    """Return what a run of all steps decides; the ``last`` run has changed nothing."""
    steps = {step["name"]: step for step in run["steps"] if step["state"] != "not run"}
    unfinished = [step for _, step in sorted(steps.items()) if step["state"] != "done"]
    found = requirements(run)
    if run["state"] == "running":  # its current step is more specific
        return "running", run, next((step for step in unfinished if step["state"] == "running"), run)
    if run["state"] != "done" and last is run:
        is_held = any(each.get("kind") == "hold" for each in found)
        is_blocked = run["state"] == "waiting" and unfinished and not is_held
        return run["state"], run, unfinished[0] if is_blocked else run
    if run["state"] == "done" and found and not any(each.get("blocks", True) for each in found):
        return "ready", run, run
    return "in progress", last, last


def _decide_preview(runs: Sequence[Predicate]) -> _Decided:
    """Return the state of a bump with nothing applied."""
    previewed = [run for run in runs if run["state"] == "previewed"]
    if runs[-1]["state"] == "running":
        return "running", runs[-1], runs[-1]
    run = (previewed or runs)[-1]
    return "previewed" if previewed else "not begun", run, run


def _name(run: Predicate, step: Predicate) -> str:
    return str(step.get("name") or run["notebook"]["name"])


def _links(runs: Iterable[Predicate]) -> dict[str, str]:
    """Return the newest URL for each name that the runs link to, and for the issues they opened."""
    addresses: dict[str, str] = {}
    for run in runs:
        addresses |= run["links"]
        for effect in run["effects"]:
            if effect["kind"] == "issue" and effect["url"]:
                addresses[f"issue {effect['target']}"] = effect["url"]
    return addresses


def _next(state: str, run: Predicate) -> Next:
    """Return what comes next after a run that does not say it: the same run again, or that of the whole bump."""
    if state not in _BECAUSE:
        return Next()
    name, given = str(run["notebook"]["name"]), run["parameters"]
    if state == "in progress":
        name, given = BUMP, {each: value for each, value in given.items() if each in _OF_BUMP}
    return Next(_BECAUSE[state], name, given)


def _has_applied(run: Predicate) -> bool:
    """Return True for a run of the bump or of a step that counts: neither a preview nor stopped by its inputs.

    Other notebooks, such as a build, do not block a bump.
    """
    name = str(run["notebook"]["name"])
    mode = run["mode"] or run["parameters"].get("mode")
    if mode == "preview" or run["state"] == "previewed" or not (name == BUMP or name[:2].isdigit()):
        return False
    parts = ("inputs", "effects", "checks", "conditions", "steps")
    return run["state"] != "failed" or any(run[part] for part in parts)


def status(root: Path) -> list[BumpStatus]:
    """Return the status of each bump in an archive, most recently active first."""
    found = [bump_status(folder, records.readable) for folder, records in read_all(root.absolute()).items()]
    return list(filter(None, found))


def warnings(root: Path) -> Iterator[str]:
    """Yield a sentence for each bump in an archive of which records cannot be read."""
    for folder, records in read_all(root).items():
        if names := records.unreadable:
            yield (
                f"{folder.relative_to(root)}: {count(len(names), 'record')} cannot be read, so its status may be "
                f"incomplete ({', '.join(names)}). Run `runbook audit verify` for details, and restore what is "
                "damaged from the archive's history."
            )
