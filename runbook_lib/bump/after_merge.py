"""Notebook 08-after-merge: both CIs on the base, other branches, quarantined tests and values that nobody refreshed."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from runbook_lib import display, notebooks
from runbook_lib.bump import gitlab_tests, pins_step, sync_survey
from runbook_lib.decisions import Decisions
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.failures import quarantine_survey as survey
from runbook_lib.failures.quarantine_survey import QuarantineSurvey
from runbook_lib.golden.ci_runs import failed
from runbook_lib.model import Check, Evidence, Next, Outcome, Plan, Status
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.check import PinVerdict, lockstep_tags, outcome
from runbook_lib.text.lists import join_first
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.commands import command
from runbook_lib.world.github.ci_status import choose, count_jobs, on_base
from runbook_lib.world.gitlab.models import UNDER_WAY
from runbook_lib.world.ports import Forge, Services, World

#: Number of newest commits that are searched for a run: on a busy branch CI does not run for every commit.
_COMMITS = 10
#: The result of a pipeline by its status; every other one has failed.
_PIPELINES: dict[str, Status] = {
    **dict.fromkeys(UNDER_WAY, "waiting"), "success": "passed", "skipped": "skipped", "manual": "skipped",
}  # fmt: skip


@dataclass(frozen=True)
class MergeFacts:
    """The state after a merge; ``merged`` is its commit, empty before the merge and without a tag.

    ``runs`` are the newest run of each CI on the base branch, or the reason why there is none.
    """

    branch: BumpBranch
    quarantines: QuarantineSurvey
    branches: Sequence[dict[str, object]]
    notes: tuple[str, ...]
    merged: str
    runs: tuple[Check, ...]


def look(world: World, bump: Bump) -> MergeFacts:
    """Query everything that may remain after the merge.

    A part that GitHub or GitLab cannot answer says so.
    """
    branch = BumpBranch.look(world, bump)
    quarantines = survey.look(world, replace(branch, bump=replace(bump, tag=None, decisions=Decisions())))
    merge, runs, notes = "", list[Check](), [*branch.warnings, *quarantines.notes]
    if pins_step.base_has_tag(branch):
        merge = merge_commit(branch)
        commits = commits_since(branch, merge)
        runs.append(github_run(bump, world.github, commits))
        if not bump.repository.inapplicable(notebooks.GITLAB_PIN):
            runs.append(gitlab_run(bump, world.services, commits))
        if bump.repository.tests.golden:
            notes += gitlab_tests.unrefreshed(branch, f"{merge}^", branch.base_commit)
    return MergeFacts(branch, quarantines, branch_rows(branch), tuple(notes), merge, tuple(runs))


def plan(facts: MergeFacts, bump: Bump) -> Plan[World]:
    """Return the remaining work.  None of it makes the run fail, because people must do it."""
    waiting, checks = list[Outcome](), []
    for run in facts.runs:
        status: Status = "passed" if run.status == "passed" else "skipped"
        checks.append(replace(run, status=status, detail=f"{run.status}: {run.detail}"))
        if run.status == "waiting":
            waiting.append(Outcome(f"waiting for {run.name}: {run.detail}", run.next))
    evidence = Evidence(
        inputs={"base_commit": facts.branch.base_commit, "merge_commit": facts.merged or None},
        tables={"branches": facts.branches, **facts.quarantines.evidence.tables},
        warnings=facts.notes,
    )
    return Plan(
        _done(facts), tuple(_shown(facts)), waiting=next(iter(waiting), None), checks=tuple(checks), evidence=evidence,
        only_reads=True,
    )  # fmt: skip


def _done(facts: MergeFacts) -> Outcome:
    """Return the outcome if no CI is waited for: what remains, and the first command for it."""
    bump, older = facts.branch.bump, [row["branch"] for row in facts.branches if row["state"] == "older"]
    remaining = f"{display.count(len(facts.quarantines.tests), 'quarantined row')} of recipes"
    if bump.tag is None:
        return Outcome(f"No tag was given: {remaining}.", Next.again("Name the tag of a bump:", tag="26.04-py3"))
    if not facts.merged:
        sentence = f"{bump.base} does not name {bump.tag} yet: {notebooks.SYNC_CHECK} and the merge are still to come."
        return Outcome(sentence, Next.run(notebooks.SYNC_CHECK))
    actions = [run.next for run in facts.runs if run.status == "failed"]
    actions += [Next.run(notebooks.BUMP, base=branch, mode=None) for branch in older]
    states = "; ".join(f"{run.name}: {run.status}" for run in facts.runs)
    others = f"{len(older)} of {len(facts.branches)} other branches on an older image"
    sentence = f"{bump.base} has named {bump.tag} since {facts.merged[:10]}. {states}; {others}, {remaining}."
    return Outcome(sentence, next(iter(actions), Next()))


def _shown(facts: MergeFacts) -> Iterator[display.View]:
    """Yield all parts as tables."""
    bump = facts.branch.bump
    if facts.merged:
        runs = display.rows(facts.runs, CI="name", state="status", found="detail", next="next")
        yield display.note(f"Both CIs on {bump.base}:") + display.table(runs)
    yield display.note("Other branches, by their pins, as last fetched:") + display.table(facts.branches, empty="None.")
    yield display.note(f"Quarantined tests on {bump.base}:") + facts.quarantines.show()
    yield display.notes(facts.notes, title="Also")


def branch_rows(branch: BumpBranch) -> list[dict[str, object]]:
    """Return each other branch with pins as last fetched (`dev core_r*`), with image, state and next command."""
    bump, remote = branch.bump, branch.base_remote
    prefix = f"refs/remotes/{remote}/" if remote else "refs/heads/"
    rows = []
    for pattern in bump.repository.ci.branches.split():
        with suppress(CannotTell):  # there is no such branch, or none with pins
            found = sync_survey.survey(branch.checkout, [f"{prefix}{pattern}"], repository=bump.repository)
            for snapshot in found.snapshots:
                name = snapshot.name.removeprefix(prefix).removeprefix(f"{remote}/")
                if snapshot.verdicts and name != bump.base:
                    rows.append(_branch_row(name, snapshot.verdicts, bump))
    return rows


def _branch_row(name: str, verdicts: Sequence[PinVerdict], bump: Bump) -> dict[str, object]:
    sites, pins = bump.repository.sites, [pin for pin in verdicts if pin.role == f"lockstep {bump.image_type}"]
    tags = lockstep_tags(pins)
    images = [(image, tag) for image in sites.images for tag in tags.get(image.name, ())]
    listed = ", ".join(":".join(filter(None, [image.short, tag])) for image, tag in images)
    state, fix = str(outcome(pins)), f"runbook check --ref {name}"
    if bump.tag and any(image.family.read(tag).is_older(bump.tag) for image, tag in images):
        state, fix = "older", command(notebooks.BUMP, bump, base=name, mode=None)
    return {"branch": name, "image": listed or "–", "state": state, "next": "" if state == "in sync" else fix}


def merge_commit(branch: BumpBranch) -> str:
    """Return the newest base-branch commit that introduced the tag, ignoring later edits of the same file."""
    bump = branch.bump
    sites = [site for site in bump.repository.sites.pins if site.lockstep and site.image_type == bump.image_type]
    paths = dict.fromkeys(site.path for site in sites)
    named = bump.tag if any(site.value == "tag" for site in sites) else f":{bump.tag}"
    options = ["-1", "--first-parent", "--format=%H", f"-S{named}"]
    return branch.checkout.git("log", *options, branch.base_commit, "--", *paths) or branch.base_commit


def commits_since(branch: BumpBranch, merge: str) -> list[str]:
    """Return the newest base-branch commits since the merge, and the merge itself, newest first."""
    span = f"{merge}..{branch.base_commit}"
    newest = branch.checkout.git("rev-list", "--first-parent", f"--max-count={_COMMITS}", span)
    return [*newest.split(), merge]


def github_run(bump: Bump, github: Forge | None, commits: Sequence[str]) -> Check:
    """Return the run of the merge, or else of the next commit that has one; skipped if GitHub cannot be queried.

    The run of a later commit may have tested documents only.
    """
    name, workflow = f"CI of {bump.base} on GitHub", bump.repository.ci.workflow
    if github is None:
        return Check(name, "skipped", "GitHub cannot be queried without a token.", Next.again("Set GITHUB_TOKEN."))
    if not workflow:
        unknown = f"The workflow that tests {bump.repository.name} is unknown."
        return Check(name, "skipped", unknown, Next("Check its page."))
    try:
        run = None
        for commit in reversed(commits):
            runs = (each for each in github.runs(head_sha=commit) if on_base(each, bump.base))
            if run := choose(runs, commit, workflow):
                break
        jobs = github.jobs(run.id) if run else ()
    except RunbookError as error:
        return Check(name, "skipped", str(error), Next.again())
    if run is None:
        place = f"on {bump.base} or in its merge queue"
        detail = f"No run {place}, at {commits[0][:10]} or any commit back to the merge, {commits[-1][:10]}."
        return Check(name, "waiting", detail, Next.again())
    evidence = Evidence(links={name: run.url})
    detail = f"CI run {run.id} of {run.head_sha[:10]}: {count_jobs(jobs)}."
    if run.status != "completed":
        return Check(name, "waiting", detail, Next.again(run.url), evidence)
    if run.conclusion == "success":
        return Check(name, "passed", detail, evidence=evidence)
    listed = join_first(sorted({job.name for job in failed(jobs)}), 8) or "no job failed"
    detail = f"CI run {run.id} of {run.head_sha[:10]} finished with conclusion {run.conclusion} ({listed})."
    investigate = Next.run(notebooks.INVESTIGATE_CI, tag=None, place=run.url, mode=None)
    return Check(name, "failed", detail, investigate, evidence)


def gitlab_run(bump: Bump, services: Services, commits: Sequence[str]) -> Check:
    """Return the pipeline of the newest commit that has one; skipped if GitLab cannot be queried."""
    name = f"CI of {bump.base} on GitLab"
    try:
        gitlab = services.second_ci()
        if gitlab is None:
            ask = Next("Somebody with access to GitLab must check.")
            return Check(name, "skipped", "GITLAB_URL is not set.", ask)
        pipelines = (next(iter(gitlab.pipelines(commit)), None) for commit in commits)
        newest = next(filter(None, pipelines), None)
    except RunbookError as error:
        return Check(name, "skipped", str(error), Next.again())
    if newest is None:
        detail = f"No pipeline for {commits[0][:10]} or any commit back to the merge."
        return Check(name, "waiting", detail, Next.again("Start one there, or wait for the nightly one."))
    actions = {"waiting": Next.again(), "failed": Next("Check its failed jobs there.")}
    status = _PIPELINES.get(newest.status, "failed")
    detail = f"Pipeline {newest.id} of {newest.sha[:10]}: {newest.status}. {newest.url}"
    return Check(name, status, detail, actions.get(status, Next()), Evidence(links={name: newest.url}))
