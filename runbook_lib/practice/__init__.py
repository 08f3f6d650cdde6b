"""The practice environment: a checkout, a forge, a second CI, a registry and a CI with failures, all on this machine.

`open_world` opens its folder, which it creates if necessary.
"""

from runbook_lib.practice.world import PracticeWorld, default_home, open_world

__all__ = ["PracticeWorld", "default_home", "open_world"]
