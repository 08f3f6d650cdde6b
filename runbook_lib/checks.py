"""The result of a check: a condition verified by reading the actual state again."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Status = Literal["passed", "failed", "waiting", "skipped"]
#: The check of a run that re-enabled tests; a bump's page reads it in the records.
REENABLED = "the re-enabled tests run again"


@dataclass(frozen=True)
class Check:
    """The condition ``name``, its status, and the evidence as a sentence in ``detail``.

    In a preview a check is skipped, never passed; it is ``waiting`` while CI or a person has yet to decide it.
    """

    name: str
    status: Status
    detail: str

    @classmethod
    def of(cls, name: str, ok: bool, detail: str, otherwise: Status = "failed") -> "Check":
        """Return a check that passed if ``ok``, and has the status ``otherwise`` if not."""
        return cls(name, "passed" if ok else otherwise, detail)

    @classmethod
    def each(cls, names: Iterable[str], status: Status, detail: str) -> "list[Check]":
        """Return several checks with the same status and reason."""
        return [cls(name, status, detail) for name in names]
