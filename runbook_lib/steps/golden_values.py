"""Notebook 05-golden-values: the golden values of a CI run, all or none, committed on the bump's branch.

``workflow.golden_comparison`` collects and judges them.
"""

import shlex
from dataclasses import dataclass

from runbook_lib import display, notebooks
from runbook_lib.checks import Check
from runbook_lib.golden import summary
from runbook_lib.golden.file_names import FOLDER
from runbook_lib.golden.form import STOPPED, Judgement
from runbook_lib.golden.judge import Verdicts
from runbook_lib.golden.shifts import Group
from runbook_lib.model import Round
from runbook_lib.records.step_record import StepRecord
from runbook_lib.runner.command_line import command, review
from runbook_lib.text import edits
from runbook_lib.text.edits import Edit, edited_paths
from runbook_lib.text.markdown import address, code, unlinked
from runbook_lib.workflow import branch_history, bump_pull, golden_decisions, push_round
from runbook_lib.workflow.golden_comparison import GoldenComparison, coverage_rows
from runbook_lib.workflow.golden_refreshes import ACCEPTED, attempt_rows, changed_since_fork, image_digest
from runbook_lib.workflow.run_choice import ChosenRun


@dataclass(frozen=True)
class RefreshPlan:
    """The edits that refresh a run's golden values, and ``verdicts`` on every golden file that the bump changes."""

    values: GoldenComparison
    edits: tuple[Edit, ...]
    verdicts: Verdicts

    @property
    def run(self) -> ChosenRun:
        """The CI run that measured the values."""
        return self.values.ci_run

    @property
    def stopped(self) -> tuple[Judgement, ...]:
        """The files that differ and are held back or refused, worst first."""
        return tuple(file for file in summary.in_order(self.verdicts.judgements) if file.verdict in STOPPED)

    @property
    def waiting(self) -> tuple[Group, ...]:
        """The groups of this run that nobody has accepted."""
        return tuple(group for group in self.values.verdicts.groups if not group.accepted)

    @property
    def accepted_groups(self) -> list[Group]:
        """The groups of written files that a person has accepted."""
        groups = (group for group in self.values.verdicts.groups if group.accepted)
        return [group for group in groups if self._written & set(group.files)]

    @property
    def accepted(self) -> list[Judgement]:
        """The written files that a person has accepted."""
        return [file for file in self.values.judged if file.accepted and file.file in self._written]

    @property
    def unconfirmed(self) -> str:
        """A sentence on how to accept a danger that the given reason does not name; empty if there is none."""
        written = "; ".join(f"{name}: {reason}" for name, reason in self.values.unconfirmed.items())
        sentence = f" To accept a divergence or a lost metric, begin the reason with its word: “{written}”."
        return sentence if written else ""

    @property
    def _written(self) -> set[str]:
        return {edit.path.removeprefix(f"{FOLDER}/") for edit in self.edits}

    @property
    def image(self) -> str:
        """The image that the run tested, with its digest if a record of the bump contains it."""
        bump = self.run.bump
        if not bump.tag:
            return "of the branch"
        digest = image_digest(self.run.pull_request.records)
        return f"{bump.repository.sites.image}:{bump.tag}" + (f"@{digest}" if digest else "")

    def provenance(self) -> list[dict[str, str]]:
        """Return, for each written file, the run, job and runner that measured it, and the commit tested."""
        rows = []
        for file in self.values.collection.files:
            if file.path.removeprefix(f"{FOLDER}/") in self._written:
                row = {"file": file.path, "run": self.run.url, "job": file.job, "runner": file.runner}
                rows.append(row | {"commit": self.run.tested, "image": self.image})
        return rows

    @property
    def message(self) -> str:
        """The commit message, without the sign-off."""
        assert self.run.source is not None
        files, name = display.count(len(self.edits), "file"), unlinked(self.run.source.name)
        lines = [self.run.bump.refresh_title, ""]
        lines.append(f"{files}, as {name} measured them: {address(self.run.url, unlinked)}")
        runners = "; ".join(sorted({row["runner"] for row in self.provenance() if row["runner"]})) or "unknown"
        lines.append(f"Commit {self.run.tested}, image {unlinked(self.image)}, runners {unlinked(runners)}.")
        if self.accepted or self.accepted_groups:
            lines += ["", ACCEPTED]
        for group in self.accepted_groups:
            ratio = 1.0 if group.ratio is None else group.ratio
            lines.append(f"- {unlinked(f'{group.id} ×{ratio:.2f}: {group.accepted}')}")
        for file in self.accepted:
            metrics = f" [{', '.join(file.accepted_metrics)}]" if file.accepted_metrics else ""
            lines.append(f"- {unlinked(f'{file.file}{metrics}: {file.accepted}')}")
        return "\n".join(lines)

    @property
    def text(self) -> str:
        """The summary for reviewers: the whole bump, and the coverage of this run."""
        text = summary.markdown(self.verdicts)
        rows = coverage_rows(self.values.coverage)
        if not rows:
            return text
        name = self.run.source.name if self.run.source else ""
        text += f"\n{code(name)} covered {rows[0]['golden files']} of {len(self.values.coverage)} golden files.\n"
        if rows[1:]:
            text += "Not covered:\n\n"
        for row in rows[1:]:
            scopes = [str(row[key]) for key in ("scopes", "platform") if row[key]]
            text += f"- {row['golden files']}: {row['why']} ({code(', '.join(scopes) or 'no scope')})\n"
        return text

    def show(self) -> display.View:
        """Return the files to be written, and the full texts."""
        if self.run.source is None:
            return display.note("There is nothing to write.")
        rows = []
        for edit in self.edits:
            change = "new" if edit.before is None else "refreshed"
            rows.append({"file": edit.path.removeprefix(f"{FOLDER}/"), "change": change})
        nothing = "Nothing to write: the branch has all values from this run that are not held back."
        view = display.table(rows, empty=nothing)
        if self.edits:
            view += display.code(f"{self.message}\n\nSigned-off-by: …", title="Commit message")
        return view + display.code(self.text, title="Text for the pull request")


