"""The verdict on a failed job: class and cause, from summaries of its logs.  Pure.

Causes are considered in this order, and the first that applies wins:
1. a job that did not fail, or whose logs are unavailable: unknown, with the reason;
2. the comparison with golden values failed in the last attempt, after the training had ended well: a *golden drift*; a
   *regression* if the numbers are not finite or far off, or the loss diverged; a *resume mismatch*, which no refresh
   can fix, if a resumed run was compared with its first run;
3. the candidate that explains most, as ranked by ``evidence`` with ``rules.toml``: a lost runner or a time limit,
   failed tests by name, causes, a traceback that ended its process, symptoms, generic lines; among equals the earliest;
4. the kind of the job, from its name: linting, container build, unit tests;
5. unknown, with the last lines and the evidence that would decide it.
"""

import itertools
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runbook_lib.failures import evidence, facts
from runbook_lib.failures.evidence import Candidate
from runbook_lib.failures.failure import FailedJob, LogPosition
from runbook_lib.failures.log_summary import QUOTED, FailedTest, LineMatch, LogSummary, Traceback
from runbook_lib.failures.patterns import CONFIDENT, TRACEBACK, FailureKind, LogPattern, explain

_BY_JOB: Mapping[str, FailureKind] = {
    "lint": "lint", "build": "container build", "unit": "unit tests", "test": "unknown",
}  # fmt: skip
_MAX_CAUSE = 200
_MAX_TESTS = 20  # failed tests that are named
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


@dataclass(frozen=True)
class Verdict:
    """A failure before it is phrased for the reader."""

    kind: FailureKind
    cause: str
    evidence: Sequence[str] = ()
    where: LogPosition | None = None
    details: Mapping[str, str] = field(default_factory=dict)
    rank: int | None = None
    confidence: float = 0.9
    pattern: LogPattern | None = None
    tests: tuple[str, ...] = ()


def kind_of_job(name: str) -> str:
    """Return ``lint``, ``build``, ``unit`` or ``test``, from a job's name on GitHub or GitLab."""
    name = name.lower()
    if re.search(r"\blint|copyright|autoformat|codestyle", name):
        return "lint"
    if re.search(r"container[- _]build|build ci container|build_image|build-image", name):
        return "build"
    return "unit" if re.match(r"tests/|unit[-_ ]?tests?\b|test:unit", name) else "test"


def judge(job: FailedJob, logs: Sequence[LogSummary], problem: str) -> Verdict:
    kind = kind_of_job(job.name)
    if job.conclusion in ("success", "passed", "skipped", "neutral", "manual"):
        return Verdict("unknown", f"The job did not fail: it ended with {job.conclusion}")
    drift = evidence.golden_drift(logs)
    if drift is not None:
        return _of_drift(*drift, logs)
    possible = evidence.candidates(logs)
    if not possible or possible[0].confidence < CONFIDENT:
        return _without_evidence(job, kind, logs, problem)
    best = possible[0]
    tests: dict[str, FailedTest] = {}
    for log in logs:
        for test in log.failed_tests:
            tests.setdefault(test.name, test)
    if tests and (kind == "unit" or isinstance(best.entry, FailedTest)):
        return _of_tests(job, list(tests.values()), logs, possible)
    if isinstance(best.entry, Traceback):
        return _of_traceback(job, kind, best, best.entry, logs)
    assert isinstance(best.entry, LineMatch)
    rank = evidence.unread_rank(logs)
    if best.entry.pattern.kind in _OF_OTHERS and best.tier < TRACEBACK and rank is not None:
        cause = f"Rank {rank} failed first, with an exception, and its log is unavailable"
        return Verdict("unknown", cause, best.entry.lines, _position(best.log, best.entry), rank=rank, confidence=0.4)
    return _of_line(job, kind, best, best.entry, logs)


def _of_drift(log: LogSummary, drift: Traceback | LineMatch, logs: Sequence[LogSummary]) -> Verdict:
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
    return Verdict(kind, cause, drift.lines, _position(log, drift), details=details)


