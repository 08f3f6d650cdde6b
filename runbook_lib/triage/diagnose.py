"""Why a job of CI failed: from what its logs tell to one cause.  Pure.

The order in which causes are believed, the first that applies:
1. a job that did not fail, or whose logs cannot be had: unknown, and that is said;
2. the comparison with golden values failed in the last try: the training had ended well by then.  It is a *golden
   drift*, or a *regression* where the numbers are not finite, the loss diverged, or they are far off;
3. failed tests of a unit-test bucket, by name;
4. the root traceback: the earliest that is no consequence of another rank's death and that its program did not
   survive.  Earliest by time where all carry one, else on the rank that torchrun saw fail first, else by rank and
   place.  Its error tells the class; an error that no pattern knows is *unknown*, with the traceback;
5. a telling line without a traceback, in the order of ``triage_patterns.LINES``: errors, faults that end a process,
   a hang, faults that a program may live with;
6. the kind of the job, by its name: linting, container build, unit tests;
7. unknown, with the last lines.

A pitfall that the evidence shows is named beside the cause, and its mend is what is next.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from runbook_lib.triage import known_problems
from runbook_lib.triage.facts import compared_worst, losses, parallelism, peak_of, phase_of, wrong_numbers
from runbook_lib.triage.log_summary import QUOTED, Hit, Reading, Traceback, without_secrets
from runbook_lib.triage.patterns import ERRORS, FLAKY, LINES, PLAIN, WEAK, Kind, Pattern

#: Lines that a rank prints at most after the exception that ends it.
_DYING = 400

_NEXT: Mapping[Kind, str] = {
    "golden drift": "Judge the new values in step 5, and refresh them there if they are sound.",
    "flaky infrastructure": "Run the job once more; if it fails so again, it is not flaky.",
    "hang": "Run the job once more; if it stops at the same place, the new image hangs there: file an issue.",
    "out of memory": "Compare the peak with that of the old image; then file an issue and quarantine the test.",
    "shape": "Find the change that brought the sizes apart, in the pull request or in a library of the new image.",
    "import error": "Look whether the new image lacks the module or has another version of it.",
    "container build": "Mend the build first: no test can run without the image.",
    "lint": "Mend what the linters name; tests start only after that.",
    "unit tests": "Run these tests in the new image; functional tests wait for them.",
    "regression": "Have a person judge the numbers before anything else: a regression is never put aside by itself.",
    "unknown": "Read the log.",
}


@dataclass(frozen=True)
class FailedJob:
    """A job as the forge lists it; ``conclusion`` in the forge's words, ``failed_steps`` where it tells any."""

    name: str
    url: str = ""
    conclusion: str = "failure"
    failed_steps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Where:
    """Where the evidence stands: the log's name, the rank if known, the line counted from 1."""

    log: str
    rank: int | None
    line: int


@dataclass(frozen=True)
class Failure:
    """Why a job failed.  ``evidence`` is verbatim but for colours, control characters and secrets."""

    job: str
    url: str
    kind: Kind
    cause: str
    evidence: tuple[str, ...] = ()
    where: Where | None = None
    retry: bool = False
    next: str = ""
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Found:
    """A verdict before it is worded for the reader."""

    kind: Kind
    cause: str
    evidence: Sequence[str] = ()
    where: Where | None = None
    retry: bool = False
    details: Mapping[str, str] = field(default_factory=dict)


def conclude(
    job: FailedJob, readings: Sequence[Reading], hide: Callable[[str], str] = str, problem: str = ""
) -> Failure:
    """The one cause of a job's failure.

    ``readings`` in the order of ranks, standard error before output, the job's own log last.  ``hide`` takes secrets
    out of text.  ``problem`` is a sentence about logs that are not to be had.
    """
    hide = cache(hide)  # the ranks of a job say much the same
    found = _find(job, [without_secrets(it, hide) for it in readings], problem)
    evidence = hide("\n".join(found.evidence)).split("\n")[:QUOTED] if found.evidence else []
    details = {**found.details, "problem": problem} if problem and found.evidence else dict(found.details)
    following = _next(found)
    for pitfall in known_problems.find("\n".join(found.evidence))[:1]:
        details["pitfall"] = f"{pitfall.sign} {pitfall.cause}"
        following = f"{following} Or: {pitfall.mend}" if found.retry else pitfall.mend
    return Failure(
        job.name, job.url, found.kind, hide(_sentence(found.cause)), tuple(evidence), found.where, found.retry,
        following, {name: hide(text) for name, text in details.items() if text},
    )  # fmt: skip


