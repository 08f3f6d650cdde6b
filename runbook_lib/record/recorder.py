"""A notebook's contributions to the record of its run.

`notebook.begin` opens the record of a run.  In JupyterLab there is no record: *Apply* starts a headless run.
"""

import csv
import hashlib
import io
import itertools
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runbook_lib.checks import Check, Evidence, Next
from runbook_lib.errors import RunbookError
from runbook_lib.model import Outcome
from runbook_lib.notebooks import BUMP
from runbook_lib.record.journal import collect, failed_checks, file_prefix, fingerprint
from runbook_lib.record.run_file import JOURNAL
from runbook_lib.text.redact import Redactor
from runbook_lib.world import commands
from runbook_lib.world.machine.clock import now, stamp
from runbook_lib.world.machine.files import cannot_write, write

if TYPE_CHECKING:
    from runbook_lib.display import View
    from runbook_lib.pins.bump import Bump


class Recorder:
    """The record of one run, written by its notebook: each contribution immediately, and without secrets."""

    def __init__(
        self, name: str, bump: "Bump", repository: str, folder: Path | None, records: Path | None = None
    ) -> None:
        self.name, self.bump = name, bump
        #: The record's folder; None in JupyterLab.
        self.folder = folder
        #: The bump's folder in the archive, with the records of all its runs.
        self.records = folder.parent if folder else records
        #: True once the step has reported that it waits.
        self.waits = False
        #: The sentence that the step has ended with so far.
        self.outcome = ""
        self._previews: list[str] = []
        self._planned_commits: list[dict[str, object]] = []
        #: The step's name and round; empty before the first one.
        self._step: tuple[str, int] = ("", 1)
        self._redactor = Redactor(os.environ)
        self._checks: list[Check] = []
        self._lines: list[str] = []
        self._warned: set[str] = set()
        self.add("begin", step=name, mode=bump.mode, repository=repository)

    @property
    def is_bump(self) -> bool:
        """True for a run of all steps of a bump."""
        return self.name == BUMP

    @property
    def _prefix(self) -> str:
        return file_prefix(*self._step) if self.is_bump else ""

    @property
    def current_step(self) -> str:
        """The name of the step that has begun; before the first one that of the notebook."""
        return self._step[0] or self.name

    @property
    def steps(self) -> Sequence[Mapping[str, Any]]:
        """The steps so far, as the record has them."""
        steps: list[Mapping[str, Any]] = collect(self._lines).fields["steps"]
        return steps

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the plan so far."""
        return fingerprint(collect(self._lines).fields)

    def begin_step(self, name: str, round: int = 1) -> None:
        """Begin a step of the run, unless it is the current one: what follows belongs to it."""
        if (name, round) != self._step:
            self._step = (name, round)
            self.waits, self.outcome, self._previews, self._checks = False, "", [], []
            self.add("step", name=name, round=round)

    def planned_commit(self, parent: str, changes: str, kind: str) -> None:
        """Announce a commit before creating it: on ``parent``, with changes that have this fingerprint."""
        self._planned_commits.append({"parent": parent, "changes": changes, "kind": kind})
        self.add("given", values={"planned_commits": self._planned_commits})

    def effect(self, kind: str, target: str, before: object, after: object, url: str = "") -> None:
        """Add a completed change; ``kind`` is edit, branch, commit, push, pull request, label, comment or issue."""
        self.add("effect", effect=kind, target=target, before=before, after=after, url=url)

    def check(self, *checks: Check) -> None:
        """Add conditions that were verified by reading the actual state again."""
        for check in checks:
            self._checks.append(check)
            self.add("check", name=check.name, status=check.status, detail=check.detail)
            self.keep(check.evidence)

    def keep(self, evidence: Evidence) -> None:
        """Add everything that a plan or a check wants kept; tables and texts become files of the record."""
        self.warn(*evidence.warnings)
        if evidence.inputs:
            self.add("given", values=evidence.inputs)
        for name, url in evidence.links.items():
            self.add("link", name=name, url=url or "")
        for name, rows in evidence.tables.items():
            slug = re.sub(r"[^A-Za-z0-9._-]+", "-", self._redactor.text(name)).strip("-.")[:80] or "table"
            self.store(f"{slug}.csv", _csv(rows))
        if evidence.diff:
            self.add("diff", digest=hashlib.sha256(evidence.diff.encode("utf-8", "replace")).hexdigest())
            self.store("change.diff", evidence.diff)
        for name, text in evidence.files.items() if self.folder else ():
            self.store(name, text if isinstance(text, str) else text())
        for each in evidence.decided:
            name = each.subject if each.kind == "allow" else f"{each.kind} {each.subject}"
            at = {"at": each.at} if each.at else {}
            self.add("exception", exception=name, reason=each.reason, danger=each.confirm, by=each.by, **at)

    def warn(self, *sentences: str) -> None:
        """Add warnings: things a person should know although nothing failed."""
        for sentence in sentences:
            if sentence not in self._warned:  # by an earlier step of the bump
                self._warned.add(sentence)
                self.add("warning", sentence=sentence)

    def would(self, sentence: str, *, publish: bool = False) -> None:
        """Add an action of apply to a preview's plan, such as ``change 2 lines in 1 file``.

        ``publish`` marks actions that leave the machine, and are taken only in that mode.
        """
        self.add("planned", sentence=sentence, publish=publish)

    def decide(
        self, question: str, subject: str, why: str, suggestion: str = "", facts: Mapping[str, object] | None = None
    ) -> None:
        """Add a decision of this kind that only a person can make.  ``facts`` are shown on its card (``cards``)."""
        facts = dict(facts or {})
        if plot := facts.get("plot"):
            facts["plot"] = f"{self._prefix}{plot}"
        shown = {"facts": facts} if facts else {}
        self.add("decision", question=question, subject=subject, why=why, suggestion=suggestion, **shown)

    def waiting(self, outcome: Outcome) -> None:
        """Report that the step is waiting: what for, and what continues it."""
        self.waits = True
        self._end("waiting", outcome.sentence, outcome.next, for_ci=outcome.for_ci)

    def preview(self, sentence: str, next: Next) -> None:
        """Report what a step would do, or for what it would wait, after those before it in the same run."""
        self._previews.append(sentence)
        self.done(f"Preview: {'; '.join(self._previews)}.", next)

    def done(self, sentence: str, next: Next | None = None) -> None:
        """Report a completed run: the work that was done now, was done before, or would be done."""
        self.outcome = sentence
        self._end("done", sentence, next or Next())

    def _end(self, kind: str, sentence: str, next: Next, **more: object) -> None:
        self.add(kind, sentence=sentence, next=commands.resolve(next, self.name, self.bump).as_json(), **more)

    def show(self) -> "View":
        """Return a view of the checks, the warnings, the outcome and the next step."""
        from runbook_lib import display

        fields = collect(self._lines).fields
        outcome = fields["outcome"]
        view = display.View("", "")
        if self._checks:
            view += display.checks([Check(c["name"], c["status"], c["detail"]) for c in fields["checks"]])
        view += display.notes(fields["warnings"], title="Warnings")
        view += display.note(outcome["sentence"] or "Nothing was done.")
        if following := commands.text(Next.from_json(outcome["next"])):
            view += display.note(f"Next: {following}")
        place = f"Record: {self.folder}" if self.folder else "This preview in JupyterLab leaves no record."
        return view + display.note(place)

    def raise_if_failed(self) -> None:
        """Raise a RunbookError that names the failed checks, if any."""
        failed = [check for check in self._checks if check.status == "failed"]
        if not failed:
            return
        sentence = failed_checks(f"{check.name} ({check.detail.rstrip('.')})" for check in failed)
        raise RunbookError(self._redactor.text(sentence))

    def add(self, kind: str, **fields: object) -> None:
        """Add a contribution of a kind that ``journal`` knows, such as ``failure`` with its sentence."""
        entry = json.dumps({"kind": kind, "at": stamp(now()), **fields}, default=_as_json)
        line = json.dumps(self._redactor.data(json.loads(entry)))
        self._lines.append(line)
        if self.folder is not None:
            file = self.folder / JOURNAL
            try:
                with open(file, "a", encoding="ascii") as out:
                    out.write(line + "\n")
            except OSError as error:
                raise cannot_write(file, error) from error

    def store(self, name: str, text: str, *, of_step: bool = True) -> None:
        """Store a text in the record, without secrets; in a bump the name of a step's file begins with the step's."""
        if self.folder is not None:
            prefix = self._prefix if of_step else ""
            write(self.folder / f"{prefix}{name}", self._redactor.text(text))


def _as_json(item: object) -> object:
    """Return a value that JSON does not have in another form: a set as a sorted list, other types as text."""
    return sorted(map(str, item)) if isinstance(item, set | frozenset) else str(item)


def _csv(rows: Iterable[Mapping[str, object]]) -> str:
    listed = list(rows)
    out = io.StringIO()
    names = dict.fromkeys(itertools.chain.from_iterable(listed))
    writer = csv.DictWriter(out, fieldnames=list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(listed)
    return out.getvalue()