def plan(values: GoldenComparison) -> RefreshPlan:
    """Plan the refresh of the bump's branch."""
    branch, source = values.ci_run.branch, values.ci_run.source
    refreshed = []
    for file in values.judged:
        if file.verdict == "refresh" and file.file not in values.verdicts.waiting:
            refreshed.append(Edit(f"{FOLDER}/{file.file}", values.old[file.file], values.new[file.file]))
    verdicts = Verdicts()
    if source:
        records = values.ci_run.pull_request.records
        runners = {file.path: file.runner for file in values.collection.files}
        verdicts = changed_since_fork(branch, records, values.history, values.verdicts, tuple(refreshed), runners)
    return RefreshPlan(values, tuple(refreshed), verdicts)


def carry_out(step: StepRecord, refresh: RefreshPlan) -> Round | None:
    """With ``apply`` write and commit the values; with ``publish`` notify reviewers.  Return what is left of the round.

    Raises Refused if somebody else's changes are in the way.
    """
    state, branch, bump = refresh.run.pull_request, refresh.run.branch, refresh.run.bump
    answers: Round | None = Round(refresh.values.undecided, bool(refresh.edits))
    if refresh.run.source is None or not bump.tag or refresh.run.older:
        answers = None  # the branch does not belong to the runbook, or an older run says nothing about the newest one
    if not bump.apply or refresh.run.source is None:
        return answers
    if bump.tag and refresh.edits and state.pull:
        bump_pull.require_mine(state.pull, state.head_name)
    if refresh.edits:
        for file in refresh.values.judged:
            if file.accepted:
                step.allowed(f"accept {file.file}", file.accepted, file.danger)
        for group in refresh.accepted_groups:
            step.allowed(f"accept {group.id}", group.accepted, refresh.values.verdicts.danger(group))
        branch_history.make(step, branch, refresh.edits, refresh.message, "refresh")
    if bump.tag and refresh.verdicts.judgements:
        push_round.update_body(step, state, refresh.text, "golden-values")
    return answers


def verify(step: StepRecord, refresh: RefreshPlan) -> display.View:
    """Read the branch again, and record the checks, the values held back and the outcome."""
    values, run = refresh.values, refresh.run
    step.warn(*run.branch.warnings, *values.warnings)
    if run.source is not None:
        run.record_inputs(step)
        if run.older:
            step.allowed("older-run", run.older)
        step.table("golden values", values.frame())
        step.table("groups", summary.group_rows(refresh.verdicts.groups))
        step.table("verdicts", summary.verdict_rows(refresh.verdicts.judgements))
        step.table("provenance", refresh.provenance())
        step.table("attempts", attempt_rows(values.verdicts, run))
        step.table("coverage", map(vars, values.coverage))
        step.table("missing", map(vars, values.collection.problems))
    step.check(*_checks(refresh))
    if sum(len(edit.after) for edit in refresh.edits) < 100_000:
        step.diff(edits.diff(refresh.edits))
    golden_decisions.request(step, refresh.values, refresh.waiting, refresh.stopped)
    _conclude(step, refresh)
    return display.note("The record below lists the checks.")


