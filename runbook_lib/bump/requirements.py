"""The requirements for a merge: what must hold, and what was found when it was read."""

from dataclasses import asdict, dataclass, field
from typing import Literal

from runbook_lib.checks import Next

State = Literal["met", "missing", "unknown", "inapplicable"]

#: The requirements in words, by kind.
NAMES = {
    "hold": "no hold by a person",
    "authorization": "authorization of the head commit",
    "ci": "a green CI run of the head commit",
    "commits": "commits that are the runbook's own or confirmed",
    "signatures": "signed commits",
    "pins": "pins that agree on that commit",
    "values": "golden values without open decisions",
    "issues": "an open issue for every broken test",
    "downstream": "the downstream tests that a label asks for",
    "second ci": "a green pipeline on GitLab",
    "push": "a push of the local commits",
}


@dataclass(frozen=True)
class Requirement:
    """What must hold before the merge: unknown is what could not be looked at, inapplicable what is not there.

    ``decisions`` are those of people that it rests on: accepted dangers, or the exception for what is unknown.
    ``running``: CI will decide it without a person.  ``url`` is that of the run or pipeline of the checked commit.
    """

    kind: str
    state: State
    evidence: str
    next: Next = field(default_factory=Next)
    decisions: tuple[str, ...] = ()
    running: bool = False
    url: str = ""

    @property
    def name(self) -> str:
        """The requirement in words."""
        return NAMES[self.kind]

    @property
    def blocks(self) -> bool:
        """False if it is met, or unknown and a person does without it."""
        return self.state == "missing" or (self.state == "unknown" and not self.decisions)

    def as_json(self) -> dict[str, object]:
        """Return it for the record."""
        return {**asdict(self), "name": self.name, "blocks": self.blocks}
