"""Notebook 05-golden-values: the golden values of a CI run, all or none, committed on the bump's branch.

``golden.comparison`` reads them, and ``golden.judge`` judges them.
"""

import itertools
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from runbook_lib import display, notebooks
from runbook_lib.golden import comparison, judge, questions, summary
from runbook_lib.golden.ci_runs import ChosenRun, choose_run
from runbook_lib.golden.comparison import GoldenComparison
from runbook_lib.golden.coverage import coverage_rows
from runbook_lib.model import Check, Condition, Evidence, Next, Outcome, Plan, Round
from runbook_lib.pins.bump import Bump
from runbook_lib.text.edits import diff
from runbook_lib.text.lists import join_first
from runbook_lib.text.markdown import address, code, unlinked
from runbook_lib.text.recipes.file_names import short_name
from runbook_lib.world.bump_branch import BumpBranch, marked, read_state, require_mine
from runbook_lib.world.conditions.commits import BranchTip, Committed
from runbook_lib.world.conditions.forge import Described, PullKey
from runbook_lib.world.ports import World

#: Plots shown in the notebook; the cards have those of all questions.
_SHOWN_PLOTS = 4
_COMPLETE = "every requested golden file is there"
_WRITTEN = "the branch has the run's values byte for byte"


@dataclass(frozen=True)
class GoldenStep:
    """The step; ``run_id`` and ``source`` name the run."""

    run_id: str = ""
    source: str = "github"

    NAME: ClassVar[str] = notebooks.GOLDEN_VALUES

    def look(self, world: World, bump: Bump) -> GoldenComparison | ChosenRun:
        """Choose the run, and compare its golden files with those on the branch; only the choice if there is no run.

        Raises Refused for a decision that names no golden file, and for an unrelated run.
        """
        state = read_state(BumpBranch.look(world, bump), world.github)
        run = choose_run(state, run_id=self.run_id, source=self.source)
        comparison.require_known(run.branch, bump.decisions)
        return comparison.read(run, run.source, world.records) if run.source else run

    def plan(self, facts: GoldenComparison | ChosenRun, bump: Bump) -> Plan[World]:
        """Plan the refresh: what drifted within tolerance is committed, and what did not is asked.

        Raises Refused for a decision on a group that is not held back, and for somebody else's branch.
        """
        if bump.tag and (reason := bump.repository.inapplicable(notebooks.GOLDEN_VALUES)):
            return Plan(Outcome(reason), (display.note(reason),))
        if isinstance(facts, ChosenRun):
            done, waiting = facts.without_run("Nothing to refresh")
            return Plan(done, (facts.show(),), waiting=waiting)
        judge.require_met(bump.decisions, facts.verdicts)
        asked, drawings = questions.questions(facts)
        return Plan(
            _done(facts),
            _shown(facts, drawings.values()),
            conditions=_conditions(facts, bump),
            questions=asked,
            waiting=_waiting(facts, bump),
            checks=(_check_complete(facts),),
            evidence=_evidence(facts, bump, drawings),
            round=Round(facts.undecided(), bool(facts.edits)) if bump.tag and not facts.ci_run.older else None,
        )


def _conditions(values: GoldenComparison, bump: Bump) -> tuple[Condition[World], ...]:
    """Return the commit of the values, and their summary in the pull request's description."""
    run, edits = values.ci_run, values.edits
    state, pull = run.pull_request, run.pull_request.pull
    conditions: list[Condition[World]] = []
    if edits:
        if bump.tag and pull:
            require_mine(pull, state.head_name)
        tip = BranchTip(run.bump.branch, run.branch.start)
        conditions.append(Committed(tip, edits, message(values), _WRITTEN, False, "refresh"))
    is_changed = any(file.verdict != "unchanged" for file in values.verdicts.judgements)
    if bump.tag and pull and state.is_mine and is_changed:
        section = marked(text(values), bump, "golden-values")
        conditions.append(Described(PullKey(state.head_name, pull.base_ref), section, "golden-values"))
    return tuple(conditions)


def _done(values: GoldenComparison) -> Outcome:
    run = values.ci_run
    if not values.edits:
        return Outcome("Already done: the branch has all golden values of this run.")
    refreshed = f"Refreshed {display.count(len(values.edits), 'golden file')} on {run.bump.branch}."
    push = f"git -C {shlex.quote(str(run.branch.checkout.path))} push {run.bump.remote} {run.bump.branch}"
    return Outcome(refreshed, Next() if run.bump.tag else Next(push))


