"""How a test of a matrix ended and why: from what Slurm says, the logs of all ranks, and its golden values."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from runbook_lib.errors import CannotTell
from runbook_lib.golden import match_artifacts, summary
from runbook_lib.golden import values as golden
from runbook_lib.golden.judge import Judgement, judge
from runbook_lib.recipes.parallelism import Parallelism
from runbook_lib.slurm.follow import GONE, Now
from runbook_lib.triage import known_problems, read_logs
from runbook_lib.triage.diagnose import FailedJob, Failure
from runbook_lib.triage.known_problems import Pitfall
from runbook_lib.triage.patterns import Kind

Word = Literal["passed", "drifted", "to be judged", "failed", "not over"]
#: Characters of a cause in a table; what is shown below has it whole.
_SHOWN = 160
#: Characters of the end of a node's log in which pitfalls are looked for.
_TAIL = 65536
#: Options of a test whose sizes decide how much memory it takes.
_BATCH = ("micro-batch-size", "global-batch-size", "seq-length")
_AGAIN = "Submit it again: name it, or all that failed, as again."
#: What Slurm did to a test, which its logs need not explain: class, cause, whether running again may help.
_BY_SLURM: Mapping[str, tuple[Kind, str, bool]] = {
    "NODE_FAIL": ("flaky infrastructure", "A node failed or did not answer, says Slurm", True),
    "BOOT_FAIL": ("flaky infrastructure", "A node did not boot, says Slurm", True),
    "PREEMPTED": ("flaky infrastructure", "The job was preempted by another, says Slurm", True),
    "REVOKED": ("unknown", "The job was revoked, says Slurm: another cluster of the federation ran it", False),
    "CANCELLED": ("unknown", "The job was cancelled, says Slurm", False),
}


@dataclass(frozen=True)
class Outcome:
    """``failure`` is None for a test that did not fail; ``judged`` are its golden values, against those of the commit.

    ``lacking`` are golden files that it should have left and did not.
    """

    now: Now
    failure: Failure | None = None
    judged: tuple[Judgement, ...] = ()
    pitfalls: tuple[Pitfall, ...] = ()
    lacking: tuple[str, ...] = ()

    @property
    def word(self) -> Word:
        """What became of it: values that only a refresh would change are a drift, others a person must judge."""
        if not self.now.over:
            return "not over"
        verdicts = {one.verdict for one in self.judged}
        if self.failure is not None and not (self.failure.kind == "golden drift" and verdicts and not self.lacking):
            return "failed"
        if verdicts & {"held back", "refused"}:
            return "to be judged"
        if self.lacking:
            return "failed"
        return "drifted" if "refresh" in verdicts else "passed"

    @property
    def row(self) -> dict[str, object]:
        """For a table."""
        entry, failure = self.now.entry, self.failure
        values = "; ".join(f"{one.verdict}: {summary.sentence(one)}".removesuffix(": ") for one in self.judged)
        lacking = f"{', '.join(self.lacking)} was not written" if self.lacking and self.now.over else ""
        more = [self.now.reason, f"attempt {self.now.restarts + 1}" if self.now.restarts else ""]
        told = ", ".join(filter(None, more))
        return {
            "test": f"{entry.test.model}/{entry.test.case}",
            "platform": entry.test.platform,
            "job": f"{entry.job}_{entry.index}" if entry.job is not None else "",
            "state": f"{self.now.word} ({told})" if told else self.now.word,
            "outcome": self.word,
            "class": failure.kind if failure else "",
            "cause": _short(failure.cause) if failure else "",
            "golden values": "; ".join(filter(None, (values, lacking))),
            "next": failure.next if failure else "",
        }


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"


def conclude(
    now: Now, old: Mapping[str, str | None], expected: Sequence[str], config: str | None
) -> Outcome:  # fmt: skip
    """What became of a test.  ``old`` are texts of golden files by name, ``expected`` the names of those to be left."""
    if not now.over:
        return Outcome(now)
    judged, lacking = _values(now, old, expected, config)
    if now.state == "COMPLETED" and not lacking:
        return Outcome(now, None, judged)
    failure = _failure(now, config)
    told = "\n".join([failure.cause, *failure.evidence, *_tails(now.entry.folder)])
    return Outcome(now, failure, judged, known_problems.find(told), lacking)


def _values(
    now: Now, old: Mapping[str, str | None], expected: Sequence[str], config: str | None
) -> tuple[tuple[Judgement, ...], tuple[str, ...]]:
    """The verdict on each golden file that a test left, and the names of those that it did not leave."""
    folder = now.entry.folder / "assets"
    judged: list[Judgement] = []
    found = {it.name for it in folder.glob("*.json") if match_artifacts.golden(it.name)} if folder.is_dir() else set()
    for name in sorted(found):
        file = match_artifacts.golden(name)
        try:
            with (folder / name).open("rb") as opened:
                text = opened.read(golden.MAX_BYTES + 1)  # one that is longer is refused by its length
        except OSError:
            continue
        if file is not None and file.environment == now.entry.test.environment:
            test = now.entry.test
            judged.append(judge(f"{test.model}/{test.case}/{file.file}", old.get(file.file), text, config))
    # Inference tests name their files otherwise: "generations…" stands for "golden_values…".
    have = {file.file for name in found if (file := match_artifacts.golden(name))}
    return tuple(judged), tuple(name for name in expected if name not in have)


def _failure(now: Now, config: str | None) -> Failure:
    entry = now.entry
    name = str(entry.test)
    if now.state in _BY_SLURM:
        kind, cause, retry = _BY_SLURM[now.state]
        said = f"{cause}{f' ({now.reason})' if now.reason else ''}."
        return Failure(name, "", kind, said, _last(entry.folder), None, retry, _AGAIN)
    try:
        found = read_logs.of_folder(entry.folder, FailedJob(name, conclusion=_conclusion(now)))
    except CannotTell:
        told = "It left no log. Either its node does not see the folder for results, or it never began."
        return Failure(name, "", "unknown", told, next="Look whether all nodes see the folder for results.")
    if now.state == "OUT_OF_MEMORY" and found.kind != "out of memory":
        cause = "The node's memory (not the GPU's) ran out, says Slurm: it ended a process of the test."
        found = replace(found, kind="out of memory", cause=cause, next="Ask for more memory, or for whole nodes.")
    if now.state == GONE and found.kind == "unknown":
        found = replace(found, cause=f"Neither Slurm nor the job says how it ended. {found.cause}", next=_AGAIN)
    if now.state == "COMPLETED" and found.kind == "unknown":
        found = replace(found, cause=f"It ended well, says Slurm, but left no golden values. {found.cause}")
    if found.kind in ("out of memory", "shape") and config is not None:
        found = replace(found, details={**_sizes(now, config), **found.details})
    return found


def _conclusion(now: Now) -> str:
    return "timed_out" if now.state in ("TIMEOUT", "DEADLINE") else "failure"


def _sizes(now: Now, config: str) -> dict[str, str]:
    """How the test spreads its model, from its settings; what the log tells counts more."""
    try:
        spread = Parallelism.parse(config)
    except CannotTell:
        return {}
    test = now.entry.test
    data = f", DP {test.world_size // spread.model}" if spread.model and not test.world_size % spread.model else ""
    sizes = f"TP {spread.tensor}, CP {spread.context}, PP {spread.pipeline}{data}"
    return {"parallelism": sizes, "GPUs": f"{test.nodes} × {test.gpus}", **_batch(config)}


def _batch(config: str) -> dict[str, str]:
    found = (re.search(rf"^ *['\"]?--{name}['\"]? *: *([0-9]{{1,9}})\b", config, re.MULTILINE) for name in _BATCH)
    return {name.replace("-", " "): it[1] for name, it in zip(_BATCH, found, strict=True) if it}


def _last(folder: Path) -> tuple[str, ...]:
    return tuple(line for line in _end(folder / "job.log").splitlines()[-5:] if line.strip())


def _tails(folder: Path) -> list[str]:
    return [_end(it) for it in (folder / "job.log", *sorted(folder.glob("node-*.err.log"))[:8])]


def _end(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, opened.seek(0, 2) - _TAIL))
            return opened.read(_TAIL).decode("utf-8", "replace")
    except OSError:
        return ""
