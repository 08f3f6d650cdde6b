"""The diagnosis of a failed CI job: from summaries of its logs to one failure, without secrets.  Pure.

If the evidence shows a known problem, it is reported beside the cause, and its fix is the next step.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from runbook_lib.failures import evidence, facts, known_problems
from runbook_lib.failures.evidence import Candidate
from runbook_lib.failures.failure import Clue, FailedJob, Failure
from runbook_lib.failures.log_summary import QUOTED, LogSummary, without_secrets
from runbook_lib.failures.patterns import ADVICE, CONFIDENT, RERUN, SYMPTOM
from runbook_lib.failures.verdicts import judge, kind_of_job

_MAX_CLUES = 8


def conclude(
    job: FailedJob, logs: Sequence[LogSummary], hide: Callable[[str], str] = str, problem: str = ""
) -> Failure:
    """Return the one cause of a job's failure.

    ``logs`` are in the order of ranks, standard error before standard output, and the job's own log last.  ``hide``
    removes secrets from text.  ``problem`` is a sentence about unavailable logs.
    """
    hide = cache(hide)  # the ranks of a job print nearly the same lines
    logs = [without_secrets(log, hide) for log in logs]
    found = judge(job, logs, problem)
    details, advice = dict(found.details), found.next or ADVICE[found.kind]
    if problem and found.evidence:
        details["problem"] = problem
    text = "\n".join(found.evidence)
    if found.kind == "driver mismatch":
        platform = itertools.chain.from_iterable(log.platform for log in logs)
        details["driver"] = facts.driver_verdict("\n".join([text, *platform]))
    for pitfall in known_problems.find(text)[:1]:
        details["pitfall"] = f"{pitfall.sign} {pitfall.cause}"
        advice = f"{advice} Or: {pitfall.fix}" if found.kind in RERUN else pitfall.fix
    cause = " ".join(found.cause.split())
    if not cause.endswith((".", "!", "?", "…")):
        cause = f"{cause}."
    clues, consequences = _clues(logs)
    return replace(
        found, cause=hide(cause), evidence=without_secrets(found.evidence[:QUOTED], hide), next=advice, clues=clues,
        consequences=consequences, details={name: hide(detail) for name, detail in details.items() if detail},
    )  # fmt: skip


def _clues(logs: Sequence[LogSummary]) -> tuple[tuple[Clue, ...], tuple[Clue, ...]]:
    """Return the lines that explain the failure, the most decisive first, and the lines that only follow from it."""
    clues: dict[Clue, None] = {}
    consequences: dict[Clue, None] = {}
    possible = evidence.candidates(logs)
    for candidate in possible:  # the report of a watchdog is only a symptom
        is_symptom = candidate.tier <= SYMPTOM and candidate.finding.kind != possible[0].finding.kind
        (consequences if is_symptom else clues)[candidate.clue] = None
    lines = (Candidate(log, found, 0) for log in logs for found in log.findings if found.form == "line")
    consequences |= {line.clue: None for line in lines if line.finding.tier <= 0}
    return tuple(clues)[:_MAX_CLUES], tuple(consequences)[:_MAX_CLUES]


def is_settled(job: FailedJob, logs: Sequence[LogSummary]) -> bool:
    """Return True if these logs prove the cause, so that no others need to be read.

    Python prints the exception that ends a process to standard error: once that of all ranks has been read, a root
    traceback at the end of one is the cause, and so is a failed comparison in the job's own log.  The names of failed
    tests are in the standard output.
    """
    if kind_of_job(job.name) == "unit":
        return any(log.tests for log in logs)
    if evidence.golden_drift(logs) is not None:
        return True
    root = evidence.root_exception(logs)
    return root is not None and root.log.rank is not None


def names_a_cause(job: FailedJob, logs: Sequence[LogSummary]) -> bool:
    """Return True if these logs show a cause, certain or not."""
    possible = evidence.candidates(logs)
    return is_settled(job, logs) or (bool(possible) and possible[0].finding.confidence > CONFIDENT)
