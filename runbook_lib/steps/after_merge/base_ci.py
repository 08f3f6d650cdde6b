"""Both CIs on the base branch after a merge: the newest run that holds it, on GitHub and on GitLab."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from runbook_lib import notebooks
from runbook_lib.bump import Bump
from runbook_lib.clients.github.ci_status import choose, judge
from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.gitlab.client import GitLab
from runbook_lib.errors import RunbookError
from runbook_lib.runner.command_line import command
from runbook_lib.triage.failed_jobs import failed
from runbook_lib.workflow.bump_branch import BumpBranch

#: CI does not run for each commit of a busy branch: so many, the newest first, are asked about.
_COMMITS = 10
#: GitLab's words for a pipeline that has not ended.
_UNFINISHED = ("created", "waiting_for_resource", "preparing", "pending", "running", "scheduled", "canceling")


@dataclass(frozen=True)
class Lane:
    """One CI on the base branch.  ``skipped`` has its reason in ``found``; ``pipeline`` is GitLab's."""

    name: str
    state: Literal["passed", "failed", "waiting", "skipped"]
    found: str
    next: str = ""
    url: str = ""
    pipeline: int = 0


def merged(branch: BumpBranch) -> str:
    """The newest commit of the base branch that brought the tag, which a later edit of the same file is not."""
    sites = branch.bump.repository.sites
    paths = [site.path for site in sites.pins if site.lockstep and site.image_type == branch.bump.image_type]
    options = ["-1", "--first-parent", "--format=%H", f"-S:{branch.bump.tag}"]
    return branch.checkout.git("log", *options, branch.base_commit, "--", *dict.fromkeys(paths)) or branch.base_commit


def since(branch: BumpBranch, merged: str) -> list[str]:
    """The newest commits of the base branch that hold the merge, and the merge itself; the newest first."""
    newest = branch.checkout.git("rev-list", "--first-parent", f"--max-count={_COMMITS}", branch.base_commit).split()
    if merged in newest:
        return newest[: newest.index(merged) + 1]
    return [*newest, merged]


def of_github(bump: Bump, github: GitHub | None, commits: Sequence[str]) -> Lane:
    """The newest run for the newest of the commits that has one.  Where GitHub cannot be asked, that is said."""
    name = "GitHub"
    if github is None:
        return Lane(name, "skipped", "Without a token GitHub cannot be asked.", "Set GITHUB_TOKEN, then run again.")
    if not bump.repository.workflow:
        return Lane(
            name, "skipped", f"Which workflow tells of {bump.repository.name} is not known.", "Look at its page."
        )
    try:
        runs = (choose(github.runs(bump.base, commit), commit, bump.repository.workflow) for commit in commits)
        run = next((run for run in runs if run is not None), None)
        jobs = github.jobs(run.id) if run else ()
    except RunbookError as error:
        return Lane(name, "skipped", str(error), "Run again.")
    if run is None:
        told = f"No run of {bump.base} at {commits[0][:10]}, nor since the merge, {commits[-1][:10]}."
        return Lane(name, "waiting", told, "Run 08-after-merge again.")
    now, what = judge(run, jobs, run.head_sha), f"CI run {run.id} of {run.head_sha[:10]}"
    if run.status != "completed":
        return Lane(name, "waiting", f"{what}: {now.counts()}.", f"Run 08-after-merge again: {run.url}", run.url)
    if now.state == "passed":
        return Lane(name, "passed", f"{what}: {now.counts()}.", url=run.url)
    bad = sorted({job.name for job in failed(jobs)})
    names = ", ".join(bad[:8]) + (f" and {len(bad) - 8} more" if len(bad) > 8 else "")
    how = command(notebooks.INVESTIGATE_CI, bump, tag=None, place=run.url, apply=None, publish=None)
    return Lane(name, "failed", f"{what} ended as {run.conclusion} ({names or 'no job names itself'}).", how, run.url)


def of_gitlab(commits: Sequence[str]) -> Lane:
    """The newest pipeline, likewise."""
    name = "GitLab"
    if not os.environ.get("GITLAB_URL"):
        return Lane(name, "skipped", "No GitLab is set up here (GITLAB_URL).", "Whoever has access must look.")
    try:
        gitlab = GitLab.connect()
        found = (next(iter(gitlab.pipelines(commit)), None) for commit in commits)
        newest = next((it for it in found if it is not None), None)
    except RunbookError as error:
        return Lane(name, "skipped", str(error), "Run again.")
    if newest is None:
        return Lane(name, "waiting", f"No pipeline of {commits[0][:10]}, nor since the merge.", "Start one there, "
                    "or wait for that of the night; then run 08-after-merge again.")  # fmt: skip
    told = f"Pipeline {newest.id} of {newest.sha[:10]}: {newest.status}. {newest.url}"
    if newest.status in _UNFINISHED:
        return Lane(name, "waiting", told, "Run 08-after-merge again.", newest.url, newest.id)
    if newest.status == "success":
        return Lane(name, "passed", told, url=newest.url, pipeline=newest.id)
    if newest.status in ("skipped", "manual"):
        return Lane(name, "skipped", told, url=newest.url)
    return Lane(name, "failed", told, "Look at its failed jobs there.", newest.url, newest.id)
