"""The workflows that GitHub starts for a bump by itself, according to their triggers in a commit.

Source: GitHub's "Workflow syntax for GitHub Actions" (``on``) and its "Filter pattern cheat sheet".
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from runbook_lib.bump.bump_plan import plan_commit
from runbook_lib.errors import CannotTell
from runbook_lib.git import commit_changes
from runbook_lib.text import yaml_spans
from runbook_lib.text.edits import edited_paths
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.bump_pull import head_of

_FOLDER = ".github/workflows"
_PULL_REQUEST = ("pull_request", "pull_request_target")
_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "?", "+": "+"}


def describe(branch: BumpBranch) -> str:
    """Return a sentence about the CI that starts by itself once this bump is pushed and its pull request opened."""
    checkout, bump = branch.checkout, branch.bump
    files = commit_changes.list_files(checkout, branch.start, _FOLDER)
    paths = edited_paths(plan_commit(branch, branch.fork).edits)
    on_push: list[str] = []
    on_pull_request: list[str] = []
    for file in files:
        if not file.endswith((".yml", ".yaml")):
            continue
        try:
            text = checkout.read([file], branch.start)[file]
            triggers = _triggers(yaml_spans.load(text or ""))
            name = PurePosixPath(file).name
            if _starts(triggers, ("push",), bump.branch, paths):
                on_push.append(name)
            if _starts(triggers, _PULL_REQUEST, bump.base, paths):
                on_pull_request.append(name)
        except CannotTell as error:
            return f"Which CI starts is unknown, because {file} cannot be read: {error}"
    own = head_of(checkout, bump).partition(":")[0].lower()
    if own == checkout.repository().partition("/")[0].lower():
        if started := sorted({*on_push, *on_pull_request}):
            return f"CI starts by itself: {', '.join(started)}."
        return f"No CI starts by itself: no workflow in {_FOLDER} has a trigger that matches these changes."
    if on_pull_request:
        return f"CI starts with the pull request, once a maintainer approves it: {', '.join(on_pull_request)}."
    sentence = f"No CI starts from the fork {own}: no workflow in {_FOLDER} has a matching pull_request trigger."
    if on_push:
        sentence += f" {', '.join(on_push)} starts once somebody with write access pushes the branch to the repository."
    return sentence


def _triggers(workflow: Any) -> Mapping[str, Any]:
    """Return a workflow's events with their filters.  Raises CannotTell for a form that GitHub does not document."""
    if not isinstance(workflow, dict):
        raise CannotTell("it is not a mapping.")
    events = workflow.get("on", workflow.get(True))  # YAML 1.1 parses a bare `on` as true
    if isinstance(events, str):
        events = [events]
    if isinstance(events, list):
        events = dict.fromkeys(events)
    if not isinstance(events, dict):
        raise CannotTell("it has no events under `on`.")
    return events


def _starts(triggers: Mapping[str, Any], events: Sequence[str], ref: str, paths: Sequence[str]) -> bool:
    """Return whether one of the events starts the workflow for this branch and these changed paths."""
    for event in events:
        if event not in triggers:
            continue
        filters = triggers[event] or {}
        if not isinstance(filters, dict):
            raise CannotTell(f"its event {event} has filters of an unknown form.")
        if event == "push" and "tags" in filters and not filters.keys() & {"branches", "branches-ignore"}:
            continue  # such a filter excludes branches
        if _passes(filters, "branches", [ref]) and _passes(filters, "paths", paths):
            return True
    return False


def _passes(filters: Mapping[str, Any], name: str, values: Sequence[str]) -> bool:
    """Return whether one of the values passes the filter ``name`` and is not excluded by ``name-ignore``."""
    ignored = _patterns(filters, f"{name}-ignore")
    wanted = _patterns(filters, name)
    return any((not wanted or _matches(value, wanted)) and not _matches(value, ignored) for value in values)


def _patterns(filters: Mapping[str, Any], name: str) -> list[str]:
    patterns = filters.get(name) or []
    if isinstance(patterns, str):
        patterns = [patterns]
    if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
        raise CannotTell(f"its filter {name} is not a list of patterns.")
    return patterns


def _matches(value: str, patterns: Sequence[str]) -> bool:
    """Return whether the last matching pattern does not start with ``!``, which is GitHub's rule."""
    matched = False
    for pattern in patterns:
        if _full_match(pattern.removeprefix("!"), value):
            matched = not pattern.startswith("!")
    return matched


def _full_match(pattern: str, value: str) -> bool:
    import re2  # linear in the text: the pattern comes from the repository

    expression = ""
    for token in re.findall(r"\*\*/?|\[[^]\[]*\]|(?s:.)", pattern):
        expression += _WILDCARDS.get(token) or (token if token.startswith("[") and len(token) > 2 else re.escape(token))
    try:
        return re2.fullmatch(expression, value) is not None
    except (re2.error, UnicodeEncodeError) as error:
        raise CannotTell(f"its pattern {pattern[:80]!r} cannot be used: {error}.") from error
