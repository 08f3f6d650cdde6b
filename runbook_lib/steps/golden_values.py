"""Step 5, second half: write the golden values of a run, all or none, commit them, and tell the reviewers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from runbook_lib import display, notebooks
from runbook_lib.checks import Check
from runbook_lib.display import View
from runbook_lib.git.checkout import Checkout
from runbook_lib.golden import summary
from runbook_lib.golden.diff import LINT
from runbook_lib.golden.file_names import FOLDER, GoldenFileName, config_path
from runbook_lib.golden.judge import Judgement, judge
from runbook_lib.records.step_record import StepRecord
from runbook_lib.runner.command_line import command
from runbook_lib.text import edits
from runbook_lib.text.edits import Edit
from runbook_lib.text.markdown import address, code, unlinked
from runbook_lib.workflow import branch_history, push_round
from runbook_lib.workflow.bump_branch import BumpBranch
from runbook_lib.workflow.golden_comparison import ACCEPTED as ACCEPTED
from runbook_lib.workflow.golden_comparison import Found, coverage_rows
from runbook_lib.workflow.golden_comparison import changed_since_fork as whole
from runbook_lib.workflow.pull_request import PullRequestState
from runbook_lib.workflow.push_round import Sent


@dataclass(frozen=True)
class Refresh:
    """What would be written: ``edits`` are those of this run, ``whole`` judges all that the bump's branch then changes.

    ``undone`` are the golden files whose uncommitted changes *reset* takes back, ``left`` those that git does not know
    and that it leaves alone.
    """

    found: Found
    edits: tuple[Edit, ...]
    whole: tuple[Judgement, ...]
    undone: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def pull_request(self) -> PullRequestState:
        """The pull request that the run belongs to."""
        return self.found.asked.pull_request

    @property
    def stopped(self) -> tuple[Judgement, ...]:
        """What is not written, although it differs: held back or refused, the worst first."""
        return tuple(one for one in summary.in_order(self.whole) if one.verdict in ("held back", "refused"))

    @property
    def message(self) -> str:
        """The commit's message, without the sign-off."""
        asked = self.found.asked
        assert asked.source is not None
        lines = [self.pull_request.bump.refresh_title, ""]
        run = unlinked(asked.source.name)
        lines.append(
            f"{display.count(len(self.edits), 'file')}, as {run} measured them: {address(asked.url, unlinked)}"
        )
        accepted = [one for one in self.found.judged if one.accepted and self._writes(one.file)]
        if accepted:
            lines += ["", ACCEPTED, *(f"- {unlinked(f'{one.file}: {one.accepted}')}" for one in accepted)]
        return "\n".join(lines)

    def _writes(self, name: str) -> bool:
        return any(edit.path == f"{FOLDER}/{name}" for edit in self.edits)

    @property
    def text(self) -> str:
        """The summary for reviewers, of the whole bump, with what the newest run covered."""
        rows = coverage_rows(self.found.coverage)
        if not rows:
            return summary.markdown(self.whole)
        name = self.found.asked.source.name if self.found.asked.source else ""
        covered = [f"{code(name)} covered {rows[0]['golden files']} of {len(self.found.coverage)} golden files."]
        if rows[1:]:
            covered += ["Not covered:", ""]
            covered += [f"- {row['golden files']}: {row['why']} ({_scopes(row)})" for row in rows[1:]]
        return f"{summary.markdown(self.whole)}\n" + "\n".join(covered) + "\n"

    def show(self) -> View:
        """The files to be written and the texts in full."""
        if self.found.asked.source is None:
            return display.note("There is nothing to write.")
        rows = [
            {"file": edit.path.removeprefix(f"{FOLDER}/"), "change": "new" if edit.before is None else "refreshed"}
            for edit in self.edits
        ]
        shown = display.table(
            rows, empty="Nothing to write: the branch holds every value of this run that may be taken."
        )
        if self.edits:
            shown += display.code(f"{self.message}\n\nSigned-off-by: …", title="Commit message")
        shown += display.notes(self.undone, title="Golden files whose uncommitted changes are undone first")
        shown += display.notes(self.left, title="New golden files that git does not know: they are left as they are")
        return shown + display.code(self.text, title="Text for the pull request")


def _scopes(row: Mapping[str, object]) -> str:
    named = [str(row[key]) for key in ("scopes", "platform") if row[key]]
    return code(", ".join(named) or "no scope")