def settled(job: FailedJob, readings: Sequence[Reading]) -> bool:
    """Whether the cause is sure from these logs, so that no other need be read.

    Python prints the exception that ends a process to its standard error: once those of all ranks have been read, a
    root traceback at the end of one is the cause, and so is a failed comparison in the job's own log.  The names of
    failed tests stand in the output.
    """
    if kind_of_job(job.name) == "unit":
        return any(it.failed_tests for it in readings)
    root = _root(readings)
    return _drift(readings) is not None or (root is not None and root[0].rank is not None and _ended(*root))


def named(job: FailedJob, readings: Sequence[Reading]) -> bool:
    """Whether these logs name a cause, sure or not."""
    hit = _telling(readings)
    return settled(job, readings) or _root(readings) is not None or (hit is not None and hit[1].pattern not in PLAIN)


def wants_arguments(job: FailedJob, readings: Sequence[Reading]) -> bool:
    """Whether the sizes of the parallelism explain the failure, and no log so far has told them."""
    found = _find(job, readings, "")
    return found.kind in ("out of memory", "shape") and not parallelism(readings)


def kind_of_job(name: str) -> str:
    """``lint``, ``build``, ``unit`` or ``test``, by a job's name on GitHub or GitLab."""
    low = name.lower()
    if re.search(r"\blint|copyright|autoformat|codestyle", low):
        return "lint"
    if re.search(r"container[- _]build|build ci container|build_image|build-image", low):
        return "build"
    return "unit" if re.match(r"tests/|unit[-_ ]?tests?\b|test:unit", low) else "test"


def _find(job: FailedJob, readings: Sequence[Reading], problem: str) -> _Found:
    kind = kind_of_job(job.name)
    if job.conclusion in ("success", "passed", "skipped", "neutral", "manual"):
        return _Found("unknown", f"The job did not fail: it ended with {job.conclusion}")
    if drift := _drift(readings):
        return _drifted(*drift, readings)
    tests = list(dict.fromkeys(test for it in readings for test in it.failed_tests if kind == "unit"))
    root = _root(readings)
    if tests:
        return _failed_tests(job, tests, root, readings)
    if root is not None:
        return _of_traceback(job, kind, *root, readings)
    hit = _telling(readings)
    if hit is not None and not (hit[1].pattern in WEAK and (unread := _unread(readings)) is not None):
        return _of_hit(job, kind, *hit, readings)
    if hit is not None:
        said = f"Rank {unread} failed first, with an exception, and its log is not to be had"
        return _Found("unknown", said, hit[1].lines, _where(*hit), False, {"rank": str(unread)})
    return _without(job, kind, readings, problem)


# -- choosing ---------------------------------------------------------------------------------------------------------


def _root(readings: Sequence[Reading]) -> tuple[Reading, Traceback] | None:
    found = [(it, trace) for it in readings for trace in it.tracebacks if not trace.consequence and not trace.survived]
    if not found:
        return None
    found = [pair for pair in found if _ended(*pair)] or found
    if all(trace.time for _, trace in found):
        return min(found, key=lambda pair: pair[1].time)
    first = next((it.first_rank for it in readings if it.first_rank is not None), ())
    seen_first = [pair for pair in found if pair[1].rank in first]
    return min(seen_first or found, key=lambda pair: math.inf if pair[1].rank is None else pair[1].rank)


def _ended(reading: Reading, trace: Traceback) -> bool:
    """Whether a rank's log ends with a traceback, but for what is printed in dying: else its program went on."""
    return reading.rank is None or reading.lines - max(trace.end, trace.line) <= _DYING


def _drift(readings: Sequence[Reading]) -> tuple[Reading, Traceback | Hit] | None:
    for reading in readings:
        for trace in reading.tracebacks:
            pattern = _pattern(trace.message)
            if pattern is not None and pattern.kind == "golden drift":
                return reading, trace
        for hit in reading.hits:
            if hit.pattern.kind == "golden drift":
                return reading, hit
    return None


