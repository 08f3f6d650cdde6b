"""The diagnosis of a failed CI job: from the summaries of its logs to one cause.  Pure.

The order in which causes are believed, the first that applies:
1. a job that did not fail, or whose logs are unavailable: unknown, with the reason;
2. the comparison with golden values failed in the last attempt: the training had ended well by then.  It is a *golden
   drift*, or a *regression* where the numbers are not finite, the loss diverged, or they are far off; where a resumed
   run was compared with its first run, a *resume mismatch*, which no refresh can fix;
3. failed tests of a unit-test bucket, by name;
4. the root traceback: see ``evidence.root_traceback``.  Its error decides the class; an error that no pattern knows is
   *unknown*, with the traceback;
5. a telling line without a traceback, in the order of ``rules.toml``: errors, faults that end a process, a hang,
   faults that a program may survive;
6. the kind of the job, by its name: linting, container build, unit tests;
7. unknown, with the last lines.

A known problem that the evidence shows is named beside the cause, and its fix is the next step.
"""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from runbook_lib.triage import evidence, facts, known_problems
from runbook_lib.triage.log_summary import QUOTED, LineMatch, LogSummary, Traceback, without_secrets
from runbook_lib.triage.patterns import ADVICE, ERRORS, FLAKY, PLAIN, FailureKind

_BY_JOB: Mapping[str, FailureKind] = {
    "lint": "lint", "build": "container build", "unit": "unit tests", "test": "unknown",
}  # fmt: skip
_MAX_CAUSE = 300


@dataclass(frozen=True)
class FailedJob:
    """A job as the forge lists it; ``conclusion`` in the forge's words, ``failed_steps`` where it reports any."""

    name: str
    url: str = ""
    conclusion: str = "failure"
    failed_steps: tuple[str, ...] = ()

    @property
    def timed_out(self) -> bool:
        return self.conclusion in ("timed_out", "timed out")


@dataclass(frozen=True)
class LogPosition:
    """The position of the evidence: the log's name, the rank if known, the line counted from 1."""

    log: str
    rank: int | None
    line: int


@dataclass(frozen=True)
class Failure:
    """The cause of a job's failure.  ``evidence`` is verbatim but for colours, control characters and secrets."""

    job: str
    url: str
    kind: FailureKind
    cause: str
    evidence: tuple[str, ...] = ()
    where: LogPosition | None = None
    retry: bool = False
    next: str = ""
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Verdict:
    """A failure before it is worded for the reader."""

    kind: FailureKind
    cause: str
    evidence: Sequence[str] = ()
    where: LogPosition | None = None
    retry: bool = False
    details: Mapping[str, str] = field(default_factory=dict)


def conclude(
    job: FailedJob, logs: Sequence[LogSummary], hide: Callable[[str], str] = str, problem: str = ""
) -> Failure:
    """Return the one cause of a job's failure.

    ``logs`` in the order of ranks, standard error before output, the job's own log last.  ``hide`` takes secrets
    out of text.  ``problem`` is a sentence about logs that are unavailable.
    """
    hide = cache(hide)  # the ranks of a job print nearly the same
    verdict = _judge(job, [without_secrets(log, hide) for log in logs], problem)
    text = "\n".join(verdict.evidence)
    details = dict(verdict.details)
    if problem and text:
        details["problem"] = problem
    next_step = ADVICE[verdict.kind]
    if verdict.kind == "flaky infrastructure" and not verdict.retry:
        next_step = "Running again will not help: report it to the operators of the machines."
    for pitfall in known_problems.find(text)[:1]:
        details["pitfall"] = f"{pitfall.sign} {pitfall.cause}"
        next_step = f"{next_step} Or: {pitfall.fix}" if verdict.retry else pitfall.fix
    cause = " ".join(verdict.cause.split())
    if not cause.endswith((".", "!", "?", "…")):
        cause = f"{cause}."
    lines = tuple(hide(text).split("\n")[:QUOTED]) if verdict.evidence else ()
    return Failure(
        job.name, job.url, verdict.kind, hide(cause), lines, verdict.where, verdict.retry, next_step,
        {name: hide(detail) for name, detail in details.items() if detail},
    )  # fmt: skip


def is_settled(job: FailedJob, logs: Sequence[LogSummary]) -> bool:
    """Report if the cause is certain from these logs, so that no other need be read.

    Python prints the exception that ends a process to its standard error: once those of all ranks have been read, a
    root traceback at the end of one is the cause, and so is a failed comparison in the job's own log.  The names of
    failed tests are in the output.
    """
    if kind_of_job(job.name) == "unit":
        return any(log.failed_tests for log in logs)
    if evidence.golden_drift(logs) is not None:
        return True
    root = evidence.root_traceback(logs)
    return root is not None and root[0].rank is not None and evidence.ends_with(*root)


