"""Where a run works: in a checkout of a person, with the real services, or in the practice environment."""

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from runbook_lib.practice import PracticeWorld
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.machine.files import locked
from runbook_lib.world.ports import ONLINE, Services

#: The lock in a checkout's git folder, and the variable that says that the parent of this process has it.
LOCK, LOCKED = "base-image-runbook.lock", "RUNBOOK_LOCKED"
#: The locks that this process has, and holds until it ends.
_held: dict[Path, ExitStack] = {}


@dataclass(frozen=True)
class RunPlace:
    """A checkout with its services; ``practice`` is None for a real one."""

    checkout: Checkout
    services: Services
    practice: PracticeWorld | None = None


def find(repo: str) -> RunPlace:
    """Return the place that the notebook parameter ``repo`` names; empty means the practice environment.

    Raises RunbookError for a path without a checkout, and for a practice environment that cannot be opened.
    """
    if repo:
        return RunPlace(Checkout.open(repo), ONLINE)
    from runbook_lib.practice.forge import REPOSITORY
    from runbook_lib.practice.world import open_world

    world = open_world()
    return RunPlace(Checkout.open(world.checkout, REPOSITORY), world, world)


def lock(checkout: Checkout) -> None:
    """Wait until no other run changes this checkout, and prevent others until this process ends."""
    folder = checkout.git("rev-parse", "--path-format=absolute", "--git-common-dir")
    file = Path(folder) / LOCK
    if file in _held or LOCKED in os.environ:
        return
    with ExitStack() as stack:
        stack.enter_context(locked(file, print))
        _held[file] = stack.pop_all()
