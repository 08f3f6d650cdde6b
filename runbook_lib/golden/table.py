"""The golden files of a bump, at the commit where the branch diverged, on the branch and as a run measured them.

They are judged once: what the branch would have with the measured values, against what it diverged from.  So a file
that moves within tolerance several times is held back once all of its drift is not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from runbook_lib.decisions import Decision, digest
from runbook_lib.golden import acceptance
from runbook_lib.golden.acceptance import Decide
from runbook_lib.golden.form import STOPPED, Judgement, examine
from runbook_lib.golden.history import GoldenHistory
from runbook_lib.golden.judge import Attempts, Verdicts, judge_all
from runbook_lib.recipes.file_names import path_of
from runbook_lib.text.edits import Edit


@dataclass(frozen=True)
class GoldenTable:
    """Golden files by name: at the commit where the branch diverged (None: not there), on the branch, and measured.

    ``base`` and ``branch`` have every file that the run measured or the branch has changed.  ``configs`` are the
    configurations for comparing them.  ``lint``: the repository's lint refuses every NaN.
    """

    base: Mapping[str, str | None] = field(default_factory=dict)
    branch: Mapping[str, str | None] = field(default_factory=dict)
    measured: Mapping[str, str] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)
    lint: bool = False

    @property
    def current(self) -> Mapping[str, str | None]:
        """The files of the branch with the measured values."""
        return {**self.branch, **self.measured}

    def digest(self, file: str) -> str:
        """Return the digest of a file's old and new values, to which a decision is bound."""
        return digest(self.base.get(file), self.current.get(file))


@dataclass(frozen=True)
class JudgedTable:
    """The verdicts on what the branch would change with the measured values.

    ``decided`` are the decisions that were used, bound to these values, and ``unconfirmed`` the dangers, by name, of
    files and groups whose decisions do not confirm them.
    """

    table: GoldenTable
    verdicts: Verdicts = field(default_factory=Verdicts)
    decided: tuple[Decision, ...] = ()
    unconfirmed: Mapping[str, str] = field(default_factory=dict)

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The measured values that are written: neither held back nor waiting for a decision on a group."""
        table, unwritten = self.table, self.blocked | self._reformatted
        return tuple(
            Edit(path_of(name), table.branch[name], text)
            for name, text in table.measured.items()
            if text != table.branch[name] and name not in unwritten
        )

    @property
    def blocked(self) -> frozenset[str]:
        """The files that wait for a person or another run, by themselves or with their group."""
        return frozenset(file.file for file in self.stopped) | self.verdicts.waiting.keys()

    @property
    def stopped(self) -> tuple[Judgement, ...]:
        """The files that a person, or another run, must decide."""
        return tuple(file for file in self.verdicts.judgements if file.verdict in STOPPED)

    @property
    def _reformatted(self) -> frozenset[str]:
        """The files whose values nobody has changed."""
        unchanged = (file.file for file in self.verdicts.judgements if file.verdict == "unchanged")
        return frozenset(name for name in unchanged if self.table.branch[name] == self.table.base[name])


def judge(table: GoldenTable, history: GoldenHistory, attempts: Attempts, decide: Decide) -> JudgedTable:
    """Judge every file of the table, and apply a person's decisions."""
    examined = []
    for name, text in table.current.items():
        examined.append(examine(name, table.base[name], text, table.configs[name], lint=table.lint))
    verdicts = judge_all(examined, history, attempts)
    used: dict[str, Decision] = {}
    unconfirmed = {}
    for name, danger, values in acceptance.held_back(verdicts, table.digest):
        decision = decide(name, values)
        if decision and danger not in ("", decision.confirm):
            unconfirmed[name] = danger
        elif decision:
            used[name] = decision
    accepted = acceptance.accept(verdicts, {name: decision.reason for name, decision in used.items()})
    return JudgedTable(table, accepted, tuple(used.values()), unconfirmed)
