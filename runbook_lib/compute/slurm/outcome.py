"""The outcome of a test of a matrix and its cause: from Slurm's state, the logs of all ranks, and its golden values."""

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from runbook_lib import display
from runbook_lib.compute.slurm.client import OVER
from runbook_lib.compute.slurm.follow import GONE, ObservedTest
from runbook_lib.compute.slurm.rounds import log_tail
from runbook_lib.errors import CannotTell
from runbook_lib.failures import known_problems, read_logs
from runbook_lib.failures.failure import FailedJob, Failure
from runbook_lib.failures.known_problems import Pitfall
from runbook_lib.failures.patterns import FailureKind
from runbook_lib.golden import summary
from runbook_lib.golden import values as golden
from runbook_lib.golden.form import Judgement, Verdict
from runbook_lib.golden.judge import judge
from runbook_lib.recipes.file_names import GoldenFileName
from runbook_lib.recipes.parallelism import Parallelism
from runbook_lib.text.lists import shorten

Word = Literal["passed", "drifted", "to be judged", "failed", "unknown", "not over"]
_CAUSE_WIDTH = 160  # characters of a cause in a table
_LOG_TAIL = 65536  # bytes of a log that are searched for known problems and stacks
_MAX_LOGS = 256  # that are searched for stacks
#: Options of a test whose values determine its memory use.
_BATCH = re.compile(
    r"^ *['\"]?--(micro-batch-size|global-batch-size|seq-length)['\"]? *: *([0-9]{1,9})\b", re.MULTILINE
)
_EQUAL = "But the golden values that it wrote equal the commit's, so a refresh would change nothing."
_COMPARE = "Look in the log for the comparison that failed: another file, or a second run of the test."
_AGAIN = "Submit it again: `-r jobs` with its name, or failed."
#: States that need no explanation from the test's logs: class, cause, and True if running the test again may help.
_BY_SLURM: Mapping[str, tuple[FailureKind, str]] = {
    "NODE_FAIL": ("flaky infrastructure", "A node failed or did not answer, according to Slurm"),
    "BOOT_FAIL": ("flaky infrastructure", "A node did not boot, according to Slurm"),
    "PREEMPTED": ("flaky infrastructure", "The job was preempted by another job, according to Slurm"),
    "REVOKED": ("unknown", "Slurm revoked the job: another cluster of the federation ran it"),
    "CANCELLED": ("unknown", "The job was cancelled"),
}


