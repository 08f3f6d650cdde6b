"""The diagnosis of a failed CI job: from summaries of its logs to one failure, without secrets.  Pure.

If the evidence shows a known problem, it is reported beside the cause, and its fix is the next step.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import cache

from runbook_lib.failures import evidence, facts, known_problems
from runbook_lib.failures.failure import Clue, FailedJob, Failure
from runbook_lib.failures.log_summary import QUOTED, LogSummary, Traceback, without_secrets
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
    verdict = judge(job, logs, problem)
    text = "\n".join(verdict.evidence)
    details = dict(verdict.details)
    if problem and text:
        details["problem"] = problem
    next_step = (verdict.pattern and verdict.pattern.advice) or ADVICE[verdict.kind]
    if verdict.kind == "driver mismatch":
        platform = itertools.chain.from_iterable(log.platform for log in logs)
        details["driver"] = facts.driver_verdict("\n".join([text, *platform]))
    for pitfall in known_problems.find(text)[:1]:
        details["pitfall"] = f"{pitfall.sign} {pitfall.cause}"
        next_step = f"{next_step} Or: {pitfall.fix}" if verdict.kind in RERUN else pitfall.fix
    cause = " ".join(verdict.cause.split())
    if not cause.endswith((".", "!", "?", "…")):
        cause = f"{cause}."
    lines = tuple(hide(text).split("\n")[:QUOTED]) if verdict.evidence else ()
    return Failure(
        job.name, job.url, verdict.kind, hide(cause), lines, verdict.where, next_step,
        {name: hide(detail) for name, detail in details.items() if detail}, verdict.rank, verdict.confidence,
        *_clues(logs), verdict.tests,
    )  # fmt: skip


def _clues(logs: Sequence[LogSummary]) -> tuple[tuple[Clue, ...], tuple[Clue, ...]]:
    """Return the lines that explain the failure, the most decisive first, and the lines that only follow from it."""
    clues: dict[Clue, None] = {}
    consequences: dict[Clue, None] = {}
    possible = evidence.candidates(logs)
    for candidate in possible:
        entry = candidate.entry
        line = (isinstance(entry, Traceback) and entry.error_line) or entry.line
        clue = Clue(candidate.log.name, line, entry.text, candidate.rule)
        is_symptom = candidate.tier <= SYMPTOM and candidate.kind != possible[0].kind  # such as a watchdog's report
        (consequences if is_symptom else clues)[clue] = None
    for log in logs:
        for match in log.matches:
            if match.tier <= 0:
                consequences[Clue(log.name, match.line, match.text, match.pattern.id)] = None
    return tuple(clues)[:_MAX_CLUES], tuple(consequences)[:_MAX_CLUES]


def is_settled(job: FailedJob, logs: Sequence[LogSummary]) -> bool:
    """Return True if these logs prove the cause, so that no others need to be read.

    Python prints the exception that ends a process to standard error: once that of all ranks has been read, a root
    traceback at the end of one is the cause, and so is a failed comparison in the job's own log.  The names of failed
    tests are in the standard output.
    """
    if kind_of_job(job.name) == "unit":
        return any(log.failed_tests for log in logs)
    if evidence.golden_drift(logs) is not None:
        return True
    root = evidence.root_traceback(logs)
    return root is not None and root.log.rank is not None


def names_a_cause(job: FailedJob, logs: Sequence[LogSummary]) -> bool:
    """Return True if these logs show a cause, certain or not."""
    possible = evidence.candidates(logs)
    return is_settled(job, logs) or (bool(possible) and possible[0].confidence > CONFIDENT)
