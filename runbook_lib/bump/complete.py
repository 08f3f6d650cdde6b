"""Notebook bump: all steps of a bump, one after another, and then its readiness to merge."""

from collections.abc import Mapping
from typing import Any

from runbook_lib.bump import readiness
from runbook_lib.bump.run import Run
from runbook_lib.display import View
from runbook_lib.failures import quarantines
from runbook_lib.golden import comparison
from runbook_lib.notebooks import CI_ROUND, STEPS
from runbook_lib.runner import execute, sequence, session
from runbook_lib.system import startup
from runbook_lib.world import bump_branch

_PARAMETERS = (
    "tag", "repo", "image_type", "base", "remote", "decisions", "mode",
    "wait", "run_id",
    "source", "only_failing", "accept", "broken", "rerun",
)  # fmt: skip


def require(run: Run, *, accept: str, broken: str, rerun: str = "", hold: str = "") -> None:
    """Raise Refused for decisions on files or tests that are not on the branch, before any step changes anything."""
    comparison.read_acceptances(run.branch, accept)
    quarantines.resolve_targets(run.branch, broken, "broken")
    quarantines.resolve_targets(run.branch, rerun, "rerun")
    readiness.holds(hold)


def run_steps(run: Run, parameters: Mapping[str, Any]) -> tuple[execute.StepResult, ...]:
    """Run the notebooks of all steps with the same ``parameters``; run none without a tag or in JupyterLab."""
    if run.bump.tag is None or session.interactive():
        return ()
    values = {name: parameters[name] for name in _PARAMETERS}
    startup.preload("githubkit")  # for `finish`
    return sequence.run_notebooks(STEPS, ci_round=CI_ROUND, **values)


def finish(run: Run, results: tuple[execute.StepResult, ...], *, wait: bool, hold: str = "") -> View:
    """Read the bump's branch again, and record and show what the merge still needs, including what is on ``hold``."""
    github = run.forge if results else None
    state = readiness.check(bump_branch.find(run.checkout, run.bump), github, run.record.records, hold)
    return readiness.finish(run.record, results, state, wait=wait, hold=hold)
