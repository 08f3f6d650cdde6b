"""The diagnosis of a failed CI job: from summaries of its logs to one failure, without secrets.  Pure.

Causes are considered in this order, and the first that applies wins:
1. a job that did not fail, or whose logs are unavailable: unknown, with the reason;
2. the comparison with golden values failed in the last attempt, after the training had ended well: a *golden drift*; a
   *regression* if the numbers are not finite or far off, or the loss diverged; a *resume mismatch*, which no refresh
   can fix, if a resumed run was compared with its first run;
3. the candidate that explains most, as ranked by ``evidence`` with ``rules.toml``: a lost runner or a time limit,
   failed tests by name, causes, a traceback that ended its process, symptoms, generic lines; among equals the earliest;
4. the kind of the job, from its name: linting, container build, unit tests;
5. unknown, with the last lines and the evidence that would decide it.

If the evidence shows a known problem, it is reported beside the cause, and its fix is the next step.
"""

import itertools
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from runbook_lib.failures import evidence
from runbook_lib.failures.evidence import (
    QUOTED,
    Candidate,
    Clue,
    FailedJob,
    Failure,
    Finding,
    LogSummary,
    without_secrets,
)  # fmt: skip
from runbook_lib.failures.patterns import (
    ADVICE,
    BY_ID,
    CONFIDENT,
    RERUN,
    SYMPTOM,
    TRACEBACK,
    FailureKind,
    explain,
    find_problems,
)

_MAX_CLUES = 8
_MAX_CAUSE = 200
_MAX_TESTS = 20  # failed tests that a cause names
#: Classes that are less informative than the kind of the job.
_GENERIC = frozenset({"program error", "unknown", "shape", "regression", "unit tests"})
_OF_BUILDS = _GENERIC | {"dependency", "compile error"}
#: Classes of a failed test's error that describe the cause better than the test does.
_BENEATH_TESTS = frozenset({
    "out of memory", "driver mismatch", "disk full", "rate limit", "flaky infrastructure", "hang", "access denied",
})  # fmt: skip
#: Classes of the messages that other ranks print after one has died.
_OF_OTHERS = frozenset({"communication", "flaky infrastructure", "hang"})
_OWN_RANK = re.compile(r"^[^\n]{0,60}?\b[Rr]ank[ =:]{1,2}(\d{1,6})\b|local_rank: (\d{1,6})")
_SIGNAL = re.compile(r"exitcode ?: -(\d{1,2})\b|(?:code|status):? (1(?:29|[345]\d))\b")


def conclude(
    job: FailedJob, logs: Sequence[LogSummary], hide: Callable[[str], str] = str, problem: str = ""
) -> Failure:
    """Return the one cause of a job's failure.

    ``logs`` are in the order of ranks, standard error before standard output, and the job's own log last.  ``hide``
    removes secrets from text.  ``problem`` is a sentence about logs that are not among them.
    """
    hide = cache(hide)  # the ranks of a job print nearly the same lines
    logs = [without_secrets(log, hide) for log in logs]
    problem = " ".join(filter(None, dict.fromkeys([problem, *(log.problem for log in logs)])))
    found = _judge(job, logs, problem)
    details, advice = dict(found.details), found.next or ADVICE[found.kind]
    if problem and found.evidence:
        details["problem"] = problem
    text = "\n".join(found.evidence)
    if found.kind == "driver mismatch":
        platform = itertools.chain.from_iterable(log.platform for log in logs)
        details["driver"] = evidence.driver_verdict("\n".join([text, *platform]))
    for pitfall in find_problems(text)[:1]:
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
    if kind_of_job(job.name) == "unit tests":
        return any(log.tests for log in logs)
    if evidence.golden_drift(logs) is not None:
        return True
    root = evidence.root_exception(logs)
    return root is not None and root.log.rank is not None


def names_a_cause(logs: Sequence[LogSummary]) -> bool:
    """Return True if these logs show a cause, certain or not."""
    possible = evidence.candidates(logs)
    return bool(possible) and possible[0].finding.confidence > CONFIDENT


