"""The environment of programs that are run for the user."""

import sys

from runbook_lib.world.machine.subprocess_lines import user_environment


def test_this_programs_own_environment_is_left_out() -> None:
    venv = sys.prefix
    own = user_environment({"VIRTUAL_ENV": venv, "PATH": f"{venv}/bin:/usr/bin", "PYTHONNOUSERSITE": "1", "A": "b"})
    assert own == {"PATH": "/usr/bin", "A": "b"}
    other = {"VIRTUAL_ENV": "/opt/venv", "PATH": "/opt/venv/bin:/usr/bin"}
    assert user_environment(other) == other
