"""Where a run works: in a checkout of a person, with the real services, or in the practice environment."""

from dataclasses import dataclass

from runbook_lib.practice import PracticeWorld
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.ports import Services


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
        from runbook_lib.world.services import ONLINE  # its clients take long to import

        return RunPlace(Checkout.open(repo), ONLINE)
    from runbook_lib.practice.forge import REPOSITORY
    from runbook_lib.practice.world import open_world

    world = open_world()
    return RunPlace(Checkout.open(world.checkout, REPOSITORY), world, world)
