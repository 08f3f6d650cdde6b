"""The golden files of a bump, at the commit where the branch diverged, on the branch and as a run measured them.

They are judged once: what the branch would have with the measured values, against what it diverged from.  So a file
that moves within tolerance several times is held back once all of its drift is not.  A person may accept what is held
back, by a decision on exactly these values.
"""

import difflib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from runbook_lib.decisions import Decision, Decisions, Seen, digest
from runbook_lib.errors import Refused
from runbook_lib.golden.form import examine
from runbook_lib.golden.history import GoldenHistory
from runbook_lib.golden.judge import NO_HISTORY, Verdicts, judge_all
from runbook_lib.text.edits import Edit
from runbook_lib.text.recipes.file_names import has_values, path_of

#: The verdicts that a person may overrule.
_ACCEPTABLE = ("held back", "ambiguous")


@dataclass(frozen=True)
class GoldenTable:
    """Golden files by name: at the commit where the branch diverged (None: not there), on the branch, and measured.

    ``base`` and ``branch`` have every file that the run measured or the branch has changed.  ``configs`` are the
    configurations for comparing them.  ``lint``: the repository's lint refuses every NaN.
    """

    base: Mapping[str, str | None]
    branch: Mapping[str, str | None]
    measured: Mapping[str, str]
    configs: Mapping[str, str | None]
    lint: bool

    @property
    def current(self) -> Mapping[str, str | None]:
        """The files of the branch with the measured values."""
        return {**self.branch, **self.measured}

    def digest(self, file: str) -> str:
        """Return the digest of a file's old and new values, to which a decision is bound."""
        return digest(self.base.get(file), self.current.get(file))

    def judge(self, history: GoldenHistory = NO_HISTORY, attempt: int = 1) -> Verdicts:
        """Judge every file of the table."""
        examined = (
            examine(name, self.base[name], text, self.configs.get(name), lint=self.lint)
            for name, text in self.current.items()
        )
        return judge_all(examined, history, attempt=attempt)

    def edits(self, verdicts: Verdicts) -> tuple[Edit, ...]:
        """Return the measured values that are written: neither held back nor waiting for a decision on a group.

        Files whose values nobody has changed are not written either.
        """
        unwritten = set(verdicts.blocked)
        for file in verdicts.judgements:
            if file.verdict == "unchanged" and self.branch[file.file] == self.base[file.file]:
                unwritten.add(file.file)
        return tuple(
            Edit(path_of(name), self.branch[name], text)
            for name, text in self.measured.items()
            if text != self.branch[name] and name not in unwritten
        )


def held_back(verdicts: Verdicts, table: GoldenTable) -> Iterator[tuple[str, str, str]]:
    """Yield each group and file that a person may accept: its name, its danger, and the digest of its values."""
    for group in verdicts.groups:
        if not group.accepted:
            yield group.id, verdicts.danger(group), group.digest
    for file in verdicts.judgements:
        if file.verdict in _ACCEPTABLE:
            yield file.file, file.danger, table.digest(file.file)


def decide(verdicts: Verdicts, table: GoldenTable, decisions: Decisions, run: int = 0, attempt: int = 0) -> Verdicts:
    """Apply a person's decisions to what is held back."""
    used: dict[str, Decision] = {}
    unconfirmed = {}
    for name, danger, values in held_back(verdicts, table):
        decision = decisions.decided("accept", name, Seen(values, run, attempt))
        if decision and danger not in ("", decision.confirm):
            unconfirmed[name] = danger
        elif decision:
            used[name] = decision
    judgements, groups = list(verdicts.judgements), list(verdicts.groups)
    for at, file in enumerate(judgements):
        if file.file in used:
            judgements[at] = replace(file, verdict="refresh", accepted=used[file.file].reason)
    for at, group in enumerate(groups):
        if group.id in used:
            groups[at] = replace(group, accepted=used[group.id].reason)
    decided = tuple(used.values())
    return replace(
        verdicts, judgements=tuple(judgements), groups=tuple(groups), decided=decided, unconfirmed=unconfirmed
    )


def require_met(decisions: Decisions, verdicts: Verdicts) -> None:
    """Raise Refused for an entry written by hand that names a refused file, or a group that is not held back."""
    groups = [group.id for group in verdicts.groups]
    refused = {file.file: file.sentence for file in verdicts.judgements if file.verdict == "refused"}
    for entry in decisions.of("accept"):
        if entry.seen is None and entry.subject in refused:
            raise Refused(f"{entry.subject} cannot be accepted: {refused[entry.subject]}.")
        if entry.seen is None and not entry.subject.endswith(".json") and entry.subject not in groups:
            hint = f"Held back: {', '.join(groups)}." if groups else "No group is held back."
            raise Refused(f"Line {entry.line} of {decisions.file} accepts {entry.subject}, which is no group. {hint}")


def require_known(decisions: Decisions, known: Collection[str]) -> None:
    """Raise Refused for an entry written by hand that names no file in the folder of a test with golden files."""
    tests = {name.rpartition("/")[0] for name in known}
    for entry in decisions.of("accept"):
        if entry.seen is not None or not entry.subject.endswith(".json"):
            continue  # groups are known only from the values of a run
        if entry.subject.rpartition("/")[0] not in tests or not has_values(path_of(entry.subject)):
            near = difflib.get_close_matches(entry.subject, known, n=1, cutoff=0.5)
            hint = f" Did you mean {near[0]}?" if near else ""
            place = f"Line {entry.line} of {decisions.file} accepts {entry.subject!r}"
            raise Refused(f"{place}, which is not a golden file of a test.{hint} Nothing was changed.")