def kind_of_job(name: str) -> FailureKind:
    """Return the class that a job's name on GitHub or GitLab suggests; "unknown" for a functional test."""
    name = name.lower()
    if re.search(r"\blint|copyright|autoformat|codestyle", name):
        return "lint"
    if re.search(r"container[- _]build|build ci container|build_image|build-image", name):
        return "container build"
    return "unit tests" if re.match(r"tests/|unit[-_ ]?tests?\b|test:unit", name) else "unknown"


def _judge(job: FailedJob, logs: Sequence[LogSummary], problem: str) -> Failure:
    """Return class, cause and evidence; ``problem`` says why logs are unavailable."""
    if job.conclusion in ("success", "passed", "skipped", "neutral", "manual"):
        return _failure(job, "unknown", f"The job did not fail: it ended with {job.conclusion}")
    drift = evidence.golden_drift(logs)
    if drift is not None:
        return _of_drift(job, drift, logs)
    possible = evidence.candidates(logs)
    if not possible or possible[0].finding.confidence < CONFIDENT:
        return _without_evidence(job, logs, problem)
    best = possible[0]
    tests: dict[str, str] = {}
    for log in logs:
        for name, error in log.tests.items():
            tests.setdefault(name, error)
    if tests and (kind_of_job(job.name) == "unit tests" or best.finding.form == "test"):
        return _of_tests(job, tests, logs, possible)
    rank = evidence.unread_rank(logs)
    is_weak = best.finding.form == "line" or best.finding.consequence
    if is_weak and best.finding.kind in _OF_OTHERS and best.tier < TRACEBACK and rank is not None:
        cause = f"Rank {rank} failed first, with an exception, and its log is unavailable"
        return _failure(job, "unknown", cause, best, rank=rank, confidence=0.4)
    return _of_finding(job, best, logs)


def _failure(job: FailedJob, kind: FailureKind, cause: str, found: Candidate | None = None, **facts: Any) -> Failure:
    """Return a failure with the evidence that was found."""
    failure = Failure(job.name, job.url, kind, cause)
    if found:
        failure = replace(failure, evidence=found.finding.lines, where=found.clue, confidence=found.finding.confidence)
    return replace(failure, **facts)


def _of_drift(job: FailedJob, drift: Candidate, logs: Sequence[LogSummary]) -> Failure:
    text = drift.finding.message
    comparisons = list(itertools.chain.from_iterable(each.comparisons for each in logs))
    metrics = [comparison.metric for comparison in comparisons]
    listed = re.search(r"metrics failed: (.{1,500})", text)
    if listed:
        metrics = re.findall(r"[A-Za-z0-9][\w .-]*[\w]", listed[1]) or metrics
    names = ", ".join(dict.fromkeys(metrics))
    details = {"metrics": names, **evidence.worst_difference(comparisons), **evidence.losses(logs)}
    kind: FailureKind = "golden drift"
    cause = f"Golden values: {_first_line(text)}"
    wrong = evidence.wrong_numbers(comparisons, logs)
    if drift.log.resumed:
        kind = "resume mismatch"
        cause = f"After the resume from a checkpoint, {names or 'values'} differ from those of the first run"
    elif wrong:
        kind = "regression"
        cause = f"{wrong}, and {names or 'what was generated'} differs from the golden values"
    elif names:
        cause = f"The values of {names} differ from the golden values"
    return _failure(job, kind, cause, drift, details=details, confidence=0.9)


