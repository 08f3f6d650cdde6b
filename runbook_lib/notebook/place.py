"""Where a run works: in a checkout of a person, with the real services, or in the practice environment."""

import os
from dataclasses import dataclass
from typing import Any

from runbook_lib.git.checkout import Checkout
from runbook_lib.practice import PracticeWorld
from runbook_lib.world.ports import Services


@dataclass(frozen=True)
class Place:
    """A checkout with its services; ``practice`` is None for a real one."""

    checkout: Checkout
    services: Services
    practice: PracticeWorld | None = None


def find(repo: str) -> Place:
    """Return the place that the notebook parameter ``repo`` names; empty means the practice environment.

    Raises RunbookError for a path without a checkout, and for a practice environment that cannot be opened.
    """
    if repo:
        from runbook_lib.world.services import ONLINE  # its clients take long to import

        return Place(Checkout.open(repo), ONLINE)
    from runbook_lib.practice.hub import REPOSITORY
    from runbook_lib.practice.world import open_world

    world = open_world()
    _answer_for_registry_and_gitlab(world)
    return Place(Checkout.open(world.checkout, REPOSITORY), world, world)


def _answer_for_registry_and_gitlab(world: PracticeWorld) -> None:
    """Serve the practice registry, and let the scripted pipelines answer in place of GitLab."""
    from runbook_lib.clients.gitlab.client import GitLab
    from runbook_lib.practice.hub import REPOSITORY
    from runbook_lib.practice.registry.server import RegistryServer
    from runbook_lib.practice.second_ci import SecondCi
    from runbook_lib.practice.world import COPY, REMOTE

    if not _registry:
        _registry.append(RegistryServer())
    os.environ |= {"RUNBOOK_REGISTRY": _registry[0].url, "NGC_API_KEY": "", "GITLAB_URL": "http://127.0.0.1:9"}
    os.environ |= {"GITLAB_TOKEN": "practice-gitlab-token", "GITLAB_PROJECT": REPOSITORY}
    GitLab.scripted = SecondCi(REPOSITORY, world.home / REMOTE, world.home / COPY, (world.pages / "commit").as_uri())


_registry: list[Any] = []
