"""What the records of a bump know about refreshes of golden values: runners, acceptances, attempts, and the image."""

import contextlib
import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runbook_lib.golden.acceptance import AcceptedGroup
from runbook_lib.golden.judge import Verdicts
from runbook_lib.golden.run_choice import ChosenRun
from runbook_lib.record import archive, run_file


def digest_of(text: str | None) -> str:
    """Return the digest by which a record names a golden file's contents."""
    return hashlib.sha256((text or "").encode("utf-8", "surrogateescape")).hexdigest()[:32]


@dataclass(frozen=True)
class RecordedRefreshes:
    """The refreshes in the archive: ``runners`` and reasons by (file, digest), and the groups.

    An acceptance of a file holds for exactly the contents with the digest, that of a group up to its shift.  What no
    record names is unknown.
    """

    runners: Mapping[tuple[str, str], str] = field(default_factory=dict)
    files: Mapping[tuple[str, str], str] = field(default_factory=dict)
    groups: tuple[AcceptedGroup, ...] = ()

    def runner(self, file: str, text: str | None) -> str:
        """Return the runners that measured a version of a file; empty if unknown."""
        return self.runners.get((file, digest_of(text)), "")

    def accepted(self, file: str, text: str | None) -> str:
        """Return the reason why exactly these contents were accepted; empty if they were not."""
        return self.files.get((file, digest_of(text)), "")


def evidence_of(
    texts: Mapping[str, str], runners: Mapping[str, str], accepted: Mapping[str, str], groups: Iterable[AcceptedGroup]
) -> dict[str, object]:
    """Return what the record of a refresh keeps: who measured each file, and what a person accepted."""
    rows: list[dict[str, object]] = []
    for file, text in texts.items():
        row: dict[str, object] = {"file": file, "values": digest_of(text), "runner": runners.get(file, "")}
        if file in accepted:
            row["accepted"] = accepted[file]
        rows.append(row)
    shifts = [{"group": each.name, "ratio": each.ratio, "accepted": each.reason} for each in groups]
    return {"files": rows, "groups": shifts}


def read_refreshes(records: Path | None) -> RecordedRefreshes:
    """Read the refreshes of a bump from its folder in the archive, and the runners of other bumps from theirs."""
    runners: dict[tuple[str, str], str] = {}
    files: dict[tuple[str, str], str] = {}
    groups: dict[str, AcceptedGroup] = {}
    for folder in sorted(records.parent.iterdir()) if records and records.is_dir() else ():
        if not folder.is_dir() or folder.is_symlink():
            continue
        for evidence in _refreshes(folder):
            for row in _rows(evidence, "files"):
                key = str(row.get("file")), str(row.get("values"))
                if row.get("runner"):
                    runners[key] = str(row["runner"])
                if folder == records and row.get("accepted"):
                    files[key] = str(row["accepted"])
            for row in _rows(evidence, "groups") if folder == records else ():
                name, ratio = str(row["group"]), row["ratio"]
                groups[name] = AcceptedGroup(name, str(row["accepted"]), None if ratio is None else float(ratio))
    return RecordedRefreshes(runners, files, tuple(groups.values()))


def _refreshes(folder: Path) -> Iterable[Mapping[str, Any]]:
    """Return the evidence of a bump's refreshes, oldest first."""
    for run in archive.read_records(folder).readable:
        entries = (run.get("inputs") or {}).get("planned_commits")
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and isinstance(entry.get("evidence"), dict):
                yield entry["evidence"]


def _rows(evidence: Mapping[str, Any], name: str) -> Iterable[Mapping[str, Any]]:
    rows = evidence.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def attempt_rows(verdicts: Verdicts, run: ChosenRun) -> list[dict[str, object]]:
    """Return the record's rows of ambiguous files, to be judged together with another attempt of the run."""
    rows: list[dict[str, object]] = []
    for judgement in verdicts.judgements:
        if judgement.verdict == "ambiguous":
            row = {"run": run.number, "attempt": run.attempt, "file": judgement.file}
            values = dict(judgement.measured) | {metric: loss.excess for metric, loss in judgement.losses.items()}
            rows += [row | {"metric": metric, "value": repr(value)} for metric, value in values.items()]
    return rows


def read_attempts(run: ChosenRun) -> dict[tuple[str, str], list[float]]:
    """Return the values from a run's earlier attempts for ambiguous files, from the bump's records."""
    records, values = run.pull_request.records, dict[tuple[str, str], dict[str, float]]()
    for table in sorted(records.glob("*/*attempts.csv")) if records else ():
        for row in run_file.rows(table):
            with contextlib.suppress(ValueError):
                value, attempt = float(row.get("value", "")), row.get("attempt", "")
                if row.get("run") == str(run.number) and attempt != str(run.attempt) and math.isfinite(value):
                    values.setdefault((row.get("file", ""), row.get("metric", "")), {})[attempt] = value
    return {key: list(by_attempt.values()) for key, by_attempt in values.items()}


def image_digest(records: Path | None) -> str:
    """Return the digest of the bump's image from the newest record that has it; empty if none does."""
    return next((str(inputs["digest"]) for inputs in archive.inputs_of(records) if inputs.get("digest")), "")
