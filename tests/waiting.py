"""Waiting for what another thread or process does."""

import time
from collections.abc import Callable


def wait_until(is_true: Callable[[], object], seconds: float = 120) -> None:
    """Wait for an event, by default two minutes at most."""
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)
