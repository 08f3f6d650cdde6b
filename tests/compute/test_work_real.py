"""Work with uv for real: git repositories in conflict, and uv itself without a network."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from clones import commit, git

from runbook_lib.compute.command_run import run_step
from runbook_lib.compute.places import Machine, WorkPlace
from runbook_lib.compute.tasks import make_step
from runbook_lib.compute.work_image import WorkImage
from runbook_lib.compute.work_step import WorkFacts, WorkInside
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.ports import World

pytestmark = pytest.mark.slow

PROJECT = """\
[project]
name = "core"
version = "0.1"
requires-python = ">=3.11"
dependencies = []

[project.optional-dependencies]
training = []
dev = []

[dependency-groups]
test = []
"""
SOURCES = "".join(f'{name} = {{ path = "packages/{name}" }}\n' for name in ("ours", "theirs"))
JOINED = f"{PROJECT}\n[tool.uv.sources]\n{SOURCES}".replace("training = []", 'training = ["theirs"]').replace(
    "dev = []", 'dev = ["ours"]'
)


def sh(place: Path, *words: str, ok: bool = True) -> str:
    done = subprocess.run(words, cwd=place, capture_output=True, text=True, check=False)
    assert not ok or done.returncode == 0, done.stderr
    return (done.stdout + done.stderr).strip()


@pytest.fixture
def clone(offline_uv: None, tmp_path: Path) -> Path:
    """A clone of a project that uv has locked, on main, with packages that need no network."""
    texts = {"pyproject.toml": PROJECT, ".gitignore": ".venv\n"}
    for name in ("ours", "theirs"):
        texts[f"packages/{name}/pyproject.toml"] = f'[project]\nname = "{name}"\nversion = "1.0"\n'
    origin = commit(tmp_path / "Megatron-LM", texts)
    sh(origin, "uv", "lock")
    commit(origin, {})
    git(tmp_path, "clone", "-q", str(origin), "clone")
    return tmp_path / "clone"


def choose(clone: Path, whose: object = MEGATRON_BRIDGE, **request: str) -> WorkFacts:
    step = WorkInside(machine=Machine("/.dockerenv"), **request)
    return step.look(World(Checkout.open(clone), None, None), Bump.parse(repository=whose))  # type: ignore[arg-type]


def run(task: WorkFacts, clone: Path) -> None:
    for command in task.plan.steps:
        assert run_step(command, clone, clone.parent / "log", lambda _: None).status == "passed"


def diverge(clone: Path) -> None:
    """Main and a branch that both add a package, so that both change uv.lock in the same place."""
    origin = clone.parent / "Megatron-LM"
    git(clone, "switch", "-qc", "feature")
    run(choose(clone, task="add", arguments="--no-workspace --optional dev ./packages/ours"), clone)
    sh(origin, "uv", "add", "--no-sync", "--no-workspace", "--optional", "training", "./packages/theirs")
    for place in (clone, origin):
        commit(place, {})
    git(clone, "fetch", "-q")


def join(clone: Path, *how: str) -> None:
    """Begin to join main, and join pyproject.toml by hand, as a person does."""
    said = sh(clone, "git", *how, "origin/main", ok=False)
    assert "CONFLICT" in said
    assert "uv.lock" in said
    (clone / "pyproject.toml").write_text(JOINED)
    git(clone, "add", "pyproject.toml")


# -- what uv itself says -----------------------------------------------------------------------------------------


def test_uv_accepts_the_planned_commands(clone: Path) -> None:
    said = sh(clone, "uv", "sync", "--locked", "--dry-run", "--group", "dev", ok=False)
    assert "Group `dev` is not defined" in said  # as Megatron-LM's guide writes it
    (command,) = choose(clone, MEGATRON_LM, task="install", arguments="training dev test").plan.steps
    assert command.line == "uv sync --locked --extra training --extra dev --group test"
    sh(clone, *command.command, "--dry-run")


# -- conflicts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [("merge",), ("rebase",)], ids=["merge", "rebase"])
def test_a_real_conflict_is_resolved_by_main_and_uv(clone: Path, how: tuple[str, ...]) -> None:
    diverge(clone)
    join(clone, *how)
    task = choose(clone, task="conflict")
    assert task.plan.steps[0].command[:2] == ("git", "checkout")
    run(task, clone)
    lock = (clone / "uv.lock").read_text()
    assert "<<<<<<<" not in lock
    assert ('name = "ours"' in lock, 'name = "theirs"' in lock) == (True, True)
    sh(clone, "uv", "lock", "--check")
    assert choose(clone, task="conflict").plan.idle == "uv.lock is not in conflict."
    conclude = ("commit", "--no-edit") if how == ("merge",) else ("-c", "core.editor=true", "rebase", "--continue")
    git(clone, *conclude)
    assert git(clone, "status", "--porcelain") == ""


# -- an environment that is shared -------------------------------------------------------------------------------


def test_concurrent_syncs_wait_for_each_other(clone: Path, tmp_path: Path) -> None:
    here = WorkPlace("local", MEGATRON_LM, WorkImage.parse("x:local"), str(clone), cache=str(tmp_path / "cache"))
    step = make_step("sync-once", {**here.values, "locked": ("--locked",), "sync_options": ("--extra", "dev")})
    # The paths inside of the container are those of this machine here.
    words = [word.replace("/opt/uv-cache", str(tmp_path)) for word in step.command]
    given = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(clone / ".venv"), "VIRTUAL_ENV": "/opt/venv"}
    given["UV_PYTHON"] = "/opt/venv/bin/python"  # as the image has it; it must not be used
    given["PATH"] = f"{Path(sys.executable).parent}:{given['PATH']}"
    both = [subprocess.Popen(words, cwd=clone, env=given, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    told = [it.communicate(timeout=200)[1] for it in both]
    assert [it.returncode for it in both] == [0, 0, 0], told
    assert sum("Creating virtual environment" in it for it in told) == 1
    assert "include-system-site-packages = true" in (clone / ".venv/pyvenv.cfg").read_text()