def names_a_cause(job: FailedJob, logs: Sequence[LogSummary]) -> bool:
    """Report if these logs name a cause, certain or not."""
    if is_settled(job, logs) or evidence.root_traceback(logs) is not None:
        return True
    telling = evidence.telling_line(logs)
    return telling is not None and telling[1].pattern not in PLAIN


def needs_arguments(job: FailedJob, logs: Sequence[LogSummary]) -> bool:
    """Report if the sizes of the parallelism explain the failure, and no log so far has them."""
    verdict = _judge(job, logs, "")
    return verdict.kind in ("out of memory", "shape") and not facts.parallelism(logs)


def kind_of_job(name: str) -> str:
    """Return ``lint``, ``build``, ``unit`` or ``test``, by a job's name on GitHub or GitLab."""
    name = name.lower()
    if re.search(r"\blint|copyright|autoformat|codestyle", name):
        return "lint"
    if re.search(r"container[- _]build|build ci container|build_image|build-image", name):
        return "build"
    return "unit" if re.match(r"tests/|unit[-_ ]?tests?\b|test:unit", name) else "test"


def _judge(job: FailedJob, logs: Sequence[LogSummary], problem: str) -> _Verdict:
    kind = kind_of_job(job.name)
    if job.conclusion in ("success", "passed", "skipped", "neutral", "manual"):
        return _Verdict("unknown", f"The job did not fail: it ended with {job.conclusion}")
    drift = evidence.golden_drift(logs)
    if drift is not None:
        return _of_drift(*drift, logs)
    failed_tests: dict[str, None] = {}
    for log in logs:
        failed_tests.update(dict.fromkeys(log.failed_tests))
    root = evidence.root_traceback(logs)
    if failed_tests and kind == "unit":
        return _of_tests(job, list(failed_tests), root, logs)
    if root is not None:
        return _of_traceback(job, kind, *root, logs)
    telling = evidence.telling_line(logs)
    if telling is None:
        return _without_evidence(job, kind, logs, problem)
    log, match = telling
    rank = evidence.unread_rank(logs)
    if match.pattern.weak and rank is not None:
        cause = f"Rank {rank} failed first, with an exception, and its log is unavailable"
        return _Verdict("unknown", cause, match.lines, _position(log, match), details={"rank": str(rank)})
    return _of_line(job, kind, log, match, logs)


def _of_drift(log: LogSummary, drift: Traceback | LineMatch, logs: Sequence[LogSummary]) -> _Verdict:
    text = drift.message if isinstance(drift, Traceback) else drift.text
    comparisons = list(itertools.chain.from_iterable(each.comparisons for each in logs))
    metrics = [comparison.metric for comparison in comparisons]
    listed = re.search(r"metrics failed: (.{1,500})", text)
    if listed:
        metrics = re.findall(r"[A-Za-z0-9][\w .-]*[\w]", listed[1]) or metrics
    names = ", ".join(dict.fromkeys(metrics))
    details = {"metrics": names, **facts.worst_difference(comparisons), **facts.losses(logs)}
    kind: FailureKind = "golden drift"
    cause = f"Golden values: {_first_line(text)}"
    wrong = facts.wrong_numbers(comparisons, logs)
    if log.resumed:
        kind = "resume mismatch"
        cause = f"After the resume from a checkpoint, {names or 'values'} differ from those of the first run"
    elif wrong:
        kind = "regression"
        cause = f"{wrong}, and {names or 'what was generated'} differs from the golden values"
    elif names:
        cause = f"The values of {names} differ from the golden values"
    return _Verdict(kind, cause, drift.lines, _position(log, drift), details=details)


def _of_tests(
    job: FailedJob, tests: Sequence[str], root: tuple[LogSummary, Traceback] | None, logs: Sequence[LogSummary]
) -> _Verdict:
    bucket = job.name.partition(" - ")[0]
    details = {"bucket": bucket, "tests": ", ".join(tests[:20])}
    count = f"{len(tests)} tests" if len(tests) > 1 else tests[0]
    if root is None:
        lines = next((log.tail for log in logs if log.failed_tests), ())
        return _Verdict("unit tests", f"{count} of {bucket} failed", lines, details=details)
    log, trace = root
    pattern = evidence.first_match(ERRORS, trace.message)
    details |= {"error": trace.error, "error's class": pattern.kind if pattern else ""}
    cause = f"{count} of {bucket} failed, the first with {_first_line(trace.error)}"
    retry = evidence.first_match(FLAKY, trace.message) is not None
    return _Verdict("unit tests", cause, trace.lines, _position(log, trace), retry, details)


