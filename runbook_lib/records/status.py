"""Where a bump stands, from its records."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runbook_lib.notebooks import BUMP, CHANGING_STEPS, SYNC_CHECK
from runbook_lib.pins.repositories import REPOSITORIES
from runbook_lib.records.statement import STORY, Identity

Run = Mapping[str, Any]

#: What the checks of the whole runbook are called that say whether the bump may be merged.
BEFORE_MERGE = "before the merge: "
_AGAIN = "Run the same command again: what was done is found and kept."
_NEXT = {"failed": f"Mend what failed. {_AGAIN}", "killed": _AGAIN, "cancelled": _AGAIN}


@dataclass(frozen=True)
class BumpStatus:
    """Where a bump stands.

    ``state`` is ``ready`` when the whole runbook found it so, or every step that applies is done, and no step has
    changed anything since; ``in progress`` when those that ran are done, else that of the step that holds it up:
    waiting, running, failed, killed, cancelled, incomplete.  ``previewed`` is a bump that was only
    looked at, ``not begun`` one for which no run got beyond its inputs, such as a mistyped tag, and ``unreadable`` one
    none of whose records can be read.

    ``started`` is the time of its first run, ``since`` that from which it has stood as it stands, ``active`` when its
    last run began, and ``last`` when that ended, empty while it runs.  ``links`` maps names, such as ``pull request``,
    ``CI run`` and ``issue #12``, to addresses.  ``record`` is the folder of the record that tells its state, and
    ``story`` the file that tells the whole bump; both are absolute paths.  ``warning`` is a sentence where this may not
    be all.
    """

    repository: str
    base: str
    image_type: str
    tag: str
    practice: bool
    state: str
    step: str
    sentence: str
    next: str
    since: str
    record: str
    started: str
    story: str
    links: Mapping[str, str]
    last: str = ""
    active: str = ""
    warning: str = ""

    @property
    def began(self) -> bool:
        """Whether there is something to go on with: not so for a mistyped tag, and for a look without any tag."""
        return bool(self.tag) and self.state != "not begun"


def bump_status(folder: Path, runs: Sequence[Run], unreadable: Sequence[str] = ()) -> BumpStatus | None:
    """Where the bump of that folder stands, from its records, oldest first; ``unreadable`` names those that are none.

    None without any record.
    """
    warning = _warning(unreadable)
    if not runs:
        return _unread(folder, warning) if unreadable else None
    parents = {str(run.get("parent")) for run in runs}
    applied = [run for run in runs if _tells(run, parents)]
    applied = [run for run in applied if _is_step(run)] or applied
    considered = applied or list(runs)
    state, deciding = _deciding(applied) if applied else _only_looked_at(runs)
    outcome = deciding.get("outcome") or {}
    ends = [str(run.get("ended") or "") for run in runs]
    return BumpStatus(
        **asdict(Identity.from_json(deciding["bump"])),
        state=state,
        step=deciding["notebook"]["name"],
        sentence=outcome.get("sentence") or "",
        next=_following(applied, state) or outcome.get("next") or _NEXT.get(state, ""),
        since=_since(considered, deciding),
        record=str(folder / deciding["id"]),
        started=str(considered[0]["started"]),
        story=str(folder / STORY),
        links=links(considered),
        active=str(runs[-1]["started"]),
        last="" if any(run["state"] == "running" for run in runs) else max(ends),
        warning=warning,
    )


def newest_first(bumps: Iterable[BumpStatus]) -> list[BumpStatus]:
    """The bump that was worked on last first."""
    return sorted(bumps, key=lambda bump: bump.active, reverse=True)


def links(runs: Iterable[Run]) -> dict[str, str]:
    """What the runs, oldest first, link to, the newest address of each name, and the issues that they opened."""
    found: dict[str, str] = {}
    for run in runs:
        found |= {str(name): str(url) for name, url in (run.get("links") or {}).items()}
        for effect in run.get("effects") or ():
            if effect.get("effect") == "issue" and effect.get("url"):
                found[f"issue {effect.get('target')}"] = str(effect["url"])
    return found


def settled(run: Run) -> str:
    """What the run found, without what changes while the same thing goes on: ``(3 of 7 jobs done)``."""
    return re.sub(r"\s?\([^()]*\)", "", str((run.get("outcome") or {}).get("sentence", "")))


def is_preview(run: Run) -> bool:
    """Whether the run could change nothing, however it ended."""
    resolved = (run.get("parameters") or {}).get("resolved") or {}
    return run["state"] == "previewed" or resolved.get("apply") is False


def _tells(run: Run, parents: set[str]) -> bool:
    """Whether the run tells where the bump stands: a preview does not, nor one that its inputs stopped."""
    stopped = run["state"] == "failed" and run["id"] not in parents
    stopped = stopped and not any(run.get(name) for name in ("inputs", "effects", "checks"))
    return not stopped and not is_preview(run)


def _is_step(run: Run) -> bool:
    """Whether the run is one of the workflow: what is done beside it, such as a build, holds no bump up."""
    name = str(run["notebook"]["name"])
    return name == BUMP or name[:2].isdigit()


def _only_looked_at(runs: Sequence[Run]) -> tuple[str, Run]:
    if runs[-1]["state"] == "running":
        return "running", runs[-1]
    previewed = [run for run in runs if run["state"] == "previewed"]
    previewed = [run for run in previewed if run.get("parent") is None] or previewed
    return ("previewed", previewed[-1]) if previewed else ("not begun", runs[-1])


def _deciding(runs: Sequence[Run]) -> tuple[str, Run]:
    """The state of a bump, and the record that it is taken from."""
    top = next((run for run in reversed(runs) if run.get("parent") is None), runs[-1])
    if _found_ready(top):
        return "ready", top
    latest = {run["notebook"]["name"]: run for run in runs}
    steps = [latest[name] for name in sorted(latest) if name != BUMP]
    if top["state"] == "running":  # the step that it is at says more
        return "running", next((run for run in steps if run["state"] == "running"), top)
    holding = next((run for run in steps if run["state"] != "done"), None)
    if top["state"] not in ("done", "waiting") or (holding is None and top["state"] == "waiting"):
        return top["state"], top
    if holding is not None:
        return holding["state"], holding
    ready = _ready(runs, latest)
    return ("in progress", top) if ready is None else ("ready", ready)


def _following(runs: Sequence[Run], state: str) -> str:
    """What the whole runbook says is next where it waits, and is what ran last: it knows what all steps wait for.

    Empty where that is not so: then the step that holds the bump up says it.
    """
    top = next((run for run in reversed(runs) if run.get("parent") is None), None)
    if top is None or (top["notebook"]["name"], top["state"], state) != (BUMP, "waiting", "waiting"):
        return ""
    return str((top.get("outcome") or {}).get("next") or "")


def _found_ready(run: Run) -> bool:
    """Whether a run of the whole runbook looked up what must hold before the merge, and all of it holds."""
    looked = any(str(it.get("name")).startswith(BEFORE_MERGE) for it in run.get("checks") or ())
    return bool(run["notebook"]["name"] == BUMP and run["state"] == "done" and looked)


def _ready(runs: Sequence[Run], latest: Mapping[str, Run]) -> Run | None:
    """The record that makes the bump ready, all that ran being done; None where none does.

    It is that of the whole runbook, or the newest of its steps; either one only if no step changed anything since.
    """
    whole = latest.get(BUMP)
    if whole is not None and _found_ready(whole):
        since = runs[runs.index(whole) + 1 :]
        if not any(_changes(run) for run in since if run.get("parent") != whole["id"]):
            return whole
    last = latest.get(SYNC_CHECK)
    if last is None or any(_changes(run) for run in runs[runs.index(last) + 1 :]):
        return None
    known = next((it for it in REPOSITORIES if it.name == last["bump"]["repository"]), None)
    # In any other repository the runs themselves say which steps do not apply, and are done.
    lacking = [name for name in CHANGING_STEPS if name not in latest and not (known and known.idle(name))]
    return None if lacking else [run for run in runs if run["notebook"]["name"] in (*CHANGING_STEPS, SYNC_CHECK)][-1]


def _changes(run: Run) -> bool:
    return run["notebook"]["name"] in CHANGING_STEPS and bool(run.get("effects"))


def _since(runs: Sequence[Run], deciding: Run) -> str:
    """When the step first ended so: running it again does not shorten the wait."""
    since = deciding
    same = [run for run in runs if run["notebook"]["name"] == deciding["notebook"]["name"]]
    for run in reversed(same):
        if (run["state"], settled(run)) != (deciding["state"], settled(deciding)):
            break
        since = run
    return str(since.get("ended") or since["started"])


def _warning(unreadable: Sequence[str]) -> str:
    if not unreadable:
        return ""
    count = "1 record cannot" if len(unreadable) == 1 else f"{len(unreadable)} records cannot"
    return f"{count} be read, so this may not be all ({', '.join(unreadable)}). `runbook audit verify` tells more."


def _unread(folder: Path, warning: str) -> BumpStatus:
    """The status of a bump of which only the folder's name is known."""
    repository, base, named = folder.parts[-3:]
    image_type, _, tag = named.partition("-")
    return BumpStatus(
        repository, base, image_type, tag, practice="practice" in folder.parts[-4:-3], state="unreadable", step="",
        sentence="None of its records can be read.", next="Restore it from the archive's history.", since="",
        record=str(folder), started="", story=str(folder / STORY), links={}, warning=warning,
    )  # fmt: skip