def _telling(readings: Sequence[Reading]) -> tuple[Reading, Hit] | None:
    found = [(it, hit) for it in readings for hit in it.hits if not hit.survived]
    for it in readings:  # consequences alone may still name a fault
        for trace in it.tracebacks:
            if trace.consequence and not trace.survived and (pattern := _flaky(trace.message)):
                found.append((it, Hit(pattern, trace.error, trace.lines, trace.line, trace.rank, trace.time)))
    if not found:
        return None
    order = {pattern: number for number, pattern in enumerate(LINES)}
    return min(found, key=lambda pair: (order[pair[1].pattern], pair[1].time or "~"))


def _unread(readings: Sequence[Reading]) -> int | None:
    """The rank that torchrun saw fail first, by an exception, where nothing that was read is of it.

    The log of a job shows the first and the last rank alone: what those tell of others is no cause.
    """
    first = next((it for it in readings if it.first_rank is not None), None)
    if first is None or first.first_rank is None or first.exit_code != 1:
        return None
    told = {it.rank for it in readings} | {hit.rank for it in readings for hit in it.hits}
    return None if told & set(first.first_rank) else first.first_rank[0]


def _pattern(message: str) -> Pattern | None:
    return next((it for it in ERRORS if it.regex.search(message)), None)


def _flaky(message: str) -> Pattern | None:
    return next((it for it in FLAKY if it.regex.search(message)), None)


# -- wording ----------------------------------------------------------------------------------------------------------


def _drifted(reading: Reading, at: Traceback | Hit, readings: Sequence[Reading]) -> _Found:
    text = at.message if isinstance(at, Traceback) else at.text
    compared = [comparison for it in readings for comparison in it.comparisons]
    named = re.search(r"metrics failed: (.{1,500})", text)
    metrics = list(dict.fromkeys(re.findall(r"[A-Za-z0-9][\w .-]*[\w]", named[1]))) if named else []
    metrics = metrics or list(dict.fromkeys(it.metric for it in compared))
    details = {"metrics": ", ".join(metrics), **compared_worst(compared), **losses(readings)}
    wrong = wrong_numbers(compared, readings)
    if wrong:
        cause = f"{wrong}, and {', '.join(metrics) or 'what was generated'} differs from the golden values"
        return _Found("regression", cause, at.lines, _where(reading, at), False, details)
    cause = f"The golden values of {', '.join(metrics)} were not met" if metrics else f"Golden values: {_first(text)}"
    return _Found("golden drift", cause, at.lines, _where(reading, at), False, details)


def _failed_tests(
    job: FailedJob, tests: Sequence[str], root: tuple[Reading, Traceback] | None, readings: Sequence[Reading]
) -> _Found:
    bucket = job.name.partition(" - ")[0]
    details = {"bucket": bucket, "tests": ", ".join(tests[:20])}
    count = f"{len(tests)} tests" if len(tests) > 1 else tests[0]
    if root is None:
        lines = next((it.tail for it in readings if it.failed_tests), ())
        return _Found("unit tests", f"{count} of {bucket} failed", lines, None, False, details)
    reading, trace = root
    pattern = _pattern(trace.message)
    details |= {"error": trace.error, "error's class": pattern.kind if pattern else ""}
    cause = f"{count} of {bucket} failed, the first with {_first(trace.error)}"
    return _Found("unit tests", cause, trace.lines, _where(reading, trace), bool(_flaky(trace.message)), details)


def _of_traceback(job: FailedJob, kind: str, reading: Reading, trace: Traceback, readings: Sequence[Reading]) -> _Found:
    pattern = _pattern(trace.message) or _flaky(trace.message)
    others = sum(len(it.tracebacks) for it in readings) - 1
    details = {"error": trace.error, "rank": _text(trace.rank), "further tracebacks": str(others) if others else ""}
    phase = phase_of(trace.frames)
    rank = f"Rank {trace.rank}" if trace.rank is not None else "A process"
    details |= {"phase": phase, "parallelism": parallelism(readings)}
    where = _where(reading, trace)
    if kind in ("lint", "build") and (pattern is None or pattern.kind != "flaky infrastructure"):
        named: Kind = "lint" if kind == "lint" else "container build"
        return _Found(named, f"{job.name} failed with {_first(trace.error)}", trace.lines, where, False, details)
    if pattern is None:
        named = "unit tests" if kind == "unit" else "unknown"
        cause = f"{rank} failed with {_first(trace.error)}"
        return _Found(named, cause, trace.lines, where, False, details)
    if pattern.kind == "out of memory":
        details["peak"] = peak_of(trace.message)
        cause = f"{rank} ran out of memory{f' in {phase}' if phase else ''}: {_first(trace.error)}"
    else:
        cause = f"{rank} failed{f' in {phase}' if phase else ''}: {_first(trace.error)}"
    return _Found(pattern.kind, cause, trace.lines, where, pattern.retry, details)