def _of_tests(
    job: FailedJob, tests: Sequence[FailedTest], logs: Sequence[LogSummary], possible: Sequence[Candidate]
) -> Verdict:
    named = tuple(test.name for test in tests[:_MAX_TESTS])
    names = ", ".join(named)
    root = next((candidate for candidate in possible if isinstance(candidate.entry, Traceback)), None)
    trace = root.entry if root and isinstance(root.entry, Traceback) else None
    errors = [test.error for test in tests if test.error]
    errors += [found.entry.text for found in possible if found.rule == "tests-failed"]
    error = trace.error if trace else "".join(errors[:1])
    pattern = root.pattern if root else explain(error)
    cause = f"The test {tests[0].name} failed" if len(tests) == 1 else f"{len(tests)} tests failed: {names}"
    if error:
        cause = f"{_first_line(cause)} {'with' if len(tests) == 1 else '— the first with'} {_first_line(error)}"
    kind: FailureKind = "unit tests"
    beneath = _BENEATH_TESTS
    if not any("::" in test.name for test in tests):  # no test has started
        beneath = beneath | {"import error"}
    if pattern is not None and kind_of_job(job.name) != "unit" and pattern.kind in beneath and not pattern.by_words:
        kind = pattern.kind
    lines: Sequence[str] = trace.lines if trace else [test.text for test in tests]
    first = next((log for log in logs if log.failed_tests), logs[0])
    position = LogPosition(first.name, tests[0].line)
    if root and trace:
        position = _position(root.log, trace)
    return Verdict(kind, cause, lines, position, tests=named)


def _of_traceback(
    job: FailedJob, kind: str, candidate: Candidate, trace: Traceback, logs: Sequence[LogSummary]
) -> Verdict:
    pattern = candidate.pattern
    rank = _rank_of(trace.rank, trace.error, pattern, logs)
    details = {}
    position = _position(candidate.log, trace)
    error = _decisive(trace, pattern)
    failure_kind = candidate.kind
    if failure_kind == "hang":
        return _hang(_first_line(error), trace.lines, position, logs, _named_rank(pattern, trace.error))
    confidence = candidate.confidence
    if _is_named_by_job(kind, candidate):
        cause = f"{job.name} failed with {error}"
        return Verdict(_BY_JOB[kind], cause, trace.lines, position, rank=rank, confidence=confidence)
    process = "A process" if rank is None else f"Rank {rank}"
    problem = "failed with"
    if failure_kind == "out of memory":
        problem = "ran out of memory:"
        details["peak"] = facts.peak_of(trace.message)
    elif pattern is not None:
        problem = "failed:"
    return Verdict(
        failure_kind, f"{process} {problem} {error}", trace.lines, position, details, rank, confidence, pattern
    )


def _is_named_by_job(kind_of_the_job: str, candidate: Candidate) -> bool:
    """Return True if the kind of the job says more than the class of the error."""
    if kind_of_the_job == "test":
        return False
    generic = _OF_BUILDS if kind_of_the_job == "build" else _GENERIC
    return candidate.kind in generic or (candidate.pattern is not None and candidate.pattern.by_words)


def _decisive(trace: Traceback, pattern: LogPattern | None) -> str:
    """Return the first line of an error, and the line of its message that the rule explains."""
    error = _first_line(trace.error)
    if pattern is not None and not pattern.regex.search(error):
        for line in trace.message.splitlines()[1:]:
            match = pattern.regex.search(line)
            if match:
                return f"{error} {_first_line(line)}"
    return error


def _named_rank(pattern: LogPattern | None, text: str) -> int | None:
    """Return the rank that a rule extracts from a line."""
    match = pattern.regex.search(text) if pattern and "rank" in pattern.regex.groupindex else None
    return int(match["rank"]) if match and match["rank"] else None


