"""The real services, of which the environment has the addresses and tokens."""

import time

from runbook_lib.clients.github.client import GitHub
from runbook_lib.errors import RunbookError
from runbook_lib.world.ports import Forge


class OnlineServices:
    """GitHub, with the token of the environment or of ``gh``."""

    def forge(self, repository: str, *, required: bool) -> Forge | None:
        """Return GitHub; None if there is no usable token and it is not ``required``.  Raises RunbookError."""
        try:
            return GitHub(repository)
        except RunbookError:
            if required:
                raise
            return None

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def monotonic(self) -> float:
        """Return the time, in seconds."""
        return time.monotonic()


ONLINE = OnlineServices()