def _of_hit(job: FailedJob, kind: str, reading: Reading, hit: Hit, readings: Sequence[Reading]) -> _Found:
    pattern, where = hit.pattern, _where(reading, hit)
    details = {"rank": _text(hit.rank), "pattern from": pattern.source}
    cause = f"The log says {pattern.says}: {_first(hit.text)}"
    if pattern.kind == "hang":
        return _hang(cause, hit.lines, where, details, readings)
    if pattern.kind == "out of memory":
        details |= {"peak": peak_of(hit.text), "parallelism": parallelism(readings)}
    if pattern.kind == "unknown" and job.conclusion in ("timed_out", "timed out"):
        return _hang("The job ran into its time limit", hit.lines, where, details, readings)
    if pattern.kind == "unknown" and any(it.not_finite for it in readings):
        return _Found("regression", "The loss is not finite", hit.lines, where, False, details | losses(readings))
    if pattern.kind != "flaky infrastructure" and kind in ("lint", "build", "unit"):
        return _Found(_BY_JOB[kind], f"{job.name} failed: {_first(hit.text)}", hit.lines, where, False, details)
    return _Found(pattern.kind, cause, hit.lines, where, pattern.retry, details)


_BY_JOB: Mapping[str, Kind] = {"lint": "lint", "build": "container build", "unit": "unit tests", "test": "unknown"}


def _hang(
    cause: str, lines: Sequence[str], where: Where | None, details: Mapping[str, str], readings: Sequence[Reading]
) -> _Found:
    """A hang: the last progress, and the rank that stopped first."""
    progress = max((it for it in readings if it.progress), key=lambda it: it.iteration or 0, default=None)
    enqueued = {rank: work for it in readings for rank, work in it.enqueued.items()}
    stopped = min(enqueued, key=lambda rank: (enqueued[rank], rank)) if len(set(enqueued.values())) > 1 else None
    if stopped is None:
        trained = {it.rank: it.iteration for it in readings if it.rank is not None and it.iteration is not None}
        if len(set(trained.values())) > 1:
            stopped = min(trained, key=lambda rank: trained[rank])
    told = {**details, "last progress": progress.progress if progress else "", "stopped first": _text(stopped)}
    if progress:
        cause = f"{cause}; the last that it did is iteration {progress.iteration}"
        lines = [*list(lines)[-(QUOTED - 1) :], progress.progress]
    return _Found("hang", cause, lines, where, True, told)


def _without(job: FailedJob, kind: str, readings: Sequence[Reading], problem: str) -> _Found:
    """Neither a traceback nor a telling line."""
    last = next((it for it in reversed(readings) if it.tail), None)
    lines: Sequence[str] = last.tail if last else ()
    if job.conclusion in ("timed_out", "timed out"):
        return _hang("The job ran into its time limit", lines, None, {}, readings)
    if any(it.not_finite for it in readings):
        return _Found("regression", "The loss is not finite", lines, None, False, losses(readings))
    if not last:
        said = problem or next((it.problem for it in readings if it.problem), "")
        return _Found(_BY_JOB[kind], said or "There is no log of this job, or it is empty")
    steps = f"; the step {', '.join(job.failed_steps)} failed" if job.failed_steps else ""
    if job.conclusion in ("cancelled", "canceled"):
        return _Found("unknown", f"The job was cancelled, and its log names no fault{steps}", lines)
    return _Found(_BY_JOB[kind], f"The log names no cause{steps}", lines)


def _where(reading: Reading, at: Traceback | Hit) -> Where:
    return Where(reading.name, at.rank, at.line)


def _next(found: _Found) -> str:
    if found.kind == "flaky infrastructure" and not found.retry:
        return "Running again will not help: tell those who run the machines."
    return _NEXT[found.kind]


def _first(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= 300 else f"{line[:300]}…"


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def _text(number: int | None) -> str:
    return "" if number is None else str(number)