def _rank_of(rank: int | None, text: str, pattern: LogPattern | None, logs: Sequence[LogSummary]) -> int | None:
    """Return the rank of a line: its prefix, its text, or the first to fail according to torchrun or srun."""
    named = _named_rank(pattern, text)
    if named is not None:
        return named
    if rank is not None:
        return rank
    first = evidence.first_failed_ranks(logs)
    if first:
        return first[0]
    match = _OWN_RANK.search(text)
    if match:
        return int(match[1] or match[2])
    if pattern is not None and pattern.kind == "container start":
        return None
    ids = {pattern.id, "process-failed"} if pattern else {"process-failed"}
    for log in logs:
        for line in log.matches:
            if line.pattern.id in ids and line.rank is not None:
                return line.rank
    return None


def _of_line(job: FailedJob, kind: str, candidate: Candidate, match: LineMatch, logs: Sequence[LogSummary]) -> Verdict:
    pattern, position = match.pattern, _position(candidate.log, match)
    rank = _rank_of(match.rank, match.text, pattern, logs)
    details = {}
    cause = f"The log shows {pattern.finding}{_signal_name(match.text)}: {_first_line(match.text)}"
    if pattern.kind == "hang":
        return _hang(cause, match.lines, position, logs, _named_rank(pattern, match.text))
    if pattern.kind == "out of memory":
        details["peak"] = facts.peak_of(match.text)
    if pattern.kind == "program error" and job.timed_out:
        return _hang("The job reached its time limit", match.lines, position, logs)
    if pattern.id == "loss-not-finite":
        details = facts.losses(logs)
    if pattern.kind == "program error" and any(each.not_finite for each in logs):
        cause = f"The loss is not finite, and the log shows {_first_line(match.text)}"
        return Verdict("regression", cause, match.lines, position, facts.losses(logs), rank)
    if _is_named_by_job(kind, candidate):
        cause = f"{job.name} failed: {_first_line(match.text)}"
        return Verdict(_BY_JOB[kind], cause, match.lines, position, rank=rank, confidence=candidate.confidence)
    return Verdict(pattern.kind, cause, match.lines, position, details, rank, candidate.confidence, pattern)


def _hang(
    cause: str, lines: Sequence[str], position: LogPosition | None, logs: Sequence[LogSummary], named: int | None = None
) -> Verdict:
    """Return a hang with the last progress, and the rank that stopped first or is named in the evidence."""
    stopped = facts.stopped_rank(logs)
    if stopped is None:
        stopped = named
    if stopped is not None:
        cause = f"Rank {stopped} stopped first or is silent. {cause}"
    if progress := max((log for log in logs if log.progress), key=lambda log: log.iteration or 0, default=None):
        cause = f"{cause}; its last iteration is {progress.iteration}"
        lines = [*list(lines)[-(QUOTED - 1) :], progress.progress]
    return Verdict("hang", cause, lines, position, rank=stopped)


def _without_evidence(job: FailedJob, kind: str, logs: Sequence[LogSummary], problem: str) -> Verdict:
    """Judge a job with neither a traceback nor a matching line."""
    last = next((log for log in reversed(logs) if log.tail), None)
    lines = last.tail if last else ()
    if job.timed_out:
        return _hang("The job reached its time limit", lines, None, logs)
    if any(log.not_finite for log in logs):
        return Verdict("regression", "The loss is not finite", lines, details=facts.losses(logs))
    if not last:
        problem = problem or next((log.problem for log in logs if log.problem), "")
        return Verdict(_BY_JOB[kind], problem or "The job has no log, or it is empty", confidence=0.3)
    steps = f"; the step {', '.join(job.failed_steps)} failed" if job.failed_steps else ""
    if job.conclusion in ("cancelled", "canceled"):
        return Verdict("cancelled", f"The job was cancelled, and its log names no fault{steps}", lines)
    effect = next((match for log in logs for match in log.matches), None)
    shown = f": it shows only {_first_line(effect.text)}" if effect else ""
    decides = "The complete log of the job, and the logs of the other ranks or the failed step."
    cause = f"The log names no cause{steps}{shown}"
    return Verdict(_BY_JOB[kind], cause, lines, details={"would decide it": decides}, confidence=0.3)


def _position(log: LogSummary, match: Traceback | LineMatch) -> LogPosition:
    return LogPosition(log.name, match.line)


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
