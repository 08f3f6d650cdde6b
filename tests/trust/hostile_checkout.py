"""A checkout with one pin, and a limit of time for reading it."""

import threading
from collections.abc import Callable

PIN = "docker/image"
PINS_FILE = f"""
version: 1
image: nvcr.io/nvidia/pytorch
pins:
  - path: {PIN}
    find: {{file: whole}}
"""


def within(seconds: float, act: Callable[[], object]) -> object:
    """Do it in a thread of its own, which may wait for ever."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(act()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it waits"
    return found[0]