def _waiting(values: GoldenComparison, bump: Bump) -> Outcome | None:
    """Return for what a person or another run is needed."""
    unusable = values.source.unusable
    if unusable and not values.ci_run.named:
        return Outcome(f"waiting for a run with values: {unusable}", Next.run(notebooks.BROKEN_TESTS))
    if values.verdicts.blocked:
        return Outcome(f"waiting for a person: {_held_back(values)}", _next(values, bump))
    if bump.tag and (undecided := values.undecided()):
        names = ", ".join(undecided[:6])
        sentence = "waiting for a person: golden values do not explain why these failed"
        return Outcome(f"{sentence}: {names}", Next.run(notebooks.BROKEN_TESTS))
    return None


def _held_back(values: GoldenComparison) -> str:
    """Return what is held back, and how to accept a danger that the given reason does not name."""
    reasons = [group.sentence for group in values.verdicts.groups if not group.accepted]
    if stopped := summary.in_order(values.verdicts.stopped):
        names = join_first([file.file for file in stopped], 4)
        count = len(stopped)
        reasons.append(f"{display.count(count, 'golden file')} {display.be(count)} held back ({names})")
    for name, danger in values.verdicts.unconfirmed.items():
        reasons.append(f"the decision on {name} needs `confirm: {danger}`")
    return "; ".join(reasons)


def _next(values: GoldenComparison, bump: Bump) -> Next:
    """Return how to decide: one by one, or in the file of decisions."""
    if bump.tag:  # it asks for those on broken tests too
        return Next.run(notebooks.REVIEW, "Make the decisions:")
    for name, danger, _ in judge.held_back(values.verdicts, values.table):
        in_file = bump.decisions.advice("accept", name, danger)
        return Next(f"Accept them by name ({in_file}), or quarantine the test with 06-broken-tests.")
    return Next("Nobody can accept what is refused: quarantine the test with 06-broken-tests.")


def _check_complete(values: GoldenComparison) -> Check:
    """Check that no golden file is missing."""
    source = values.source
    missing = [f"{it.job}: {it.file or it.artifact} {it.sentence}".replace("  ", " ") for it in values.unavailable]
    if source.unusable and not values.ci_run.named:
        return Check(_COMPLETE, "skipped", source.unusable)
    if missing:
        return Check(_COMPLETE, "failed", f"{len(missing)} missing. {' | '.join(missing[:5])}")
    return Check(_COMPLETE, "passed", f"{len(values.table.measured)} files from {source.name}.")


def _evidence(values: GoldenComparison, bump: Bump, drawings: Mapping[str, Callable[[], display.Picture]]) -> Evidence:
    run, source, verdicts = values.ci_run, values.source, values.verdicts
    decided = verdicts.decided
    if run.older and (older := bump.allowed("older-run", run.number)):
        decided = (*decided, older)
    is_short = sum(len(edit.after) for edit in values.edits) < 100_000
    return Evidence(
        {"run": source.name, "base_commit": run.branch.base_commit, "plan_from": run.branch.start},
        {"GitLab pipeline" if source.gitlab else "CI run": run.url},
        {
            "golden values": summary.rows(summary.in_order(verdicts.judgements)),
            "groups": summary.group_rows(verdicts.groups),
            "verdicts": summary.verdict_rows(verdicts.judgements),
            "provenance": provenance(values),
            "coverage": list(map(vars, values.coverage)),
            "missing": list(map(vars, values.collection.problems)),
        },
        diff(values.edits) if is_short else "",
        decided,
        (*run.branch.warnings, *values.warnings),
        {name: partial(_svg, draw) for name, draw in drawings.items()},
    )


def _svg(draw: Callable[[], display.Picture]) -> str:
    return draw().svg


def provenance(values: GoldenComparison) -> list[dict[str, str]]:
    """Return, for each written file, the run with its attempt, job and runner that measured it, and the commit tested.

    A job repeats a test up to three times when its values differ; the values are those of the last time.
    """
    run, rows, written = values.ci_run, [], {edit.path for edit in values.edits}
    for file in values.collection.files:
        if file.path in written:
            row = {"file": file.path, "run": run.url, "attempt": str(run.attempt), "job": file.job}
            rows.append(row | {"runner": file.runner, "commit": run.tested})
    return rows