def _of_traceback(job: FailedJob, kind: str, log: LogSummary, trace: Traceback, logs: Sequence[LogSummary]) -> _Verdict:
    pattern = evidence.first_match(ERRORS, trace.message) or evidence.first_match(FLAKY, trace.message)
    further = sum(len(each.tracebacks) for each in logs) - 1
    phase = facts.phase_of(trace.frames)
    details = {
        "error": trace.error, "rank": _number(trace.rank), "further tracebacks": str(further or ""), "phase": phase,
        "parallelism": facts.parallelism(logs),
    }  # fmt: skip
    position = _position(log, trace)
    error = _first_line(trace.error)
    if kind in ("lint", "build") and (pattern is None or pattern.kind != "flaky infrastructure"):
        return _Verdict(_BY_JOB[kind], f"{job.name} failed with {error}", trace.lines, position, details=details)
    process = "A process" if trace.rank is None else f"Rank {trace.rank}"
    if pattern is None:
        return _Verdict(_BY_JOB[kind], f"{process} failed with {error}", trace.lines, position, details=details)
    problem = "failed"
    if pattern.kind == "out of memory":
        problem = "ran out of memory"
        details["peak"] = facts.peak_of(trace.message)
    if phase:
        problem = f"{problem} in {phase}"
    return _Verdict(pattern.kind, f"{process} {problem}: {error}", trace.lines, position, pattern.retry, details)


def _of_line(job: FailedJob, kind: str, log: LogSummary, match: LineMatch, logs: Sequence[LogSummary]) -> _Verdict:
    pattern, position = match.pattern, _position(log, match)
    details = {"rank": _number(match.rank), "pattern from": pattern.source}
    cause = f"The log shows {pattern.finding}: {_first_line(match.text)}"
    if pattern.kind == "hang":
        return _hang(cause, match.lines, position, details, logs)
    if pattern.kind == "out of memory":
        details |= {"peak": facts.peak_of(match.text), "parallelism": facts.parallelism(logs)}
    if pattern.kind == "unknown" and job.timed_out:
        return _hang("The job reached its time limit", match.lines, position, details, logs)
    if pattern.kind == "unknown" and any(each.not_finite for each in logs):
        details |= facts.losses(logs)
        return _Verdict("regression", "The loss is not finite", match.lines, position, details=details)
    if pattern.kind != "flaky infrastructure" and kind in ("lint", "build", "unit"):
        cause = f"{job.name} failed: {_first_line(match.text)}"
        return _Verdict(_BY_JOB[kind], cause, match.lines, position, details=details)
    return _Verdict(pattern.kind, cause, match.lines, position, pattern.retry, details)


def _hang(
    cause: str, lines: Sequence[str], position: LogPosition | None, details: Mapping[str, str],
    logs: Sequence[LogSummary],
) -> _Verdict:  # fmt: skip
    """Return a hang with the last progress, and the rank that stopped first."""
    enqueued: dict[int, int] = {}
    trained: dict[int, int] = {}
    for log in logs:
        enqueued.update(log.enqueued)
        if log.rank is not None and log.iteration is not None:
            trained[log.rank] = log.iteration
    stopped = _slowest(enqueued)
    if stopped is None:
        stopped = _slowest(trained)
    progress = max((log for log in logs if log.progress), key=lambda log: log.iteration or 0, default=None)
    details = {**details, "last progress": "", "stopped first": _number(stopped)}
    if progress:
        details["last progress"] = progress.progress
        cause = f"{cause}; its last iteration is {progress.iteration}"
        lines = [*list(lines)[-(QUOTED - 1) :], progress.progress]
    return _Verdict("hang", cause, lines, position, True, details)


def _slowest(steps_by_rank: Mapping[int, int]) -> int | None:
    """Return the lowest rank of those with the fewest steps; None where all have the same number."""
    if len(set(steps_by_rank.values())) < 2:
        return None
    return min(steps_by_rank, key=lambda rank: (steps_by_rank[rank], rank))


def _without_evidence(job: FailedJob, kind: str, logs: Sequence[LogSummary], problem: str) -> _Verdict:
    """Judge a job with neither a traceback nor a telling line."""
    last = next((log for log in reversed(logs) if log.tail), None)
    lines = last.tail if last else ()
    if job.timed_out:
        return _hang("The job reached its time limit", lines, None, {}, logs)
    if any(log.not_finite for log in logs):
        return _Verdict("regression", "The loss is not finite", lines, details=facts.losses(logs))
    if not last:
        problem = problem or next((log.problem for log in logs if log.problem), "")
        return _Verdict(_BY_JOB[kind], problem or "The job has no log, or it is empty")
    steps = f"; the step {', '.join(job.failed_steps)} failed" if job.failed_steps else ""
    if job.conclusion in ("cancelled", "canceled"):
        return _Verdict("unknown", f"The job was cancelled, and its log names no fault{steps}", lines)
    return _Verdict(_BY_JOB[kind], f"The log names no cause{steps}", lines)


def _position(log: LogSummary, match: Traceback | LineMatch) -> LogPosition:
    return LogPosition(log.name, match.rank, match.line)


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _MAX_CAUSE else f"{line[:_MAX_CAUSE]}…"


def _number(number: int | None) -> str:
    return "" if number is None else str(number)
