"""The bump described by a form's values: its checkout, its parameters and its folder in the archive."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook_lib.git.checkout import Checkout
from runbook_lib.notebook import place
from runbook_lib.notebook.place import RunPlace
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import Repository
from runbook_lib.record import archive, decisions
from runbook_lib.record.run_file import Identity
from runbook_lib.record.status import status

Values = Mapping[str, str | bool]


@dataclass(frozen=True)
class FormTarget:
    """The values of a form of ``notebook``; ``repository`` is the description of the checkout's repository."""

    values: Values
    notebook: Path
    repository: Repository

    @property
    def practice(self) -> bool:
        """True in the practice environment."""
        return not self.values.get("repo")

    @property
    def publishes(self) -> bool:
        """True if Apply publishes; the practice environment always does, to its own forge."""
        return self.mode == "publish"

    @property
    def mode(self) -> str:
        """The mode of Apply."""
        return "publish" if self.practice else str(self.values.get("mode") or "local")

    def place(self) -> RunPlace:
        """Return the checkout with its services.  Raises RunbookError."""
        return place.find(str(self.values.get("repo", "")))

    def checkout(self) -> Checkout:
        """Open the checkout.  Raises RunbookError."""
        return self.place().checkout

    def bump(self, *, tag: bool = True) -> Bump:
        """Return the validated parameters; ``tag=False`` leaves the tag out.  Raises RunbookError."""
        names = ["image_type", "base", "remote"]
        if tag:
            names.append("tag")
        parameters: Any = {name: self.values[name] for name in names if name in self.values}
        return Bump.parse(**parameters, repository=self.repository)

    def confirmation(self) -> str:
        """Return the word to type to confirm: the tag, or without a tag the base branch.  Raises RunbookError."""
        bump = self.bump()
        return str(bump.tag or bump.base)

    def archive(self) -> Path:
        """Return the folder of the archive."""
        return archive.default(self.notebook)

    def folder(self) -> Path:
        """Return the bump's folder in the archive.  Raises RunbookError."""
        bump, owner = self.bump(), self.checkout().repository()
        identity = Identity(owner, bump.base, bump.image_type, bump.target, practice=self.practice)
        return self.archive().joinpath(*identity.parts)

    def decisions(self) -> Path:
        """Return the file of decisions.  Raises RunbookError."""
        path = decisions.path_of(str(self.values.get("decisions", "")), self.folder())
        assert path is not None
        return path

    def tag_in_flight(self) -> str:
        """Return the tag of the newest bump in flight in the archive; empty without one.  Raises RunbookError."""
        values = self.values
        key = (self.checkout().repository(), values.get("base"), values.get("image_type"), self.practice)
        for bump in status(self.archive()):
            if (bump.repository, bump.base, bump.image_type, bump.practice) == key and bump.is_in_flight:
                return bump.tag
        return ""
