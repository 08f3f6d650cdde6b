"""The record of one run, kept by its notebook in run.json while it runs.

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
from dataclasses import asdict
from pathlib import Path
from typing import Any

from runbook_lib import display
from runbook_lib.errors import RunbookError
from runbook_lib.model import Check, Effect, Evidence, Next, Outcome, Question
from runbook_lib.notebooks import BUMP
from runbook_lib.pins.bump import Bump
from runbook_lib.record import report, run_file
from runbook_lib.record.run_file import State
from runbook_lib.text.redact import Redactor
from runbook_lib.world import commands
from runbook_lib.world.machine.clock import now, stamp
from runbook_lib.world.machine.files import write


class Recorder:
    """The record of one run, without secrets.

    It is on the disk before anything is changed, after each change, and when a step begins or ends.
    """

    def __init__(
        self, name: str, bump: Bump, folder: Path | None = None, run: Mapping[str, Any] | None = None,
        records: Path | None = None,
    ) -> None:  # fmt: skip
        self.name, self.bump = name, bump
        #: The record's folder; None in JupyterLab.
        self.folder = folder
        #: The bump's folder in the archive, with the records of all its runs.
        self.records = folder.parent if folder else records
        #: What run.json has.
        self.run: dict[str, Any] = {**(run or run_file.empty_run()), "mode": bump.mode}
        self._previews: list[str] = []
        self._redactor = Redactor(os.environ)
        if self.is_bump:
            self.save()
        else:
            self.begin_step(name)

    @property
    def is_bump(self) -> bool:
        """True for a run of all steps of a bump."""
        return self.name == BUMP

    @property
    def steps(self) -> Sequence[dict[str, Any]]:
        """The steps so far, as the record has them."""
        steps: list[dict[str, Any]] = self.run["steps"]
        return steps

    @property
    def step(self) -> dict[str, Any]:
        """The step that has begun; before the first one the run."""
        return self.steps[-1] if self.steps else self.run

    def begin_step(self, name: str, round: int = 1) -> None:
        """Begin a step of the run, unless it is the current one: what follows belongs to it."""
        if (name, round) != (self.step.get("name"), self.step.get("round")):
            self._finish_step()
            self._previews = []
            self.run["steps"].append({"name": name, "round": round, "state": "running", **run_file.empty_step()})
            self.save()

    def _finish_step(self) -> None:
        """Give the last step its state: one that has told no end is done, one of which a check failed has failed."""
        for step in self.steps[-1:]:
            failed = [check["name"] for check in step["checks"] if check["status"] == "failed"]
            if failed and step["state"] != "failed":
                self.conclude("failed", Outcome(_failed_checks(failed), Next(**step["outcome"]["next"])))
            elif step["state"] in ("running", "done"):
                is_preview = self.run["mode"] == "preview" and not step["effects"]
                step["state"] = "previewed" if is_preview else "done"

    def planned_commit(self, parent: str, tree: str, kind: str) -> None:
        """Announce a commit before creating it: of a tree on ``parent``, both by their IDs."""
        planned = [*self.run["inputs"].get("planned_commits", ()), {"parent": parent, "tree": tree, "kind": kind}]
        self.keep(Evidence({"planned_commits": planned}))

    def effect(self, effect: Effect) -> None:
        """Add a completed change."""
        self._add("effects", {**vars(effect), "at": stamp(now())})
        self.save()

    def check(self, *checks: Check) -> None:
        """Add conditions that were verified by reading the actual state again."""
        for check in checks:
            self._add("checks", {"name": check.name, "status": check.status, "detail": check.detail})
            self.keep(check.evidence)

    def keep(self, evidence: Evidence) -> None:
        """Add everything that a plan or a check wants kept; tables and texts become files of the record."""
        self.warn(*evidence.warnings)
        self.run["inputs"] |= self._safe(evidence.inputs)
        for part in self._parts:
            links = part["links"] | self._safe(evidence.links)
            part["links"] = {name: url for name, url in links.items() if url}
        for name, rows in evidence.tables.items():
            slug = re.sub(r"[^A-Za-z0-9._-]+", "-", self._redactor.text(name)).strip("-.")[:80] or "table"
            self.store(f"{slug}.csv", _csv(rows))
        if evidence.diff:
            self._add("diffs", hashlib.sha256(evidence.diff.encode("utf-8", "replace")).hexdigest())
            self.store("change.diff", evidence.diff)
        for name, text in evidence.files.items() if self.folder else ():
            self.store(name, text if isinstance(text, str) else text())
        for decision in evidence.decided:
            self._add("exceptions", asdict(decision))
        if evidence != Evidence():
            self.save()

    def warn(self, *sentences: str) -> None:
        """Add warnings: things a person should know although nothing failed."""
        for sentence in sentences:
            self._add("warnings", sentence)

    def would(self, sentence: str, *, publish: bool = False) -> None:
        """Add an action of apply to a preview's plan, such as ``change 2 lines in 1 file``.

        ``publish`` marks actions that leave the machine, and are taken only in that mode.
        """
        self._add("planned", {"sentence": sentence, "publish": publish})

    def decide(self, question: Question) -> None:
        """Add a decision that only a person can make.  Its facts are shown on its card (``cards``)."""
        facts = dict(question.facts)
        if plot := facts.get("plot"):
            facts["plot"] = f"{self._prefix}{plot}"
        self._add("decisions", {**vars(question), "facts": facts})

    def condition(self, condition: Mapping[str, object]) -> None:
        """Add a condition of a plan, with what became of it."""
        self._add("conditions", condition)

    def preview(self, sentence: str, next: Next) -> None:
        """End the step with what it would do, or for what it would wait, after those before it in the same run."""
        self._previews.append(sentence)
        self.conclude("done", Outcome(f"Preview: {'; '.join(self._previews)}.", next))

    def conclude(self, state: State, outcome: Outcome) -> None:
        """End the step in this state, and give the run this outcome: of several, that of the first step that failed."""
        following = commands.resolve(outcome.next, self.name, self.bump).as_json()
        for_ci = {"for_ci": True} if outcome.for_ci else {}
        told = self._safe({"sentence": outcome.sentence, "next": following, **for_ci})
        self.step.update(state=state, outcome=told)
        if not any(step["state"] == "failed" for step in self.steps[:-1]):
            self.run["outcome"] = told
        self.save()

    def end(self, failure: Mapping[str, Any] | None = None) -> None:
        """Give the run its state, and the failure of a cell that ended it."""
        self._finish_step()
        states = [step["state"] for step in self.steps]
        self.run["state"] = "failed" if "failed" in states else states[-1] if states else "done"
        if failure:
            self.run["error"] = self._safe(failure)
            self.run["state"] = "interrupted" if failure["name"] == "KeyboardInterrupt" else "failed"
            outcome = {"sentence": self.run["error"]["sentence"], "next": Next().as_json()}
            for part in (self.run, *(step for step in self.steps[-1:] if step["state"] != "not run")):
                part.update(state=self.run["state"], outcome=outcome)
        self.save()

    def show(self) -> display.View:
        """Return a view of the checks of the step, the outcome, the next step, warnings and links."""
        place = f"Record: {self.folder}" if self.folder else "This preview in JupyterLab leaves no record."
        view, checks = report.outcome(self.run, place), self.step["checks"]
        rows = [{"check": it["name"], "outcome": display.MARKS[it["status"]], "found": it["detail"]} for it in checks]
        return display.table(rows) + view if rows else view

    def raise_if_failed(self) -> None:
        """Raise a RunbookError that names the failed checks of the step, if any."""
        failed = [check for check in self.step["checks"] if check["status"] == "failed"]
        if failed:
            raise RunbookError(_failed_checks(f"{check['name']} ({check['detail'].rstrip('.')})" for check in failed))

    @property
    def _parts(self) -> Sequence[dict[str, Any]]:
        """The run, and the step that has begun."""
        return (self.run, *self.steps[-1:])

    @property
    def _prefix(self) -> str:
        """The beginning of the names of the files that the step of a bump adds to the record."""
        if not (self.is_bump and self.steps):
            return ""
        name, round = self.step["name"], self.step["round"]
        return f"{name}.{round}." if round > 1 else f"{name}."

    def _add(self, field: str, entry: object) -> None:
        """Add an entry to the run and its step, unless they have it: several steps notice or plan the same."""
        safe = self._safe(entry)
        for part in self._parts:
            if field in part and safe not in part[field]:
                part[field].append(safe)

    def _safe(self, entry: Any) -> Any:
        """Return what JSON has of an entry, without secrets."""
        return self._redactor.data(json.loads(json.dumps(entry, default=_as_json)))

    def save(self) -> None:
        """Write run.json.  Raises RunbookError."""
        self.run["ended"] = stamp(now())
        if self.folder is not None:
            write(self.folder / run_file.RUN, run_file.to_bytes(self.run))

    def store(self, name: str, text: str, *, of_step: bool = True) -> None:
        """Store a text in the record, without secrets; in a bump the name of a step's file begins with the step's."""
        if self.folder is not None:
            prefix = self._prefix if of_step else ""
            write(self.folder / f"{prefix}{name}", self._redactor.text(text))


def _as_json(item: object) -> object:
    """Return a value that JSON does not have in another form: a set as a sorted list, other types as text."""
    return sorted(map(str, item)) if isinstance(item, set | frozenset) else str(item)


def _failed_checks(names: Iterable[str]) -> str:
    """Return a sentence that names the failed checks."""
    listed = list(names)
    noun = "This check" if len(listed) == 1 else f"These {len(listed)} checks"
    return f"{noun} failed: {'; '.join(listed)}."


def _csv(rows: Iterable[Mapping[str, object]]) -> str:
    listed = list(rows)
    out = io.StringIO()
    names = dict.fromkeys(itertools.chain.from_iterable(listed))
    writer = csv.DictWriter(out, fieldnames=list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(listed)
    return out.getvalue()
