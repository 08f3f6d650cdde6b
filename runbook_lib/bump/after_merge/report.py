"""Notebook 08-after-merge: the work that remains after a merge.  Changes nothing.

It covers both CIs on the base branch, golden files that the pull request's run did not compare, branches on an older
image, and quarantined tests with the states of their issues.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from runbook_lib import display, notebooks
from runbook_lib.bump import bump_plan, sync_survey
from runbook_lib.bump.after_merge import base_ci, uncovered
from runbook_lib.checks import Check, Evidence, Next
from runbook_lib.decisions import Decision, Decisions, flow
from runbook_lib.errors import CannotTell
from runbook_lib.failures.broken_tests import survey
from runbook_lib.failures.broken_tests.survey import QuarantineSurvey
from runbook_lib.images.reference import Tag
from runbook_lib.model import Outcome, Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.check import PinVerdict, lockstep_tags
from runbook_lib.world import bump_branch
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.commands import command
from runbook_lib.world.outside import World

_Rows = Sequence[dict[str, object]]


@dataclass(frozen=True)
class MergeFacts:
    """The state after a merge; ``merged`` is its commit, empty before the merge and without a tag."""

    branch: BumpBranch
    quarantines: QuarantineSurvey
    merged: str = ""
    runs: tuple[base_ci.BaseRun, ...] = ()
    uncovered: _Rows = ()
    branches: _Rows = ()
    notes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """A sentence about the merge."""
        bump = self.branch.bump
        if bump.tag is None:
            return "No tag was given."
        if self.merged:
            return f"{bump.base} has named {bump.tag} since {self.merged[:10]}."
        return f"{bump.base} does not name {bump.tag} yet: 07-sync-check and the merge are still to come."


@dataclass(frozen=True)
class AfterMerge:
    """The step."""

    def look(self, world: World, bump: Bump) -> MergeFacts:
        """Query everything that may remain after the merge.

        A part that GitHub or GitLab cannot answer says so.
        """
        branch, github = bump_branch.look(world, bump), world.github
        branches = branch_rows(branch)
        quarantines = survey.look(world, replace(branch, bump=replace(bump, tag=None, decisions=Decisions())))
        notes = [*branch.warnings, *quarantines.notes]
        if not bump_plan.base_has_tag(branch):
            return MergeFacts(branch, quarantines, branches=branches, notes=tuple(notes))
        merge = base_ci.merge_commit(branch)
        commits = base_ci.commits_since(branch, merge)
        runs = [base_ci.github_run(bump, github, commits)]
        if not bump.repository.inapplicable(notebooks.GITLAB_PIN):
            runs.append(base_ci.gitlab_run(world.services, commits))
        missing: _Rows = ()
        if bump.repository.tests.golden:
            missing, problem = uncovered.uncovered_rows(branch, github, merge, pipeline=runs[-1].pipeline)
            notes += filter(None, [problem])
        return MergeFacts(branch, quarantines, merge, tuple(runs), missing, branches, tuple(notes))

    def plan(self, facts: MergeFacts, bump: Bump) -> Plan[World]:
        """Return the remaining work.  None of it makes the run fail, because people must do it."""
        tables = {"branches": facts.branches, **facts.quarantines.evidence.tables}
        inputs = {"base_commit": facts.branch.base_commit, "merge_commit": facts.merged or None}
        plan: Plan[World] = Plan(
            _done(facts), tuple(_shown(facts)), evidence=Evidence(inputs, tables=tables, warnings=facts.notes),
            only_reads=True,
        )  # fmt: skip
        if not facts.merged:
            return plan
        names = {run: f"CI of {bump.base} on {run.ci}" for run in facts.runs}
        waiting = None
        if under_way := [run for run in facts.runs if run.state == "waiting"]:
            sentence = f"waiting for {names[under_way[0]]}: {under_way[0].detail}"
            waiting = Outcome(sentence, under_way[0].next)
        evidence = replace(
            plan.evidence, tables={**tables, "not covered": facts.uncovered},
            links={names[run]: run.url for run in facts.runs},
        )  # fmt: skip
        checks = (
            Check.of(names[run], run.state == "passed", f"{run.state}: {run.detail}", "skipped") for run in facts.runs
        )
        return replace(plan, waiting=waiting, checks=tuple(checks), evidence=evidence)


def _done(facts: MergeFacts) -> Outcome:
    """Return the outcome if no CI is waited for: what remains, and the first command for it."""
    remaining = _remaining(facts)
    if facts.branch.bump.tag is None:
        return Outcome(f"No tag was given: {remaining}.", Next.again("Name the tag of a bump:", tag="26.04-py3"))
    if not facts.merged:
        return Outcome(facts.sentence, Next.run(notebooks.SYNC_CHECK))
    states = "; ".join(f"{run.ci}: {run.state}" for run in facts.runs)
    actions = [run.next for run in facts.runs if run.state == "failed"]
    older = [row["branch"] for row in facts.branches if row["state"] == "older"]
    actions += [Next.run(notebooks.BUMP, base=branch, mode=None) for branch in older]
    return Outcome(f"{facts.sentence} {states}; {remaining}.", next(iter(actions), Next()))


def _shown(facts: MergeFacts) -> Iterator[display.View]:
    """Yield all parts as tables."""
    bump = facts.branch.bump
    yield display.note(facts.sentence)
    if facts.merged:
        runs = display.rows(facts.runs, CI="ci", state="state", found="detail", next="next")
        yield display.note(f"Both CIs on {bump.base}:") + display.table(runs)
    if facts.merged and bump.repository.tests.golden:
        yield display.note("Golden files that the pull request's run did and did not cover:")
        yield display.table(facts.uncovered, empty="There are no golden files for this image type.")
    yield display.note("Other branches, by their pins, as last fetched:") + display.table(facts.branches, empty="None.")
    yield from _quarantines(facts.quarantines)
    yield display.notes(facts.notes, title="Also")


def _quarantines(survey: QuarantineSurvey) -> Iterator[display.View]:
    """Yield the quarantined tests, and how those whose runs pass are re-enabled, and those without an issue get one."""
    yield display.note(f"Quarantined tests on {survey.bump.base}:") + survey.show()
    asked = [question for question in survey.questions() if question.kind == "broken" or question.suggestion]
    entries = [Decision(each.kind, each.subject, each.suggestion or "…") for each in asked]
    if entries:
        lines = "\n".join(f"{each.kind}: [{flow(each.as_entry())}]" for each in entries)
        run = command(notebooks.BROKEN_TESTS, survey.bump, tag="", mode=None, decisions="decisions.yaml")
        title = "To re-enable them or to file issues, write such entries into decisions.yaml, and run the command"
        yield display.code(f"{lines}\n\n{run}", title=title)


def _remaining(facts: MergeFacts) -> str:
    """Return the numbers of other branches and of quarantined rows, in words."""
    branches = {row["branch"] for row in facts.branches}
    older = {row["branch"] for row in facts.branches if row["state"] == "older"}
    rows = display.count(len(facts.quarantines.tests), "quarantined row")
    counts = [f"{len(branches)} other branches", f"{rows} of recipes"]
    if facts.branch.bump.tag:
        counts[0] = f"{len(older)} of {len(branches)} other branches on an older image"
    if passing := sum(bool(test.ran and test.ran.passed) for test in facts.quarantines.tests):
        counts.append(f"{passing} of them with passing runs")
    if untracked := sum(test.entry.issue is None for test in facts.quarantines.tests):
        counts.append(f"{untracked} without an issue")
    return ", ".join(counts)


def branch_rows(branch: BumpBranch) -> list[dict[str, object]]:
    """Return each other branch with pins as last fetched (`dev core_r*`), with image, state and next command."""
    bump, remote = branch.bump, branch.base_remote
    prefix = f"refs/remotes/{remote}/" if remote else "refs/heads/"
    rows: list[dict[str, object]] = []
    for pattern in bump.repository.ci.branches.split():
        refs = [f"{prefix}{pattern}", f"^{prefix.split('/', 2)[2]}{bump.base}"]
        with suppress(CannotTell):  # there is no such branch, or none with pins
            for snapshot in sync_survey.survey(branch.checkout.path, refs, repository=bump.repository).snapshots:
                name = snapshot.name.removeprefix(prefix).removeprefix(f"{remote}/")
                if snapshot.verdicts and name != bump.base:
                    rows += _image_rows(name, snapshot.verdicts, bump)
    return rows


def _image_rows(name: str, verdicts: Sequence[PinVerdict], bump: Bump) -> Iterator[dict[str, object]]:
    """Yield the row of a branch for each image of the bump's type."""
    images, found = bump.repository.sites.images, lockstep_tags(verdicts, bump.image_type)
    for image in images:
        tags = sorted(map(image.family.read, found.get(image.name, ())))
        if len(images) > 1 and not tags:
            continue  # it has only pins of another type
        state, fix = image_state(tags, bump, name, bump.tag)
        listed = ", ".join(str(tag) for tag in tags)
        if image.short:
            listed = f"{image.short}: {listed}"
        yield {"branch": name, "image": listed or "–", "state": state, "next": fix}


def image_state(tags: Sequence[Tag], bump: Bump, branch: str, target: Tag | None) -> tuple[str, str]:
    """Return how a branch with pins at these tags compares with the target, and the command that fixes it."""
    check = f"runbook check --ref {branch}"
    if not tags:
        return "cannot tell", check
    if target is None and len(tags) > 1:
        return "out of sync", check
    if target is None:
        return "in sync", ""
    if any(tag.is_older(target) for tag in tags):
        return "older", command(notebooks.BUMP, bump, base=branch, mode=None)
    if any(target.is_older(tag) for tag in tags):
        return "newer", ""
    if target in tags:
        return "names it", ""
    return "another edition or build", ""