def _checks(refresh: RefreshPlan) -> list[Check]:
    values, run = refresh.values, refresh.run
    complete, exact = "every requested golden file is there", "the branch has the run's values byte for byte"
    if run.source is None:
        return [Check(complete, "skipped", f"{run.problem}."), Check(exact, "skipped", "Nothing was collected.")]
    missing = []
    for problem in values.unavailable:
        missing.append(f"{problem.job}: {problem.file or problem.artifact} {problem.sentence}".replace("  ", " "))
    check = Check(complete, "passed", f"{len(values.new)} files from {run.source.name}.")
    if run.source.unusable and not run.named:
        check = Check(complete, "skipped", run.source.unusable)
    elif missing:
        check = Check(complete, "failed", f"{len(missing)} missing. {' | '.join(missing[:5])}")
    if not run.bump.apply:
        return [check, Check(exact, "skipped", "This is a preview.")]
    texts = run.branch.checkout.read(edited_paths(refresh.edits), run.bump.branch)
    differing = edits.unapplied(refresh.edits, texts)
    detail = f"{', '.join(differing)} differs." if differing else f"{display.count(len(texts), 'file')} written."
    return [check, Check.of(exact, not differing, detail)]


def _conclude(step: StepRecord, refresh: RefreshPlan) -> None:
    run, bump, undecided = refresh.run, refresh.run.bump, refresh.values.undecided
    files = display.count(len(refresh.edits), "golden file")
    if run.conclude_without_run(step, "Nothing to refresh") or run.source is None:
        return
    if run.source.unusable and not run.named:
        step.waiting(f"waiting for a run with values: {run.source.unusable}", notebooks.BROKEN_TESTS)
    elif not bump.apply:
        _plan_effects(step, refresh, files)
        sentence = f"would refresh {files}"
        if refresh.stopped:
            sentence += f", and hold back {len(refresh.stopped)}"
        if refresh.waiting:
            sentence += f", and wait for {display.count(len(refresh.waiting), 'decision')} about many files"
        step.preview(f"{sentence}{refresh.unconfirmed}", command(step.name, bump, apply=True))
    elif refresh.stopped or refresh.waiting:
        _wait_for_decision(step, refresh)
    elif undecided and bump.tag:
        sentence = "waiting for a person: golden values do not explain why these failed"
        step.waiting(f"{sentence}: {', '.join(undecided[:6])}", notebooks.BROKEN_TESTS)
    elif refresh.edits:
        push_command = f"git -C {shlex.quote(str(run.branch.checkout.path))} push {bump.remote} {bump.branch}"
        step.done(f"Refreshed {files} on {bump.branch}.", "" if bump.tag else push_command)
    else:
        step.done("Already done: the branch has all golden values of this run.")


def _wait_for_decision(step: StepRecord, refresh: RefreshPlan) -> None:
    reasons = [group.sentence for group in refresh.waiting]
    if refresh.stopped:
        names = display.first_names([file.file for file in refresh.stopped], 4)
        count = len(refresh.stopped)
        reasons.append(f"{display.count(count, 'golden file')} {display.be(count)} held back ({names})")
    first = [group.id for group in refresh.waiting] + [file.file for file in refresh.stopped]
    fix = f'Accept them by name, -r accept "{first[0]}: reason; …", or quarantine the test with 06-broken-tests.'
    sentence = f"waiting for a person: {'; '.join(reasons)}"
    if refresh.unconfirmed:
        sentence += f".{refresh.unconfirmed}"
    if refresh.run.bump.tag:  # it asks for those on broken tests too
        fix = f"Make the decisions: {review(refresh.run.bump)}"
    step.waiting(sentence, fix)


def _plan_effects(step: StepRecord, refresh: RefreshPlan, files: str) -> None:
    """Record what apply would do."""
    for danger in refresh.verdicts.accepted_dangers:
        step.would(f"accept {danger}")
    if refresh.edits:
        step.would(f"refresh {files} in one commit on branch {refresh.run.bump.branch}")
