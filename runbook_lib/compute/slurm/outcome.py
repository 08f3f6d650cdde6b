"""The outcome of a test of a matrix and its cause: from Slurm's state, the logs of all ranks, and its golden values."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from runbook_lib.compute.slurm.client import OVER
from runbook_lib.compute.slurm.jobs import GONE, SlurmJob, last_lines
from runbook_lib.compute.slurm.selection import SelectedTest
from runbook_lib.compute.workloads import Parallelism
from runbook_lib.errors import CannotTell
from runbook_lib.failures import read_logs
from runbook_lib.failures.evidence import FailedJob, Failure
from runbook_lib.failures.patterns import FailureKind
from runbook_lib.golden import values as golden
from runbook_lib.golden.form import examine
from runbook_lib.golden.judge import judge_all
from runbook_lib.golden.measure import Judgement
from runbook_lib.text.lists import shorten
from runbook_lib.text.recipes.file_names import GoldenFileName

Word = Literal["passed", "drifted", "to be judged", "failed", "unknown", "not over"]
_CAUSE_WIDTH = 160  # characters of a cause in a table
#: Options of a test whose values determine its memory use.
_BATCH = re.compile(
    r"^ *['\"]?--(micro-batch-size|global-batch-size|seq-length)['\"]? *: *([0-9]{1,9})\b", re.MULTILINE
)
_EQUAL = "But the golden values that it wrote equal the commit's, so a refresh would change nothing."
_COMPARE = "Look in the log for the comparison that failed: another file, or a second run of the test."
_NO_VALUES = "According to Slurm the job succeeded, but it wrote no golden values."
_AGAIN = "Submit it again: `-r jobs failed`."
_STACKS = "The end of each rank's stderr.log shows where its threads were before the time limit."
#: States that need no explanation from the test's logs: class and cause.
_BY_SLURM: Mapping[str, tuple[FailureKind, str]] = {
    "NODE_FAIL": ("flaky infrastructure", "A node failed or did not answer, according to Slurm"),
    "BOOT_FAIL": ("flaky infrastructure", "A node did not boot, according to Slurm"),
    "PREEMPTED": ("flaky infrastructure", "The job was preempted by another job, according to Slurm"),
    "CANCELLED": ("unknown", "The job was cancelled"),
}


@dataclass(frozen=True)
class MatrixOutcome:
    """The outcome of a test.

    ``failure`` is None for a test that did not fail; ``judgements`` compare its golden values with the commit's;
    ``missing`` are golden files that it should have written and did not.
    """

    job: SlurmJob
    failure: Failure | None = None
    judgements: tuple[Judgement, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def word(self) -> Word:
        """The outcome as one word.

        Only a test that succeeded and wrote all its golden files can pass.  A failed test has drifted only if nothing
        except the comparison of golden values failed, and the values differ here too.
        """
        state, verdicts = self.job.state, {judgement.verdict for judgement in self.judgements}
        if state == GONE:
            return "unknown"
        if state not in OVER:
            return "not over"
        is_drift = state == "FAILED" and self.failure is not None and self.failure.kind == "golden drift"
        if self.missing or not (state == "COMPLETED" or (is_drift and verdicts - {"unchanged"})):
            return "failed"
        if {"held back", "refused"} & verdicts:
            return "to be judged"
        return "drifted" if "refresh" in verdicts else "passed"

    @property
    def row(self) -> dict[str, object]:
        """The outcome as a row of a table."""
        job, test, failure = self.job, self.job.entry.test, self.failure
        values = [f"{item.verdict}: {item.sentence}".removesuffix(": ") for item in self.judgements]
        if self.missing and job.over:
            values.append(f"{', '.join(self.missing)} was not written")
        return {
            "test": f"{test.model}/{test.case}", "platform": test.platform, "job": job.id or "",
            "state": f"{job.word} ({job.reason})".removesuffix(" ()"), "outcome": self.word,
            "class": failure.kind if failure else "", "cause": shorten(failure.cause, _CAUSE_WIDTH) if failure else "",
            "golden values": "; ".join(values), "next": failure.next if failure else "",
        }  # fmt: skip


def conclude(job: SlurmJob) -> MatrixOutcome:
    """Return the outcome of a test's job."""
    if not job.over:
        return MatrixOutcome(job)
    judgements, written = _golden_values(job)
    missing = tuple(name for name in job.entry.golden if name not in written)
    if job.state == "COMPLETED" and not missing:
        return MatrixOutcome(job, None, judgements)
    is_unchanged = not missing and {judgement.verdict for judgement in judgements} <= {"unchanged"}
    return MatrixOutcome(job, _failure(job, is_unchanged=is_unchanged), judgements, missing)


