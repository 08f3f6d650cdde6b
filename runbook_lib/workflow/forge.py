"""The connection to the bump's forge."""

from runbook_lib.bump import Bump
from runbook_lib.clients.github.client import GitHub
from runbook_lib.errors import RunbookError


def connect_github(repository: str, bump: Bump) -> GitHub | None:
    """Return the forge, or None if there is no usable token and this run publishes nothing."""
    try:
        return GitHub(repository)
    except RunbookError:
        if bump.publish:
            raise
        return None