@dataclass(frozen=True)
class MatrixOutcome:
    """The outcome of a test.

    ``failure`` is None for a test that did not fail; ``judgements`` compare its golden values with the commit's;
    ``missing`` are golden files that it should have written and did not.
    """

    now: ObservedTest
    failure: Failure | None = None
    judgements: tuple[Judgement, ...] = ()
    pitfalls: tuple[Pitfall, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def word(self) -> Word:
        """The outcome as one word."""
        cause = self.failure.kind if self.failure else None
        verdicts = [judgement.verdict for judgement in self.judgements]
        return outcome_word(self.now.state, self.now.code, cause, verdicts, self.missing)

    @property
    def row(self) -> dict[str, object]:
        """The outcome as a row of a table."""
        entry, failure = self.now.entry, self.failure
        values = [f"{item.verdict}: {summary.sentence(item)}".removesuffix(": ") for item in self.judgements]
        if self.missing and self.now.over:
            values.append(f"{', '.join(self.missing)} was not written")
        details = [self.now.reason] if self.now.reason else []
        row: dict[str, object] = {
            "test": f"{entry.test.model}/{entry.test.case}", "platform": entry.test.platform,
            "job": f"{entry.job}_{entry.index}" if entry.job else "",
            "state": f"{self.now.word} ({', '.join(details)})".removesuffix(" ()"), "outcome": self.word,
            "class": "", "cause": "", "golden values": "; ".join(values), "next": "",
        }  # fmt: skip
        if failure:
            row |= {"class": failure.kind, "cause": shorten(failure.cause, _CAUSE_WIDTH), "next": failure.next}
        return row

    def evidence(self) -> display.View:
        """Show why it failed."""
        failure = self.failure
        assert failure is not None
        where = f" ({failure.where.log}, line {failure.where.line})" if failure.where else ""
        sentences = [f"{name}: {value}" for name, value in failure.details.items() if name != "error"]
        sentences += [f"{pitfall.sign} {pitfall.cause} {pitfall.fix}" for pitfall in self.pitfalls]
        sentences.append(f"Results: {self.now.entry.folder}")
        shown = display.code("\n".join(failure.evidence), title=f"{failure.job}: {failure.kind}{where}")
        return shown + display.notes(sentences)


def outcome_word(
    state: str, code: int | None, cause: FailureKind | None, verdicts: Collection[Verdict], missing: Collection[str]
) -> Word:
    """Return the outcome of a test from Slurm's state, its exit status, its logs, and its golden files.

    Only a test that succeeded and wrote all its golden files can pass.  A failed test has drifted only if nothing
    except the comparison of golden values failed, and the values differ here too.
    """
    if state == GONE:
        return "unknown"
    if state not in OVER:
        return "not over"
    succeeded = state == "COMPLETED" and not code
    is_drift = state == "FAILED" and cause == "golden drift" and bool(set(verdicts) - {"unchanged"})
    if missing or not (succeeded or is_drift):
        return "failed"
    if {"held back", "refused"} & set(verdicts):
        return "to be judged"
    return "drifted" if "refresh" in verdicts else "passed"


def conclude(
    now: ObservedTest, old: Mapping[str, str | None], expected: Sequence[str], config: str | None
) -> MatrixOutcome:
    """Return the outcome of a test.

    ``old`` are texts of golden files by name, ``expected`` the names of the files that it should write, ``config`` is
    the text of its settings.
    """
    if not now.over:
        return MatrixOutcome(now)
    judgements, missing = _golden_values(now, old, expected, config)
    if now.state == "COMPLETED" and not now.code and not missing:
        return MatrixOutcome(now, None, judgements)
    is_unchanged = not missing and {judgement.verdict for judgement in judgements} <= {"unchanged"}
    failure = _failure(now, config, is_unchanged=is_unchanged)
    folder = now.entry.folder
    logs = [folder / "job.log", *sorted(folder.glob("node-*.err.log"))[:8]]
    text = "\n".join([failure.cause, *failure.evidence, *map(_text_of, logs)])
    return MatrixOutcome(now, failure, judgements, known_problems.find(text), missing)


def _golden_values(
    now: ObservedTest, old: Mapping[str, str | None], expected: Sequence[str], config: str | None
) -> tuple[tuple[Judgement, ...], tuple[str, ...]]:
    """Return the judgement of each golden file that a test wrote, and the names of missing ones."""
    test = now.entry.test
    judgements: list[Judgement] = []
    written: set[str] = set()
    for path in sorted((now.entry.folder / "assets").glob("*.json")):
        file = GoldenFileName.of_artifact(path.name)
        if file is None:
            continue
        # Inference tests name their files differently: "generations…" instead of "golden_values…".
        try:
            with path.open("rb") as opened:
                text = opened.read(golden.MAX_BYTES + 1)  # a longer file is refused because of its length
        except OSError:
            continue
        written.add(file.file)
        if file.environment == test.environment:
            judgements.append(judge(f"{test.model}/{test.case}/{file.file}", old.get(file.file), text, config))
    return tuple(judgements), tuple(name for name in expected if name not in written)


def _failure(now: ObservedTest, config: str | None, *, is_unchanged: bool) -> Failure:
    entry, name = now.entry, str(now.entry.test)
    if now.state in _BY_SLURM:
        kind, cause = _BY_SLURM[now.state]
        reason = f" ({now.reason})" if now.reason else ""
        lines = [line for line in _text_of(entry.folder / "job.log").splitlines()[-5:] if line.strip()]
        return Failure(name, "", kind, f"{cause}{reason}.", tuple(lines), next=_AGAIN)
    conclusion = "timed_out" if now.state in ("TIMEOUT", "DEADLINE") else "failure"
    try:
        failure = read_logs.diagnose_folder(entry.folder, FailedJob(name, conclusion=conclusion))
    except CannotTell:
        cause = "It wrote no log. Either its node cannot see the results folder, or the job never started."
        return Failure(name, "", "unknown", cause, next="Check that all nodes see the folder for results.")
    if now.state == "OUT_OF_MEMORY" and failure.kind != "out of memory":
        cause = "The node's memory (not the GPU's) ran out, and Slurm ended a process of the test."
        failure = replace(failure, kind="out of memory", cause=cause, next="Request more memory, or exclusive nodes.")
    if now.state == GONE:
        failure = replace(failure, cause=f"Neither Slurm nor the job shows how it ended. {failure.cause}", next=_AGAIN)
    if now.state == "COMPLETED" and not now.code and failure.kind == "unknown":
        note = "According to Slurm the job succeeded, but it wrote no golden values."
        failure = replace(failure, cause=f"{note} {failure.cause}")
    if failure.kind == "golden drift" and is_unchanged:
        failure = replace(failure, kind="unknown", cause=f"{failure.cause} {_EQUAL}", next=_COMPARE)
    if conclusion == "timed_out":
        logs = itertools.islice(entry.folder.rglob("*err*.log"), _MAX_LOGS)
        if any(b"(most recent call first)" in log_tail(log, _LOG_TAIL) for log in logs):
            place = "The end of each rank's stderr.log shows where its threads were before the time limit."
            failure = replace(failure, details={**failure.details, "stacks": place})
    if failure.kind in ("out of memory", "shape") and config is not None:
        failure = replace(failure, details={**_sizes(now, config), **failure.details})
    return failure


def _sizes(now: ObservedTest, config: str) -> dict[str, str]:
    """Return how the test's settings distribute its model; the log has precedence over them."""
    try:
        parallelism = Parallelism.parse(config)
    except CannotTell:
        return {}
    test = now.entry.test
    sizes = f"TP {parallelism.tensor}, CP {parallelism.context}, PP {parallelism.pipeline}"
    if parallelism.model and test.world_size % parallelism.model == 0:
        sizes += f", DP {test.world_size // parallelism.model}"
    batch = {name.replace("-", " "): value for name, value in _BATCH.findall(config)}
    return {"parallelism": sizes, "GPUs": f"{test.nodes} × {test.gpus}", **batch}


def _text_of(log: Path) -> str:
    return log_tail(log, _LOG_TAIL).decode("utf-8", "replace")