def _of_tests(
    job: FailedJob, tests: Mapping[str, str], logs: Sequence[LogSummary], possible: Sequence[Candidate]
) -> Failure:
    """Name the failed tests, with the exception of the first one as the evidence."""
    listed = [Candidate(log, found, 0) for log in logs for found in log.findings if found.form == "test"]
    root = next((candidate for candidate in possible if candidate.finding.is_exception), None)
    errors = [error for error in tests.values() if error]
    errors += [found.finding.text for found in possible if found.clue.rule == "tests-failed"]
    error = root.finding.text if root else "".join(errors[:1])
    pattern = root.finding.pattern if root else explain(error)
    named = tuple(tests)
    cause = (
        f"The test {named[0]} failed"
        if len(tests) == 1
        else f"{len(tests)} tests failed: {', '.join(named[:_MAX_TESTS])}"
    )
    if error:
        cause = f"{_first_line(cause)} {'with' if len(tests) == 1 else '— the first with'} {_first_line(error)}"
    beneath = _BENEATH_TESTS
    if not any("::" in name for name in tests):  # no test has started
        beneath = beneath | {"import error"}
    kind: FailureKind = "unit tests"
    is_unit = kind_of_job(job.name) == kind
    is_own = is_unit or error.startswith("assert ")  # a comparison that the test itself makes
    if pattern is not None and not is_own and pattern.kind in beneath and not pattern.by_words:
        kind = pattern.kind
    failure = _failure(job, kind, cause, root or listed[0], confidence=0.9, tests=named)
    return failure if root else replace(failure, evidence=tuple(found.finding.text for found in listed))


def _of_finding(job: FailedJob, best: Candidate, logs: Sequence[LogSummary]) -> Failure:
    """Return what a line or an exception explains, which may say more about a kind of jobs than about its class."""
    found, pattern = best.finding, best.finding.pattern
    rank, error = _rank_of(found, logs), _decisive(found)
    failed = f"{'A process' if rank is None else f'Rank {rank}'} failed with {error}"
    if pattern is not None and found.form == "line":
        failed = f"The log shows {pattern.finding}{_signal_name(found.text)}: {error}"
    if found.kind == "hang":
        return _hang(job, failed if found.form == "line" else error, logs, best)
    if found.form == "line" and found.kind == "program error":
        if job.timed_out:
            return _hang(job, "The job reached its time limit", logs, best)
        if any(log.not_finite for log in logs):
            cause = f"The loss is not finite, and the log shows {error}"
            return _failure(job, "regression", cause, best, details=evidence.losses(logs), rank=rank)
    kind = kind_of_job(job.name)
    generic = _OF_BUILDS if kind == "container build" else _GENERIC
    if kind != "unknown" and (found.kind in generic or (pattern is not None and pattern.by_words)):
        return _failure(job, kind, f"{job.name} failed with {error}", best, rank=rank)
    details = {}
    if found.kind == "out of memory":
        details["peak"] = evidence.peak_of(found.message)
    if pattern is not None and pattern.id == "loss-not-finite":
        details = evidence.losses(logs)
    advice = pattern.advice if pattern else ""
    return _failure(job, found.kind, failed, best, details=details, rank=rank, next=advice)


def _decisive(found: Finding) -> str:
    """Return the first line of an error, and the line of its message that the rule explains."""
    error, pattern = _first_line(found.text), found.pattern
    if pattern is not None and not pattern.regex.search(error):
        for line in found.message.splitlines()[1:]:
            if pattern.regex.search(line):
                return f"{error} {_first_line(line)}"
    return error


def _named_rank(found: Finding) -> int | None:
    """Return the rank that a rule extracts from a line."""
    match = found.pattern.regex.search(found.text) if found.pattern else None
    named = match.groupdict().get("rank") if match else None
    return int(named) if named else None


def _rank_of(found: Finding, logs: Sequence[LogSummary]) -> int | None:
    """Return the rank of a line: its text, its prefix, or the first to fail according to torchrun or srun."""
    named = _named_rank(found)
    if named is not None:
        return named
    if found.rank is not None:
        return found.rank
    first = evidence.first_failed_ranks(logs)
    if first:
        return first[0]
    match = _OWN_RANK.search(found.text)
    if match:
        return int(match[1] or match[2])
    if found.kind == "container start":
        return None
    rules = {found.pattern, BY_ID["process-failed"]}
    lines = (each for log in logs for each in log.findings if each.form == "line" and each.pattern in rules)
    return next((each.rank for each in lines if each.rank is not None), None)


