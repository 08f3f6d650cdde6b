"""The real services, of which the environment has the addresses and tokens."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import ImageRef
from runbook_lib.world.ports import Forge, Registry, SecondCi


@dataclass(frozen=True)
class OnlineServices:
    """GitHub, OCI registries and GitLab, with the settings in ``env``.  Each client is imported when it is needed."""

    env: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def forge(self, repository: str, *, required: bool) -> Forge | None:
        """Return GitHub; None if there is no usable token and it is not ``required``.  Raises RunbookError."""
        from runbook_lib.world.github.client import GitHub

        try:
            return GitHub(repository, self.env)
        except RunbookError:
            if required:
                raise
            return None

    def registry(self, ref: ImageRef) -> Registry:
        """Return the repository of an image in its registry, or at RUNBOOK_REGISTRY.  Sends nothing yet."""
        from runbook_lib.world.registry.client import OciRegistry

        return OciRegistry(ref, self.env)

    def second_ci(self, server: str = "", project: str = "") -> SecondCi | None:
        """Return GitLab, at GITLAB_URL or else at ``server``; None without either.  Raises RunbookError."""
        from runbook_lib.world.gitlab.client import GitLab

        settings = {name: value for name, value in self.env.items() if value}
        if not (server or settings.get("GITLAB_URL")):
            return None
        return GitLab({"GITLAB_URL": server, "GITLAB_PROJECT": project, **settings})

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def monotonic(self) -> float:
        """Return the time, in seconds."""
        return time.monotonic()


ONLINE = OnlineServices()