def plan(found: Found, *, reset: bool = False) -> Refresh:
    """What the run's values change on the bump's branch.  ``reset`` would first undo uncommitted golden files."""
    branch = found.asked.branch
    judged = _since_the_base(branch, found) if found.asked.source else found.judged
    found = replace(found, judged=judged)
    made = tuple(
        Edit(f"{FOLDER}/{one.file}", found.old[one.file], found.new[one.file])
        for one in judged
        if one.verdict == "refresh"
    )
    undone, left = _uncommitted(branch.checkout) if reset else ((), ())
    if not found.asked.source:
        return Refresh(found, made, (), undone, left)
    return Refresh(found, made, whole(branch, found.asked.pull_request.records, found.judged, made), undone, left)


def _since_the_base(branch: BumpBranch, found: Found) -> tuple[Judgement, ...]:
    """The verdicts, where a value may also be held back for what several rounds add up to since the branch began."""
    fork = branch.checkout.merge_base(branch.start, branch.base_commit) or branch.base_commit
    drifted = [one.file for one in found.judged if one.verdict == "refresh" and not one.accepted]
    configs = {name: config_path(f"{FOLDER}/{name}") for name in drifted}
    before = branch.checkout.read([f"{FOLDER}/{name}" for name in drifted], fork)
    now = branch.texts([*configs.values(), LINT])
    judged = []
    for one in found.judged:
        if one.file in configs and (old := before[f"{FOLDER}/{one.file}"]) is not None:
            config, lint = now[configs[one.file]], now[LINT] is not None
            whole = judge(one.file, old, found.new[one.file], config, lint=lint)
            if whole.verdict == "held back":
                reason = found.accepted.get(one.file)
                one = replace(whole, verdict="refresh", accepted=reason) if reason else whole
        judged.append(one)
    return tuple(judged)


def _uncommitted(checkout: Checkout) -> tuple[tuple[str, ...], tuple[str, ...]]:
    changed = [path for path in checkout.uncommitted([FOLDER]) if GoldenFileName.of_path(path)]
    at_head = checkout.read(changed, "HEAD")
    known = tuple(path for path in changed if at_head[path] is not None)
    return known, tuple(path for path in changed if at_head[path] is None)


def carry_out(step: StepRecord, refresh: Refresh) -> Sent:
    """With ``apply`` write and commit the values; with ``publish`` push the round, have it tested, and tell reviewers.

    Raises Refused where somebody's changes are in the way.
    """
    state, branch = refresh.pull_request, refresh.pull_request.branch
    bump, checkout = branch.bump, branch.checkout
    if refresh.found.asked.source is None or not bump.apply:
        return Sent(told=("This is a preview: nothing was changed.",) * (not bump.apply))
    told: list[str] = []
    if refresh.edits or refresh.undone:
        push_round.require_own(state)
    if refresh.undone:
        _undo(step, checkout, refresh.undone)
        told.append(f"Undid the uncommitted changes of {display.count(len(refresh.undone), 'golden file')}.")
    if refresh.edits:
        for one in refresh.found.judged:
            if one.accepted:
                step.allowed(f"accept {one.file}", one.accepted)
        commit = branch_history.make(step, branch, refresh.edits, refresh.message)
        told.append(f"Committed {commit[:10]} on {bump.branch}: {display.count(len(refresh.edits), 'golden file')}.")
    older = refresh.found.asked.older  # of the newest run nothing is known then
    sent = Sent() if older else push_round.send(step, state, refresh.found.undecided, last=False)
    if refresh.whole:
        push_round.tell(step, state, refresh.text, "golden-values")
    return replace(sent, told=(*told, *sent.told))


def _undo(step: StepRecord, checkout: Checkout, paths: tuple[str, ...]) -> None:
    """Take the files back to what HEAD has; what they held stays in git's store, under the id that the record keeps."""
    held = checkout.read(paths)
    for path in paths:
        text = held[path]
        kept = None if text is None else checkout.git("hash-object", "-w", "--stdin", stdin=text)
        step.effect("reset", path, kept and f"git blob {kept}", checkout.git("rev-parse", f"HEAD:{path}"))
    checkout.git("restore", "--staged", "--worktree", "--source=HEAD", "--", *paths)


