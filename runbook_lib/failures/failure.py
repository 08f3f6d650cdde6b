"""A failed job, and the cause of its failure for display and records.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from runbook_lib.failures.patterns import RERUN, FailureKind


@dataclass(frozen=True)
class FailedJob:
    """A job as listed by the forge; ``conclusion`` in the forge's words, ``failed_steps`` if it reports any."""

    name: str
    url: str = ""
    conclusion: str = "failure"
    failed_steps: tuple[str, ...] = ()

    @property
    def timed_out(self) -> bool:
        return self.conclusion in ("timed_out", "timed out")


@dataclass(frozen=True)
class Clue:
    """A line that a rule matches; ``rule`` is empty for an error that no rule explains.

    ``line`` counts from 1, and is 0 in a log of which only the end was read.
    """

    file: str
    line: int
    text: str
    rule: str = ""

    @property
    def place(self) -> str:
        """Log and line, in words."""
        return f"{self.file}, line {self.line}" if self.line else self.file


@dataclass(frozen=True)
class Failure:
    """The cause of a job's failure.  ``evidence`` is verbatim except for colours, control characters and secrets.

    A cause that ends with ``…`` is cut.  ``where`` is the decisive line of the evidence.  ``tests`` are pytest's IDs of
    the tests that failed.
    """

    job: str
    url: str
    kind: FailureKind
    cause: str
    evidence: tuple[str, ...] = ()
    where: Clue | None = None
    next: str = ""
    details: Mapping[str, str] = field(default_factory=dict)
    rank: int | None = None
    confidence: float = 0.9
    clues: tuple[Clue, ...] = ()
    consequences: tuple[Clue, ...] = ()
    tests: tuple[str, ...] = ()

    @property
    def retry(self) -> bool:
        """True if the class says nothing about the change; for other failures, a second run proves nothing."""
        return self.kind in RERUN