def _golden_values(job: SlurmJob) -> tuple[tuple[Judgement, ...], set[str]]:
    """Return the judgement of each golden file that a test wrote, and the names of all that it wrote."""
    entry, test = job.entry, job.entry.test
    judgements: list[Judgement] = []
    written: set[str] = set()
    for path in sorted((job.folder / "assets").glob("*.json")):
        file = GoldenFileName.of_artifact(path.name)
        if file is None:
            continue
        try:
            with path.open("rb") as opened:
                text = opened.read(golden.MAX_BYTES + 1)  # a longer file is refused because of its length
        except OSError:
            continue
        written.add(file.file)
        if file.environment == test.environment:
            name = f"{test.model}/{test.case}/{file.file}"
            examined = examine(name, entry.golden.get(file.file), text, entry.config)
            judgements += judge_all([examined]).judgements  # alone, without a history
    return tuple(judgements), written


def _failure(job: SlurmJob, *, is_unchanged: bool) -> Failure:
    folder, name, state = job.folder, str(job), job.state
    if state in _BY_SLURM:
        kind, cause = _BY_SLURM[state]
        reason = f" ({job.reason})" if job.reason else ""
        lines = filter(str.strip, last_lines(folder / "job.log")[-5:])
        return Failure(name, "", kind, f"{cause}{reason}.", tuple(lines), next=_AGAIN)
    try:
        listed = FailedJob(name, conclusion="timed_out" if state == "TIMEOUT" else "failure")
        failure = read_logs.diagnose_folder(folder, listed)
    except CannotTell:
        cause = "It wrote no log. Either its node cannot see the results folder, or the job never started."
        failure = Failure(name, "", "unknown", cause, next="Check that all nodes see the folder for results.")
    kind = failure.kind
    if state == "OUT_OF_MEMORY" and kind != "out of memory":
        cause = "The node's memory (not the GPU's) ran out, and Slurm ended a process of the test."
        failure = replace(failure, kind="out of memory", cause=cause, next="Request more memory, or exclusive nodes.")
    elif state == GONE:
        failure = replace(failure, cause=f"Neither Slurm nor the job shows how it ended. {failure.cause}", next=_AGAIN)
    elif state == "COMPLETED" and kind == "unknown":
        failure = replace(failure, cause=f"{_NO_VALUES} {failure.cause}")
    elif state == "TIMEOUT":
        failure = replace(failure, details={**failure.details, "stacks": _STACKS})
    if kind == "golden drift" and is_unchanged:
        failure = replace(failure, kind="unknown", cause=f"{failure.cause} {_EQUAL}", next=_COMPARE)
    if failure.kind in ("out of memory", "shape"):
        failure = replace(failure, details={**_sizes(job.entry), **failure.details})
    return failure


def _sizes(entry: SelectedTest) -> dict[str, str]:
    """Return how the test's settings distribute its model; the log has precedence over them."""
    test, config = entry.test, entry.config or ""
    try:
        parallelism = Parallelism.parse(config)
    except CannotTell:
        return {}
    sizes = f"TP {parallelism.tensor}, CP {parallelism.context}, PP {parallelism.pipeline}"
    copies, rest = divmod(test.needs.nodes * test.needs.gpus, parallelism.model or 1)
    if not rest:
        sizes += f", DP {copies}"
    batch = {name.replace("-", " "): value for name, value in _BATCH.findall(config)}
    return {"parallelism": sizes, "GPUs": f"{test.needs.nodes} × {test.needs.gpus}", **batch}
