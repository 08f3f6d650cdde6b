"""The golden files of a bump in three versions, at the fork, on the branch and as a run measured them, judged once."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from runbook_lib.decisions import Decision, digest
from runbook_lib.golden import acceptance
from runbook_lib.golden.acceptance import Decide
from runbook_lib.golden.form import STOPPED, Judgement, examine
from runbook_lib.golden.history import GoldenHistory
from runbook_lib.golden.judge import Attempts, Verdicts, judge_all, without_times
from runbook_lib.golden.refreshes import RecordedRefreshes
from runbook_lib.recipes.file_names import path_of
from runbook_lib.text.edits import Edit


@dataclass(frozen=True)
class GoldenTable:
    """Golden files by name: at the commit where the branch diverged (None: not there), on the branch, and measured.

    ``base`` and ``branch`` have every file that the run measured or the branch has changed.  ``configs`` are the
    configurations for comparing them.  ``lint``: the repository's lint refuses every NaN.  ``runners`` measured the
    new values; ``recorded`` are the refreshes that this archive knows.
    """

    base: Mapping[str, str | None] = field(default_factory=dict)
    branch: Mapping[str, str | None] = field(default_factory=dict)
    measured: Mapping[str, str] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)
    lint: bool = False
    runners: Mapping[str, str] = field(default_factory=dict)
    recorded: RecordedRefreshes = field(default_factory=RecordedRefreshes)

    def digest(self, file: str) -> str:
        """Return the digest of a file's old and new values, to which a decision is bound."""
        return digest(self.branch.get(file), self.measured.get(file))

    def examine(self, old: Mapping[str, str | None], new: Mapping[str, str | None], *, lint: bool) -> list[Judgement]:
        """Examine new versions against old ones; times that different runners measured are not compared."""
        judgements = []
        for name, text in new.items():
            judgement = examine(name, old[name], text, self.configs[name], lint=lint)
            if self._measured_elsewhere(name, old[name], text):
                judgement = without_times(judgement)
            judgements.append(judgement)
        return judgements

    def _measured_elsewhere(self, name: str, old: str | None, new: str | None) -> bool:
        """Return whether two versions are known to come from different runners."""
        before = self.recorded.runner(name, old)
        after = self.runners.get(name, "") if new == self.measured.get(name) else self.recorded.runner(name, new)
        return bool(before and after) and set(before.split("; ")).isdisjoint(after.split("; "))


@dataclass(frozen=True)
class JudgedTable:
    """The verdicts on the measured values, and on everything that the branch changes: those with ``measured`` written.

    ``decided`` are the decisions that were used, bound to these values, and ``unconfirmed`` the dangers, by name, of
    files and groups whose decisions do not confirm them.
    """

    table: GoldenTable
    measured: Verdicts = field(default_factory=Verdicts)
    changed: Verdicts = field(default_factory=Verdicts)
    decided: tuple[Decision, ...] = ()
    unconfirmed: Mapping[str, str] = field(default_factory=dict)

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The measured values that are written: neither held back nor waiting for a decision on a group."""
        waiting = self.measured.waiting
        return tuple(
            Edit(path_of(file.file), self.table.branch[file.file], self.table.measured[file.file])
            for file in self.measured.judgements
            if file.verdict == "refresh" and file.file not in waiting
        )

    @property
    def stopped(self) -> tuple[Judgement, ...]:
        """The files of ``changed`` that are held back or refused."""
        return tuple(file for file in self.changed.judgements if file.verdict in STOPPED)


def judge(
    table: GoldenTable, history: GoldenHistory, attempts: Attempts, decide: Decide = acceptance.no_decision
) -> JudgedTable:
    """Judge every file of the table against the branch, and by its accumulated drift since the fork.

    A file that is refreshed within tolerance several times is held back once its drift since the fork is not.
    """
    verdicts = judge_all(table.examine(table.branch, table.measured, lint=table.lint), history, attempts)
    moved = {name for name, text in table.base.items() if text != table.branch[name]}
    total = verdicts
    if moved:
        unchanged = {file.file for file in verdicts.judgements if file.verdict == "unchanged"}
        current = {**table.branch, **{name: text for name, text in table.measured.items() if name not in unchanged}}
        pooled = {key: values for key, values in attempts.items() if key[0] not in moved}  # same old values
        total = judge_all(table.examine(table.base, current, lint=table.lint), history, pooled)
        verdicts = _stop_drifted(verdicts, total, table, moved)
    used: dict[str, Decision] = {}
    unconfirmed = {}
    for name, danger, values in acceptance.held_back(verdicts, table.digest):
        if (decision := decide(name, values)) and decision.confirm == danger:
            used[name] = decision
        elif decision and danger:
            unconfirmed[name] = danger
        elif decision:  # it confirms a danger that is not there
            used[name] = decision
    reasons = {name: decision.reason for name, decision in used.items()}
    groups = acceptance.accepted_groups(table.recorded.groups, verdicts)
    decided = acceptance.accept(verdicts, reasons, groups | reasons)
    return JudgedTable(table, decided, _since_fork(total, decided, table), tuple(used.values()), unconfirmed)


def _stop_drifted(verdicts: Verdicts, total: Verdicts, table: GoldenTable, moved: Collection[str]) -> Verdicts:
    """Hold back the files whose accumulated drift is too large."""
    totals = {file.file: file for file in total.judgements}
    judgements = []
    for file in verdicts.judgements:
        accumulated = totals[file.file]
        if file.verdict == "refresh" and file.file in moved and table.base[file.file] is not None:
            if accumulated.verdict == "ambiguous":  # attempts cannot decide accumulated drift
                accumulated = replace(accumulated, verdict="held back")
            if accumulated.verdict == "held back":
                file = accumulated
        judgements.append(file)
    groups = {group.id: group for group in (*total.groups, *verdicts.groups)}
    return replace(verdicts, judgements=tuple(judgements), groups=tuple(groups.values()))


def _since_fork(total: Verdicts, decided: Verdicts, table: GoldenTable) -> Verdicts:
    """Return the verdicts since the fork, or those on the run if it stops a file or leaves it to a group.

    What this run or an earlier refresh accepted stays accepted.
    """
    recorded = table.recorded
    files = {name: reason for name, text in table.branch.items() if (reason := recorded.accepted(name, text))}
    files |= {file.file: file.accepted for file in decided.judgements if file.accepted}
    applied = acceptance.accept(total, files, acceptance.accepted_groups(recorded.groups, total))
    own = {file.file: file for file in decided.judgements if file.verdict in STOPPED or file.file in decided.waiting}
    every = (own.get(file.file, file) for file in applied.judgements)
    judgements = tuple(file for file in every if file.verdict != "unchanged" or file.renamed)
    groups = {group.id: group for group in (*applied.groups, *decided.groups)}
    return replace(applied, judgements=judgements, groups=tuple(groups.values()))
