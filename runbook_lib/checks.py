"""A check: something verified by reading the world again."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["passed", "failed", "waiting", "skipped"]


@dataclass(frozen=True)
class Check:
    """``name`` says what was verified, ``detail`` what was found.

    In a preview a check is skipped, never passed; ``waiting`` is one that only what is waited for can decide.
    """

    name: str
    status: Status
    detail: str

    @classmethod
    def of(cls, name: str, ok: bool, detail: str) -> "Check":
        """A check that was really made."""
        return cls(name, "passed" if ok else "failed", detail)
