"""The failures of ``corpus/``: class, decisive message and rank.  Half of them are held out while rules are written."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from runbook_lib.triage import diagnose
from runbook_lib.triage.failure import FailedJob, Failure
from runbook_lib.triage.log_scanner import Scanner

CORPUS = Path(__file__).parent / "corpus"
GOAL = 0.9


class Case(NamedTuple):
    id: str
    kind: str
    rank: int | None
    root: str
    log: str
    set: str

    @property
    def group(self) -> str:
        """The blind set, or the half of the first corpus; no rule is written for the half that is held out."""
        if self.set.startswith("blind"):
            return self.set
        return "held out" if hashlib.sha256(self.id.encode()).digest()[0] % 2 else "tuned"

    def quotes_root(self, failure: Failure) -> bool:
        """Report if the cause quotes the decisive message, or an equal one."""
        return any(root in failure.cause for root in self.root.split(" || "))


def cases() -> Iterator[Case]:
    for path in sorted(CORPUS.glob("*.txt")):
        case: Case | None = None
        for line in path.read_text("utf-8").splitlines(keepends=True):
            head = line.removeprefix("=== ").strip().split(" | ")
            if line.startswith("=== ") and len(head) == 5:
                if case:
                    yield case
                case = Case(head[0], head[1], int(head[2]) if head[2] != "-" else None, head[3], "", path.stem)
            elif case:
                case = case._replace(log=case.log + line)
        if case:
            yield case


CASES = list(cases())


def diagnosed(log: str) -> Failure:
    scanner = Scanner("job.log")
    scanner.feed(log.encode())
    return diagnose.conclude(FailedJob("job.log"), [scanner.summary()])


def faults(case: Case, failure: Failure) -> list[str]:
    """Return what is wrong with a verdict."""
    wrong = []
    if failure.kind != case.kind:
        wrong.append(f"class {failure.kind}")
    if not case.quotes_root(failure):
        wrong.append(f"cause {failure.cause}")
    if case.rank is not None and failure.rank != case.rank:
        wrong.append(f"rank {failure.rank}")
    return wrong


def test_the_corpus_is_large_enough() -> None:
    assert len(CASES) >= 300
    assert len({case.id for case in CASES}) == len(CASES)


@pytest.mark.parametrize("group", sorted({case.group for case in CASES}))
def test_most_failures_have_the_right_class_root_and_rank(group: str) -> None:
    results = [(case, diagnosed(case.log)) for case in CASES if case.group == group]
    ranked = [(case, failure) for case, failure in results if case.rank is not None]
    right = sum(failure.kind == case.kind for case, failure in results)
    roots = sum(case.quotes_root(failure) for case, failure in results)
    ranks = sum(failure.rank == case.rank for case, failure in ranked)
    assert right >= GOAL * len(results), right
    assert roots >= GOAL * len(results), roots
    assert ranks >= GOAL * len(ranked), ranks


_CHATTER = "".join(f"step {number}: {number * 3} samples read, all is well\n" for number in range(2000))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_larger_window_leaves_the_verdict_as_it_is(case: Case) -> None:
    alone, within = diagnosed(case.log), diagnosed(f"{_CHATTER}{case.log}{_CHATTER}")
    assert (within.kind, within.cause, within.rank) == (alone.kind, alone.cause, alone.rank)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_log_that_ends_after_the_cause_has_the_same_class(case: Case) -> None:
    complete = diagnosed(case.log)
    if complete.clues:
        lines = case.log.splitlines(keepends=True)
        assert diagnosed("".join(lines[: complete.clues[0].line])).kind == complete.kind
