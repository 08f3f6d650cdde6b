"""A plan: what is shown first, what shall hold outside and the check of it, and what only a person can decide.

A step looks at the outside once, and a pure function turns what it saw into a plan.  Each condition can be shown, read
and made true; preview, apply, checks, outcome and record follow from that, and are written once (``Run``).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar

from runbook_lib.decisions import Decision, Decisions, Kind

if TYPE_CHECKING:
    from runbook_lib.display import Drawing, Picture, View

W = TypeVar("W", contravariant=True)
Status = Literal["passed", "failed", "waiting", "skipped"]


@dataclass(frozen=True)
class Evidence:
    """The part of a plan or a check that the record keeps.

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
    """The next action: what a person does, as a sentence, and the notebook that is run then.

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


@dataclass(frozen=True)
class Effect:
    """A completed change: ``kind`` is edit, branch, commit, push, pull request, label, comment, issue or rerun."""

    kind: str
    target: str
    before: object
    after: object
    url: str = ""


class Condition(Protocol[W]):
    """Something that shall hold outside; ``W`` is the world that it is read and made true in.

    It names stable keys (branch, head and base, marker, job and attempt), never an ID that is born in the run.
    """

    @property
    def sentence(self) -> str:
        """The change in the imperative, such as ``push bump/main/dev-26.04-py3 to origin``."""

    @property
    def leaves_machine(self) -> bool:
        """True if making it true publishes something."""

    def holds(self, world: W) -> Check:
        """Read the actual state.  Passed if nothing is left to do; waiting if only somebody else can make it true."""

    def make_true(self, world: W) -> Iterable[Effect]:
        """Make it true, and return or yield what was changed.  Raises RunbookError if it cannot be."""


@dataclass(frozen=True)
class Awaited:
    """A condition that does not hold by what the step saw, and that only a person or CI can make true."""

    sentence: str
    check: Check
    leaves_machine = False

    def holds(self, world: object) -> Check:
        """Return what is waited for."""
        return self.check

    def make_true(self, world: object) -> Iterable[Effect]:
        """Change nothing."""
        return ()


@dataclass(frozen=True)
class Question:
    """A decision that only a person can make, with its evidence; ``facts["key"]`` is the digest of the values."""

    kind: Kind
    subject: str
    why: str
    suggestion: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)

    def after(self, decisions: Decisions) -> "Question":
        """Return the question with what was decided before, on other values."""
        entry = decisions.entry(self.kind, self.subject)
        if not entry or not entry.seen or entry.seen.values == str(self.facts.get("key", "")):
            return self
        before = f"{entry.sentence}."
        return replace(self, why=f"{self.why} {before}", facts={**self.facts, "before": before})


@dataclass(frozen=True)
class Outcome:
    """The end of a step, as a sentence, and what comes next; ``for_ci``: it waits for CI, and for nobody else."""

    sentence: str
    next: Next = field(default_factory=Next)
    for_ci: bool = False


@dataclass(frozen=True)
class Round:
    """The rest that a step leaves of the newest CI run: the failed tests that nobody has decided.

    ``commits``: the step's plan has a commit in response, which a preview does not make.
    """

    undecided: tuple[str, ...] = ()
    commits: bool = False


@dataclass(frozen=True)
class Plan(Generic[W]):
    """``conditions`` are in order: each is made true only if those before it hold.

    ``waiting`` says for what the step waits once the conditions hold: CI, a maintainer, a person's decision.  ``done``
    is the outcome if it waits for nothing; an empty one stands for what the last condition found.  ``checks`` are
    judged from what was seen, and need no action.
    ``on_branch``: the conditions build on the bump's branch, or on the one with this name, or publish it, so its
    commits are reviewed first.
    ``only_reads``: the step never changes anything, so even its preview may wait for something.
    ``round`` is for the push of a round, which follows in the same notebook.
    """

    done: Outcome
    shown: "tuple[View | Picture | Drawing, ...]" = ()
    conditions: tuple[Condition[W], ...] = ()
    questions: tuple[Question, ...] = ()
    waiting: Outcome | None = None
    checks: tuple[Check, ...] = ()
    evidence: Evidence = field(default_factory=Evidence)
    on_branch: bool | str = True
    only_reads: bool = False
    round: Round | None = None
