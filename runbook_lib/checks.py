"""The result of a check: a condition verified by reading the actual state again, and the evidence for the record."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from runbook_lib.decisions import Decision

Status = Literal["passed", "failed", "waiting", "skipped"]


@dataclass(frozen=True)
class Evidence:
    """What the record keeps of a plan or a check.

    ``inputs`` are resolved values such as ``head_commit``, ``links`` addresses by name (None removes one), ``tables``
    rows by name, ``files`` texts by file name, drawn only for a record, and ``decided`` people's decisions that were
    used, bound to what they were used on.  ``shown`` are views of what a condition found, shown below the conditions.
    """

    inputs: Mapping[str, object] = field(default_factory=dict)
    links: Mapping[str, str | None] = field(default_factory=dict)
    tables: Mapping[str, Sequence[Mapping[str, object]]] = field(default_factory=dict)
    diff: str = ""
    decided: tuple[Decision, ...] = ()
    warnings: tuple[str, ...] = ()
    files: Mapping[str, str | Callable[[], str]] = field(default_factory=dict)
    shown: tuple[object, ...] = ()


@dataclass(frozen=True)
class Waits:
    """What is waited for: ``reason`` is the sentence without its progress, so it stays while nothing else happens.

    ``for_ci``: CI decides it, and no person has to do anything before.
    """

    reason: str = ""
    for_ci: bool = False


@dataclass(frozen=True)
class Check:
    """The condition ``name``, its status, and the evidence as a sentence in ``detail``.

    In a preview a check is skipped, never passed; it is ``waiting`` while CI or a person has yet to decide it, and
    ``next`` is what they have to do; ``waits`` has the same for machines.
    """

    name: str
    status: Status
    detail: str
    next: str = ""
    evidence: Evidence = field(default_factory=Evidence, compare=False)
    waits: Waits = field(default_factory=Waits)

    @classmethod
    def of(
        cls, name: str, ok: bool, detail: str, otherwise: Status = "failed", next: str = "",
        evidence: Evidence | None = None,
    ) -> "Check":  # fmt: skip
        """Return a check that passed if ``ok``, and has the status ``otherwise`` if not."""
        return cls(name, "passed" if ok else otherwise, detail, next, evidence or Evidence())

    @classmethod
    def each(cls, names: Iterable[str], status: Status, detail: str) -> "list[Check]":
        """Return several checks with the same status and reason."""
        return [cls(name, status, detail) for name in names]