def message(values: GoldenComparison) -> str:
    """Return the commit message, without the sign-off."""
    bump, verdicts = values.ci_run.bump, values.verdicts
    written = {short_name(edit.path) for edit in values.edits}
    accepted = []
    for group in verdicts.groups:
        if group.accepted and not written.isdisjoint(group.files):
            accepted.append(f"{group.id} ×{group.ratio or 1.0:.2f}: {group.accepted}")
    for file in verdicts.judgements:
        if file.accepted and file.file in written:
            accepted.append(f"{file.file}: {file.accepted}")
    image = f"{bump.repository.sites.image}:{bump.tag}" if bump.tag else "of the branch"
    if bump.tag and values.image:
        image += f"@{values.image}"
    runners = sorted({row["runner"] for row in provenance(values)} - {""})
    return compose_message(values.ci_run, len(values.edits), image, runners, accepted)


def compose_message(run: ChosenRun, count: int, image: str, runners: Sequence[str], accepted: Sequence[str]) -> str:
    """Return the message of a commit of ``count`` files; what others wrote cannot link or mention anything."""
    assert run.source is not None
    files, name = display.count(count, "file"), unlinked(run.source.name)
    measured = unlinked("; ".join(runners) or "unknown")
    title = "test: refresh golden values" + (f" for {run.bump.tag}" if run.bump.tag else "")
    lines = [title, "", f"{files}, as {name} measured them: {address(run.url, unlinked)}"]
    lines.append(f"Commit {run.tested}, attempt {run.attempt}, image {unlinked(image)}, runners {measured}.")
    if accepted:
        lines += ["", "Accepted although held back:", *(f"- {unlinked(line)}" for line in accepted)]
    return "\n".join(lines)


def text(values: GoldenComparison) -> str:
    """Return the summary for reviewers: the whole bump, and the coverage of this run."""
    lines = [summary.markdown(values.verdicts)]
    if values.coverage:
        lines.append(f"Golden files, by what {code(values.source.name)} covered:\n")
    for row in coverage_rows(values.coverage):
        place = ", ".join(str(row[key]) for key in ("scopes", "platform") if row[key])
        lines.append(f"- {row['golden files']}: {row['why']}" + (f" ({code(place)})" if place else ""))
    return "\n".join(lines) + "\n"


def _shown(
    values: GoldenComparison, drawings: Iterable[Callable[[], display.Picture]]
) -> tuple[display.View | display.Drawing, ...]:
    """Return the tables and plots, each drawn when it is shown; ``drawings`` are those of the open questions."""
    views = (
        display.note("The run that provides the values."),
        display.Drawing(values.ci_run.show),
        display.note("Its golden files, read from the artifacts, and the verdict on each."),
        display.Drawing(partial(_verdicts, values)),
        display.note("The golden files of this image type that the run covered, and how to refresh the others."),
        display.Drawing(lambda: display.table(coverage_rows(values.coverage), empty="Nothing is covered.")),
        display.note("What would be committed, and the summary for reviewers."),
        display.Drawing(partial(_written_view, values)),
    )
    if worst := list(itertools.islice(drawings, _SHOWN_PLOTS)):
        return *views, display.note("The first open questions, with what was expected."), *map(display.Drawing, worst)
    return views


def _verdicts(values: GoldenComparison) -> display.View:
    """Show the verdict on each file with what a person accepted, and the files that cannot be used."""
    problems = values.collection.problems
    tables: dict[str, Sequence[Mapping[str, object]]] = {
        "One decision for many files:": summary.group_rows(values.verdicts.groups),
        "The verdict on each file:": summary.verdict_rows(values.verdicts.judgements),
        "Unavailable, and therefore not used:": [
            {"job": it.job, "file": it.file or it.artifact, "why": it.sentence} for it in problems
        ],
    }
    view = display.View("", "")
    for title, rows in tables.items():
        if rows:
            view += display.note(title) + display.table(rows)
    return view + display.notes(values.warnings, title="Warnings")


def _written_view(values: GoldenComparison) -> display.View:
    """Show the files to be written, and the full texts."""
    rows = [{"file": short_name(edit.path), "change": "refreshed" if edit.before else "new"} for edit in values.edits]
    nothing = "Nothing to write: the branch has all values from this run that are not held back."
    view = display.table(rows, empty=nothing)
    if rows:
        view += display.code(f"{message(values)}\n\nSigned-off-by: …", title="Commit message")
    return view + display.code(text(values), title="Text for the pull request")
