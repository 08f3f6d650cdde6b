"""The newest run of each CI, on GitHub and on GitLab, of a base-branch commit that contains the merge."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from runbook_lib import notebooks
from runbook_lib.checks import Next
from runbook_lib.errors import RunbookError
from runbook_lib.golden.ci_runs import failed
from runbook_lib.pins.bump import Bump
from runbook_lib.text.lists import join_first
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.github.ci_status import choose, judge, on_base
from runbook_lib.world.gitlab.models import UNDER_WAY
from runbook_lib.world.ports import Forge, Services

#: Number of newest commits that are searched for a run: on a busy branch CI does not run for every commit.
_COMMITS = 10


@dataclass(frozen=True)
class BaseRun:
    """The newest run of one CI on the base branch, or why there is none."""

    ci: str
    state: Literal["passed", "failed", "waiting", "skipped"]
    detail: str
    next: Next = field(default_factory=Next)
    url: str = ""


def merge_commit(branch: BumpBranch) -> str:
    """Return the newest base-branch commit that introduced the tag, ignoring later edits of the same file."""
    bump = branch.bump
    sites = bump.repository.sites.pins
    paths = dict.fromkeys(site.path for site in sites if site.lockstep and site.image_type == bump.image_type)
    options = ["-1", "--first-parent", "--format=%H", f"-S:{bump.tag}"]
    return branch.checkout.git("log", *options, branch.base_commit, "--", *paths) or branch.base_commit


def commits_since(branch: BumpBranch, merge: str) -> list[str]:
    """Return the newest base-branch commits since the merge, and the merge itself, newest first."""
    newest = branch.checkout.git("rev-list", "--first-parent", f"--max-count={_COMMITS}", branch.base_commit).split()
    if merge in newest:
        return newest[: newest.index(merge) + 1]
    return [*newest, merge]


def github_run(bump: Bump, github: Forge | None, commits: Sequence[str]) -> BaseRun:
    """Return the run of the newest commit that has one; skipped if GitHub cannot be queried."""
    ci, workflow, name = "GitHub", bump.repository.ci.workflow, bump.repository.name
    if github is None:
        return BaseRun(ci, "skipped", "GitHub cannot be queried without a token.", Next.again("Set GITHUB_TOKEN."))
    if not workflow:
        return BaseRun(ci, "skipped", f"The workflow that tests {name} is unknown.", Next("Check its page."))
    try:
        tested = ([run for run in github.runs(head_sha=commit) if on_base(run, bump.base)] for commit in commits)
        run = next(filter(None, (choose(runs, runs[0].head_sha, workflow) for runs in tested if runs)), None)
        jobs = github.jobs(run.id) if run else ()
    except RunbookError as error:
        return BaseRun(ci, "skipped", str(error), Next.again())
    if run is None:
        place = f"on {bump.base} or in its merge queue"
        detail = f"No run {place}, at {commits[0][:10]} or any commit back to the merge, {commits[-1][:10]}."
        return BaseRun(ci, "waiting", detail, Next.again())
    progress, name = judge(run, jobs, run.head_sha), f"CI run {run.id} of {run.head_sha[:10]}"
    if run.status != "completed":
        return BaseRun(ci, "waiting", f"{name}: {progress.counts()}.", Next.again(run.url), run.url)
    if progress.state == "passed":
        return BaseRun(ci, "passed", f"{name}: {progress.counts()}.", url=run.url)
    listed = join_first(sorted({job.name for job in failed(jobs)}), 8) or "no job failed"
    investigate = Next.run(notebooks.INVESTIGATE_CI, tag=None, place=run.url, mode=None)
    return BaseRun(ci, "failed", f"{name} finished with conclusion {run.conclusion} ({listed}).", investigate, run.url)


def gitlab_run(services: Services, commits: Sequence[str]) -> BaseRun:
    """Return the pipeline of the newest commit that has one; skipped if GitLab cannot be queried."""
    ci = "GitLab"
    try:
        gitlab = services.second_ci()
        if gitlab is None:
            return BaseRun(ci, "skipped", "GITLAB_URL is not set.", Next("Somebody with access to GitLab must check."))
        pipelines = (next(iter(gitlab.pipelines(commit)), None) for commit in commits)
        newest = next(filter(None, pipelines), None)
    except RunbookError as error:
        return BaseRun(ci, "skipped", str(error), Next.again())
    if newest is None:
        detail = f"No pipeline for {commits[0][:10]} or any commit back to the merge."
        return BaseRun(ci, "waiting", detail, Next.again("Start one there, or wait for the nightly one."))
    detail = f"Pipeline {newest.id} of {newest.sha[:10]}: {newest.status}. {newest.url}"
    if newest.status in UNDER_WAY:
        return BaseRun(ci, "waiting", detail, Next.again(), newest.url)
    if newest.status == "success":
        return BaseRun(ci, "passed", detail, url=newest.url)
    if newest.status in ("skipped", "manual"):
        return BaseRun(ci, "skipped", detail, url=newest.url)
    return BaseRun(ci, "failed", detail, Next("Check its failed jobs there."), newest.url)
