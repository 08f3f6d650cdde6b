"""The result of a check: a condition verified by reading the actual state again, and the evidence for the record."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
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


#: Stands for the notebook that is running.
AGAIN = "again"


@dataclass(frozen=True)
class Next:
    """What comes next: what a person does, as a sentence, and the notebook that is run then.

    ``because`` may end with a colon before the notebook.  ``parameters`` are those that differ from this run's; in the
    record they are all.
    """

    because: str = ""
    notebook: str = ""
    parameters: Mapping[str, object] = field(default_factory=dict, hash=False)

    @classmethod
    def run(cls, notebook: str, because: str = "", **parameters: object) -> "Next":
        """Return the run of a notebook with these changes of parameters."""
        return cls(because, notebook, parameters)

    @classmethod
    def again(cls, because: str = "", **parameters: object) -> "Next":
        """Return another run of the same notebook with these changes of parameters."""
        return cls(because, AGAIN, parameters)

    def as_json(self) -> dict[str, object]:
        """Return it for the record."""
        return asdict(self)

    def __bool__(self) -> bool:
        return bool(self.because or self.notebook)

    def __str__(self) -> str:
        """The sentence, and the name of the notebook."""
        notebook = "Run again" if self.notebook == AGAIN else f"Run {self.notebook}"
        changes = ", ".join(f"{name}={value}" for name, value in self.parameters.items() if value is not None)
        run = f"{notebook}{' with ' if changes else ''}{changes}." if self.notebook else ""
        return f"{self.because} {run}".strip()


@dataclass(frozen=True)
class Check:
    """The condition ``name``, its status, and the evidence as a sentence in ``detail``.

    In a preview a check is skipped, never passed; it is ``waiting`` while CI or a person has yet to decide it, and
    ``next`` is what they have to do.  ``for_ci``: CI decides it, and no person has to do anything before.
    """

    name: str
    status: Status
    detail: str
    next: Next = field(default_factory=Next, compare=False)
    evidence: Evidence = field(default_factory=Evidence, compare=False)
    for_ci: bool = False

    @classmethod
    def of(
        cls, name: str, ok: bool, detail: str, otherwise: Status = "failed",
        evidence: Evidence | None = None,
    ) -> "Check":  # fmt: skip
        """Return a check that passed if ``ok``, and has the status ``otherwise`` if not."""
        return cls(name, "passed" if ok else otherwise, detail, evidence=evidence or Evidence())
