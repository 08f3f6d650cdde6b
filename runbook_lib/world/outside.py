"""The outside of one run: the repository, the forge, and the journal of what is about to change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from runbook_lib.errors import RunbookError
from runbook_lib.model import Round
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.ports import Forge, Services
from runbook_lib.world.services import ONLINE


class Journal(Protocol):
    """Notes of a run that must be on disk before the change that they announce."""

    @property
    def is_bump(self) -> bool:
        """True for a run of all steps of a bump."""

    @property
    def steps(self) -> Sequence[Mapping[str, Any]]:
        """The steps of this run so far, as the record has them."""

    def planned_commit(self, parent: str, tree: str, kind: str) -> None:
        """Note a commit of a tree on ``parent``, both by their IDs, before a branch has it."""


@dataclass
class Changes:
    """What this run has changed so far: the IDs of its ``commits``, and the ``pushed`` ones by branch.

    ``published``: it has pushed something, or opened the pull request, so GitHub may need some seconds.
    ``refused`` are GitHub's refusals of texts, by the part of the description (``Described``).
    """

    commits: set[str] = field(default_factory=set)
    pushed: dict[str, str] = field(default_factory=dict)
    published: bool = False
    refused: dict[str, str] = field(default_factory=dict)


@dataclass
class World:
    """``github`` is None if there is no usable token, ``records`` is the bump's folder in the archive.

    ``folder`` is this run's record, for the logs of long processes; None if nothing is recorded.
    ``branches`` are the bump's branches that were read (``bump_branch.look``), so that each is read once.
    ``round`` is what the step before leaves of the newest CI run; None if it does not respond to it.
    """

    checkout: Checkout
    github: Forge | None
    journal: Journal
    services: Services = ONLINE
    records: Path | None = None
    changes: Changes = field(default_factory=Changes)
    branches: dict[str, Any] = field(default_factory=dict)
    round: Round | None = None
    folder: Path | None = None

    @property
    def forge(self) -> Forge:
        """GitHub.  Raises RunbookError without a token."""
        if self.github is None:
            raise RunbookError("GitHub cannot be queried without a token.", "Set GITHUB_TOKEN, then run again.")
        return self.github

    def sleep(self, seconds: float) -> None:
        """Wait until the clock of the services has moved on."""
        self.services.sleep(seconds)
