"""The labelled failures of ``failures/corpus``, and their diagnosis."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from runbook_lib.failures import diagnose
from runbook_lib.failures.evidence import FailedJob, Failure
from runbook_lib.failures.log_scanner import Scanner

CORPUS = Path(__file__).parent / "failures" / "corpus"


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
