"""The place of a run and its bump: a person's checkout with the real services, or practice."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import ImageRef
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import Repository
from runbook_lib.pins.sites import PinnedImage
from runbook_lib.practice.forge import REPOSITORY
from runbook_lib.practice.world import PracticeWorld, open_world
from runbook_lib.record import archive, decisions
from runbook_lib.record.run_file import Identity
from runbook_lib.record.status import status
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.machine.files import locked
from runbook_lib.world.ports import ONLINE, Services
from runbook_lib.world.repository import choose

#: The lock in a checkout's git folder, and the variable that says that the parent of this process has it.
LOCK, LOCKED = "base-image-runbook.lock", "RUNBOOK_LOCKED"
#: The locks that this process holds until it ends.
_held = ExitStack()
#: Parameters of `Bump.parse`; each notebook defines only the ones it uses.
_BUMP_PARAMETERS = ("tag", "image_type", "base", "remote")
#: Number of tags that a form suggests; older ones can still be typed.
_TAGS = 12


def lock(checkout: Checkout) -> None:
    """Wait until no other run changes this checkout, and prevent others until this process ends."""
    if LOCKED not in os.environ:
        _hold(Path(checkout.git("rev-parse", "--path-format=absolute", "--git-common-dir")) / LOCK)


@cache
def _hold(file: Path) -> None:
    _held.enter_context(locked(file, print))


@dataclass(frozen=True)
class RunTarget:
    """The parameters of a run, by name.

    Without ``repo`` it is one in the practice environment.  What reads the checkout raises RunbookError.
    """

    values: Mapping[str, Any]

    @property
    def practice(self) -> bool:
        """True in the practice environment."""
        return not self.values.get("repo")

    @property
    def mode(self) -> str:
        """The mode of Apply; the practice environment always publishes, to its own forge."""
        return "publish" if self.practice else str(self.values.get("mode") or "local")

    @property
    def confirmation(self) -> str:
        """The word to type to confirm: the tag, or without a tag the base branch."""
        return str(self.values["tag"] or self.values["base"])

    @cached_property
    def world(self) -> PracticeWorld | None:
        """The practice environment; None for a checkout of a person."""
        return open_world() if self.practice else None

    @cached_property
    def checkout(self) -> Checkout:
        """The checkout."""
        return Checkout.open(self.world.checkout, REPOSITORY) if self.world else Checkout.open(self.values["repo"])

    @cached_property
    def repository(self) -> Repository:
        """The repository whose pins the checkout has."""
        return choose(self.checkout)

    @property
    def services(self) -> Services:
        """The services to use: the real ones, or those of the practice environment."""
        return self.world or ONLINE

    def bump(self, **more: Any) -> Bump:
        """Return the validated parameters, with ``more`` that are those of ``Bump.parse``."""
        parameters = {name: self.values[name] for name in _BUMP_PARAMETERS if name in self.values}
        return Bump.parse(**parameters, **more, repository=self.repository)

    def identity(self, bump: Bump) -> Identity:
        """Return what a bump is called in the archive."""
        repository = self.checkout.repository()
        return Identity(repository, bump.base, bump.image_type, bump.target, practice=self.practice)

    def folder(self) -> Path:
        """Return the bump's folder in the archive."""
        return archive.default().joinpath(*self.identity(self.bump()).parts)

    def decisions(self) -> Path:
        """Return the file of decisions."""
        path = decisions.path_of(str(self.values.get("decisions", "")), self.folder())
        assert path is not None
        return path

    def tag_in_flight(self) -> str:
        """Return the tag of the newest bump in flight in the archive; empty without one."""
        mine = self.identity(self.bump())
        for bump in status(archive.default()):
            if bump.is_in_flight and bump.parts == replace(mine, tag=bump.tag).parts:
                return bump.tag
        return ""

    def tags(self) -> tuple[list[str], str]:
        """Return the releases of each image, the newest first, of several as ``name:tag``, and a note on them."""
        names, notes = list[str](), list[str]()
        for image in self.repository.sites.images:
            try:
                of_image = self._tags(image)
            except RunbookError as error:
                notes.append(f"The registry could not be queried: {error} Type the tag.")
                continue
            names += of_image
            notes.append(f"Newest: {of_image[0]}." if of_image else f"{image.name} has no known release. Type the tag.")
        return names, " ".join(dict.fromkeys(notes))

    def _tags(self, image: PinnedImage) -> list[str]:
        listed = image.family.listed(self.services.registry(ImageRef.parse(image.name)).tags())
        releases = [tag for tag in listed if tag.kind == "release"]
        prefix = f"{image.short}:" if image.short else ""
        return [f"{prefix}{tag}" for tag in releases[:_TAGS]]
