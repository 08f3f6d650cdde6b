"""The process and the people of a run, and the environment of programs that are run for the user."""

import subprocess
import sys
from pathlib import Path

import pytest

from runbook_lib.world.machine import provenance
from runbook_lib.world.machine.subprocess_lines import user_environment


def test_distinguishes_a_process_from_a_later_one_with_the_same_id() -> None:
    me = provenance.process()
    assert provenance.is_alive(me)
    assert not provenance.is_alive({**me, "started": me["started"] - 60})
    assert provenance.is_alive({**me, "started": 0, "host": "elsewhere"})
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert not provenance.is_alive({**me, "pid": child.pid})


def test_a_ci_run_names_its_actor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {
        "GITHUB_ACTIONS": "true", "GITHUB_ACTOR": "ada", "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": "o/r", "GITHUB_RUN_ID": "7", "CI": "true",
    }  # fmt: skip
    assert provenance.who(env)["ci"] == {
        "service": "GITHUB_ACTIONS",
        "actor": "ada",
        "url": "https://github.com/o/r/actions/runs/7",
    }
    assert provenance.who({})["ci"] is None
    monkeypatch.chdir(tmp_path)
    assert provenance.who({})["git"] == "Ada Tester <ada@example.org>"


def test_this_programs_own_environment_is_left_out() -> None:
    venv = sys.prefix
    own = user_environment({"VIRTUAL_ENV": venv, "PATH": f"{venv}/bin:/usr/bin", "PYTHONNOUSERSITE": "1", "A": "b"})
    assert own == {"PATH": "/usr/bin", "A": "b"}
    other = {"VIRTUAL_ENV": "/opt/venv", "PATH": "/opt/venv/bin:/usr/bin"}
    assert user_environment(other) == other