def _hang(job: FailedJob, cause: str, logs: Sequence[LogSummary], found: Candidate | None = None) -> Failure:
    """Return a hang with the last progress, and the rank that stopped first or is named in the evidence."""
    stopped = _stopped_rank(logs)
    if stopped is None and found:
        stopped = _named_rank(found.finding)
    if stopped is not None:
        cause = f"Rank {stopped} stopped first or is silent. {cause}"
    lines = found.finding.lines if found else _tail(logs)
    if progress := max((log for log in logs if log.progress), key=lambda log: log.iteration or 0, default=None):
        cause = f"{cause}; its last iteration is {progress.iteration}"
        lines = (*lines[-(QUOTED - 1) :], progress.progress)
    return _failure(job, "hang", cause, found, evidence=lines, rank=stopped, confidence=0.9)


def _stopped_rank(logs: Sequence[LogSummary]) -> int | None:
    """Return the first rank to stop in a hang, from the watchdogs' sequence numbers or the ranks' progress.

    That rank is behind, or silent while the others report.  None if all are alike.
    """
    enqueued: dict[int, int] = {}
    reporters: dict[int, int] = {}
    trained: dict[int, int] = {}
    ranks: set[int] = set()
    for log in logs:
        enqueued.update(log.enqueued)
        reporters.update(log.reporters)
        if log.rank is not None:
            ranks.add(log.rank)
            if log.iteration is not None:
                trained[log.rank] = log.iteration
    silent = _silent(ranks, {*enqueued, *reporters})
    stopped = (_slowest(enqueued), _slowest(reporters), silent, _slowest(trained))
    return next((rank for rank in stopped if rank is not None), None)


def _silent(ranks: set[int], reporting: set[int]) -> int | None:
    """Return the first of a few ranks that report no time-out while all others do."""
    if len(reporting) < 2:
        return None
    expected = ranks | reporting | set(range(max(reporting) + 1))
    silent = sorted(expected - reporting)
    return silent[0] if silent and len(silent) < len(reporting) else None


def _slowest(steps_by_rank: Mapping[int, int]) -> int | None:
    """Return the lowest rank with the fewest steps; None if all have the same number."""
    if len(set(steps_by_rank.values())) < 2:
        return None
    return min(steps_by_rank, key=lambda rank: (steps_by_rank[rank], rank))


def _tail(logs: Sequence[LogSummary]) -> tuple[str, ...]:
    """Return the last lines of the last log that has any."""
    return next((log.tail for log in reversed(logs) if log.tail), ())


def _without_evidence(job: FailedJob, logs: Sequence[LogSummary], problem: str) -> Failure:
    """Judge a job with neither an exception nor a matching line."""
    lines, kind = _tail(logs), kind_of_job(job.name)
    if job.timed_out:
        return _hang(job, "The job reached its time limit", logs)
    if any(log.not_finite for log in logs):
        return _failure(job, "regression", "The loss is not finite", evidence=lines, details=evidence.losses(logs))
    if not lines:
        return _failure(job, kind, problem or "The job has no log, or it is empty", confidence=0.3)
    steps = f"; the step {', '.join(job.failed_steps)} failed" if job.failed_steps else ""
    if job.conclusion in ("cancelled", "canceled"):
        cause = f"The job was cancelled, and its log names no fault{steps}"
        return _failure(job, "cancelled", cause, evidence=lines)
    effect = next((found for log in logs for found in log.findings if found.form == "line"), None)
    shown = f": it shows only {_first_line(effect.text)}" if effect else ""
    details = {"would decide it": "The complete log of the job, and the logs of the other ranks or the failed step."}
    cause = f"The log names no cause{steps}{shown}"
    return _failure(job, kind, cause, evidence=lines, details=details, confidence=0.3)


def _first_line(text: str) -> str:
    """Return the first line without GitHub's ``##[error]``; a long one ends with a sentence, or else is cut."""
    line = text.strip().partition("\n")[0].removeprefix("##[error]")
    if len(line) <= _MAX_CAUSE:
        return line
    end = line.rfind(". ", 0, _MAX_CAUSE)
    return line[:end] if end > 0 else f"{line[:_MAX_CAUSE]}…"


def _signal_name(text: str) -> str:
    """Return the name of the signal for an exit status, in brackets."""
    match = _SIGNAL.search(text)
    number = int(match[1] or match[2]) if match else 0
    known = {number.value for number in signal.Signals}
    return f" ({signal.Signals(number % 128).name})" if number % 128 in known else ""
