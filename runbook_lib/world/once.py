"""Creation of what must exist once, where a reply may be lost and somebody else may be faster."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from runbook_lib.errors import RunbookError


class _HasUrl(Protocol):
    """An object of a service, with its own URL."""

    @property
    def url(self) -> str: ...


A = TypeVar("A", bound=_HasUrl)


def once(find: Callable[[], A | None], create: Callable[[], A], withdraw: Callable[[A], object] | None = None) -> A:
    """Return an existing object, or else create it.  After a failed creation, search again before raising.

    So neither a lost reply nor a faster person leads to a second one.  Of two that were created at the same moment
    ``find`` returns the older one, and the other is withdrawn by whoever created it, where the service accepts two.
    """
    if (existing := find()) is not None:
        return existing
    try:
        created = create()
    except RunbookError:
        if (existing := find()) is not None:
            return existing
        raise
    if withdraw is not None and (existing := find()) is not None and existing.url != created.url:
        withdraw(created)
        return existing
    return created
