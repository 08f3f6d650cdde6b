"""Notebook 08-after-merge: both CIs on the base, other branches, quarantined tests and values that nobody refreshed."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from runbook_lib import display, notebooks
from runbook_lib.bump import bump_plan, gitlab_values, sync_survey
from runbook_lib.bump.after_merge import base_ci
from runbook_lib.checks import Check, Evidence, Next
from runbook_lib.decisions import Decision, Decisions, flow
from runbook_lib.errors import CannotTell
from runbook_lib.failures.broken_tests import survey
from runbook_lib.failures.broken_tests.survey import QuarantineSurvey
from runbook_lib.model import Outcome, Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.check import PinVerdict, lockstep_tags, outcome
from runbook_lib.world import bump_branch
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.commands import command
from runbook_lib.world.outside import World


@dataclass(frozen=True)
class MergeFacts:
    """The state after a merge; ``merged`` is its commit, empty before the merge and without a tag."""

    branch: BumpBranch
    quarantines: QuarantineSurvey
    branches: Sequence[dict[str, object]]
    notes: tuple[str, ...]
    merged: str = ""
    runs: tuple[base_ci.BaseRun, ...] = ()


@dataclass(frozen=True)
class AfterMerge:
    """The step."""

    def look(self, world: World, bump: Bump) -> MergeFacts:
        """Query everything that may remain after the merge.

        A part that GitHub or GitLab cannot answer says so.
        """
        branch = bump_branch.look(world, bump)
        quarantines = survey.look(world, replace(branch, bump=replace(bump, tag=None, decisions=Decisions())))
        facts = MergeFacts(branch, quarantines, branch_rows(branch), (*branch.warnings, *quarantines.notes))
        if not bump_plan.base_has_tag(branch):
            return facts
        merge = base_ci.merge_commit(branch)
        commits = base_ci.commits_since(branch, merge)
        runs = [base_ci.github_run(bump, world.github, commits)]
        if not bump.repository.inapplicable(notebooks.GITLAB_PIN):
            runs.append(base_ci.gitlab_run(world.services, commits))
        notes = list(facts.notes)
        if bump.repository.tests.golden:
            notes += gitlab_values.unrefreshed(branch, f"{merge}^", branch.base_commit)
        return replace(facts, merged=merge, runs=tuple(runs), notes=tuple(notes))

    def plan(self, facts: MergeFacts, bump: Bump) -> Plan[World]:
        """Return the remaining work.  None of it makes the run fail, because people must do it."""
        names = {run: f"CI of {bump.base} on {run.ci}" for run in facts.runs}
        waiting = None
        if under_way := [run for run in facts.runs if run.state == "waiting"]:
            sentence = f"waiting for {names[under_way[0]]}: {under_way[0].detail}"
            waiting = Outcome(sentence, under_way[0].next)
        evidence = Evidence(
            inputs={"base_commit": facts.branch.base_commit, "merge_commit": facts.merged or None},
            links={name: run.url for run, name in names.items()},
            tables={"branches": facts.branches, **facts.quarantines.evidence.tables},
            warnings=facts.notes,
        )
        checks = [Check.of(names[run], run.state == "passed", f"{run.state}: {run.detail}", "skipped") for run in names]
        return Plan(
            _done(facts), tuple(_shown(facts)), waiting=waiting, checks=tuple(checks), evidence=evidence,
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
    actions = [run.next for run in facts.runs if run.state == "failed"]
    actions += [Next.run(notebooks.BUMP, base=branch, mode=None) for branch in older]
    states = "; ".join(f"{run.ci}: {run.state}" for run in facts.runs)
    others = f"{len(older)} of {len(facts.branches)} other branches on an older image"
    sentence = f"{bump.base} has named {bump.tag} since {facts.merged[:10]}. {states}; {others}, {remaining}."
    return Outcome(sentence, next(iter(actions), Next()))


def _shown(facts: MergeFacts) -> Iterator[display.View]:
    """Yield all parts as tables."""
    if facts.merged:
        runs = display.rows(facts.runs, CI="ci", state="state", found="detail", next="next")
        yield display.note(f"Both CIs on {facts.branch.bump.base}:") + display.table(runs)
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


def branch_rows(branch: BumpBranch) -> list[dict[str, object]]:
    """Return each other branch with pins as last fetched (`dev core_r*`), with image, state and next command."""
    bump, remote = branch.bump, branch.base_remote
    prefix = f"refs/remotes/{remote}/" if remote else "refs/heads/"
    rows = []
    for pattern in bump.repository.ci.branches.split():
        with suppress(CannotTell):  # there is no such branch, or none with pins
            found = sync_survey.survey(branch.checkout.path, [f"{prefix}{pattern}"], repository=bump.repository)
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