def verify(step: StepRecord, refresh: Refresh, sent: Sent) -> View:
    """Read the branch again, and tell the record what was done, what is held back and what is missing."""
    found, branch = refresh.found, refresh.pull_request.branch
    asked = found.asked
    step.warn(*branch.warnings, *found.warnings)
    if asked.source is not None:
        step.add_inputs(run=asked.source.name, base_commit=branch.base_commit, plan_from=branch.start)
        step.link("GitLab pipeline" if asked.source.gitlab else "CI run", asked.url)
        if asked.older:
            step.allowed("older-run", asked.older)
        step.table("golden values", found.frame())
        step.table("verdicts", summary.verdict_rows(refresh.whole))
        step.table("coverage", [vars(it) for it in found.coverage])
        step.table("missing", [vars(it) for it in found.collection.problems])
    step.check(*_checks(refresh, sent))
    step.diff(edits.diff(refresh.edits) if sum(len(edit.after) for edit in refresh.edits) < 100_000 else "")
    for one in refresh.stopped:
        if one.verdict == "held back":
            step.decide("accept", one.file, " ".join(reason.sentence for reason in one.reasons))
    _conclude(step, refresh, sent)
    return display.note("The checks are in the record below.")


def _checks(refresh: Refresh, sent: Sent) -> list[Check]:
    found, branch = refresh.found, refresh.pull_request.branch
    every, exact = "every golden file asked for is there", "the branch holds the run's values byte for byte"
    source = found.asked.source
    if source is None:
        return [Check(every, "skipped", f"{found.asked.idle}."), Check(exact, "skipped", "Nothing was collected.")]
    lacking = [f"{it.job}: {it.file or it.artifact} {it.sentence}".replace("  ", " ") for it in found.missing]
    told = f"{len(found.new)} files of {source.name}."
    if source.unusable and not found.asked.named:
        checks = [Check(every, "skipped", source.unusable)]
    else:
        checks = [Check.of(every, not lacking, f"{len(lacking)} lack. {' | '.join(lacking[:5])}" if lacking else told)]
    if not branch.bump.apply:
        return [*checks, Check(exact, "skipped", "This is a preview.")]
    now = branch.checkout.read([edit.path for edit in refresh.edits], branch.bump.branch)
    wrong = [edit.path for edit in refresh.edits if now[edit.path] != edit.after]
    told = f"{', '.join(wrong)} differs." if wrong else f"{display.count(len(now), 'file')} written."
    return [*checks, Check.of(exact, not wrong, told)]


def _conclude(step: StepRecord, refresh: Refresh, sent: Sent) -> None:
    found, bump = refresh.found, refresh.pull_request.bump
    asked, stopped = found.asked, refresh.stopped
    written = display.count(len(refresh.edits), "golden file")
    if bump.tag and (why := bump.repository.idle(step.name)):
        step.done(why)
    elif asked.source is None and (bump.tag is None or not bump.apply or not asked.idle.startswith("waiting")):
        step.done(f"Nothing to refresh: {asked.idle}.", asked.next)
    elif asked.source is None:
        step.waiting(asked.idle, asked.next)
    elif asked.source.unusable and not asked.named:
        step.waiting(f"waiting for a run with values: {asked.source.unusable}", notebooks.BROKEN_TESTS)
    elif not bump.apply:
        more = f", and hold back {len(stopped)}" if stopped else ""
        _would(step, refresh, written)
        step.done(f"Preview: would refresh {written}{more}.", command(step.name, bump, apply=True))
    elif stopped:
        names = ", ".join(one.file for one in stopped[:4]) + (" …" if len(stopped) > 4 else "")
        how = f'Accept by name, -r accept "{stopped[0].file}: reason; …", or mark the test broken with 06-broken-tests.'
        if sent.held:
            how = f"{how} {sent.next}"
        held = f"{display.count(len(stopped), 'golden file')} {'is' if len(stopped) == 1 else 'are'} held back"
        step.waiting(f"waiting for a person: {held} ({names})", how)
    elif sent.held:
        step.waiting(sent.held, sent.next)
    elif found.undecided:
        names = ", ".join(found.undecided[:6])
        step.waiting(
            f"waiting for a person: golden values do not explain why these failed: {names}", notebooks.BROKEN_TESTS
        )
    elif sent.commit:
        step.done(f"Refreshed {written}; {sent.commit[:10]} is pushed, and CI may test it.", notebooks.RUN_CI)
    else:
        told = f"Refreshed {written}." if refresh.edits else ""
        step.done(told or "Found done: the branch holds every golden value of this run.")


def _would(step: StepRecord, refresh: Refresh, written: str) -> None:
    if refresh.edits:
        step.would(f"refresh {written} in one commit on the branch {refresh.pull_request.bump.branch}")
    if refresh.found.asked.older or not (refresh.edits or push_round.waits(refresh.pull_request)):
        return
    if refresh.found.undecided:
        step.would(push_round.PUSH, publish=True)
    else:
        step.would("push that commit, and let CI test it" if refresh.edits else push_round.PUSH, publish=True)
