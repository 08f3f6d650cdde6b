"""The workflows that GitHub may start for a bump by itself, according to their triggers in a commit.

Their filters of branches and paths are left to the reader: GitHub alone knows how it matches them.
"""

from pathlib import PurePosixPath

from runbook_lib.bump import policy
from runbook_lib.errors import CannotTell
from runbook_lib.text import yaml_spans
from runbook_lib.world.bump_branch import BumpBranch

_FOLDER = ".github/workflows"
_PULL_REQUEST = ("pull_request", "pull_request_target")


def describe(branch: BumpBranch) -> str:
    """Return a sentence about the CI that may start once this bump is pushed and its pull request opened."""
    checkout = branch.checkout
    on_push: list[str] = []
    on_pull_request: list[str] = []
    unknown = ""
    for file in checkout.list_files(branch.start, _FOLDER):
        if not file.endswith((".yml", ".yaml")):
            continue
        try:
            events = _events(checkout.read([file], branch.start)[file] or "")
        except CannotTell as error:
            unknown = f" Whether {file} starts is unknown, because it cannot be read: {error}"
            continue
        name = PurePosixPath(file).name
        on_push += [name] if "push" in events else []
        on_pull_request += [name] if events.intersection(_PULL_REQUEST) else []
    is_fork = not policy.goes_upstream(checkout, branch.bump)
    pull_requests = "a pull request, once a maintainer approves it" if is_fork else "a pull request"
    started = {pull_requests: on_pull_request, **({} if is_fork else {"a push": on_push})}
    parts = [f"for {event}: {', '.join(names)}" for event, names in started.items() if names]
    if not parts:
        return f"No CI starts by itself: no workflow in {_FOLDER} has a trigger for {' or '.join(started)}.{unknown}"
    return f"CI that starts by itself, unless the filters of a trigger exclude the change: {'; '.join(parts)}.{unknown}"


def _events(text: str) -> set[str]:
    """Return a workflow's events.  Raises CannotTell for a form that GitHub does not document."""
    workflow = yaml_spans.load(text)
    # YAML 1.1 parses a bare `on` as true.
    events = workflow.get("on", workflow.get(True)) if isinstance(workflow, dict) else None
    if isinstance(events, str):
        return {events}
    if not isinstance(events, list | dict):
        raise CannotTell("it has no events under `on`.")
    return set(map(str, events))
