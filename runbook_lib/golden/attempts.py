"""The values of a run's attempts, kept in the records of the bump: another attempt decides ambiguous files."""

import contextlib
import math

from runbook_lib.golden.judge import Verdicts
from runbook_lib.golden.run_choice import ChosenRun
from runbook_lib.record import run_file


def attempt_rows(verdicts: Verdicts, run: ChosenRun) -> list[dict[str, object]]:
    """Return the record's rows of ambiguous files, to be judged together with another attempt of the run."""
    rows: list[dict[str, object]] = []
    for judgement in verdicts.judgements:
        if judgement.verdict == "ambiguous":
            row = {"run": run.number, "attempt": run.attempt, "file": judgement.file}
            values = dict(judgement.costs) | {metric: loss.excess for metric, loss in judgement.losses.items()}
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
