"""The practice environment: a checkout, a forge, a second CI, a registry and a CI with failures, all on this machine.

`enter` leads a notebook to it.  `start` and `reset` create and remove its folder, the practice environment.
"""

from runbook_lib.practice.session import enter, environment
from runbook_lib.practice.world import PracticeWorld, default_home, is_world, reset, start

__all__ = ["PracticeWorld", "default_home", "enter", "environment", "is_world", "reset", "start"]
