"""Work with uv for real: git repositories in conflict, and uv itself without a network."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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

UV = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
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


def env(tmp_path: Path) -> dict[str, str]:
    """As inside the image: its own uv, and here no network and nobody's settings."""
    tools = tmp_path / "bin"
    tools.mkdir(exist_ok=True)
    (tools / "uv").unlink(missing_ok=True)
    (tools / "uv").symlink_to(UV)
    return {
        "PATH": f"{tools}:/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path), "UV_CACHE_DIR": str(tmp_path / "cache"),
        "UV_OFFLINE": "1", "UV_PYTHON": sys.executable, "UV_PYTHON_DOWNLOADS": "never", "UV_LINK_MODE": "copy",
        "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
    }  # fmt: skip


def sh(place: Path, *words: str, tmp: Path, ok: bool = True) -> str:
    done = subprocess.run(words, cwd=place, env=env(tmp), capture_output=True, text=True, check=False)
    assert not ok or done.returncode == 0, done.stderr
    return (done.stdout + done.stderr).strip()


def package(clone: Path, name: str) -> None:
    """A package that the project can depend on without a network."""
    folder = clone / "packages" / name
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(f'[project]\nname = "{name}"\nversion = "1.0"\n')


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of a project that uv has locked, on main."""
    origin, clone = tmp_path / "Megatron-LM", tmp_path / "clone"
    origin.mkdir()
    git = ("git", "-c", "user.name=A", "-c", "user.email=a@example.com")
    sh(origin, "git", "init", "-q", "-b", "main", tmp=tmp_path)
    (origin / "pyproject.toml").write_text(PROJECT)
    (origin / ".gitignore").write_text(".venv\n")
    for name in ("ours", "theirs", "third"):
        package(origin, name)
    sh(origin, "uv", "lock", tmp=tmp_path)
    sh(origin, "git", "add", ".", tmp=tmp_path)
    sh(origin, *git, "commit", "-qm", "first", tmp=tmp_path)
    sh(tmp_path, "git", "clone", "-q", str(origin), str(clone), tmp=tmp_path)
    sh(clone, "git", "config", "user.name", "A", tmp=tmp_path)
    sh(clone, "git", "config", "user.email", "a@example.com", tmp=tmp_path)
    sh(clone, "git", "config", "commit.gpgsign", "false", tmp=tmp_path)
    return clone


def choose(clone: Path, whose: object = MEGATRON_BRIDGE, **request: str) -> WorkFacts:
    step = WorkInside(machine=Machine("/.dockerenv"), **request)
    return step.look(World(Checkout.open(clone), None, None), Bump.parse(repository=whose))  # type: ignore[arg-type]


def run(task: WorkFacts, clone: Path, tmp: Path) -> None:
    for command in task.plan.steps:
        assert run_step(command, clone, tmp / "log", lambda _: None, env(tmp)).status == "passed"


def diverge(clone: Path, tmp: Path) -> None:
    """Main and a branch that both add a package, so that both change uv.lock in the same place."""
    origin = tmp / "Megatron-LM"
    sh(clone, "git", "switch", "-qc", "feature", tmp=tmp)
    run(choose(clone, task="add", arguments="--no-workspace --optional dev ./packages/ours"), clone, tmp)
    sh(origin, "uv", "add", "--no-sync", "--no-workspace", "--optional", "training", "./packages/theirs", tmp=tmp)
    for place in (clone, origin):
        sh(place, "git", "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-qam", "Add", tmp=tmp)
    sh(clone, "git", "fetch", "-q", tmp=tmp)


def join(clone: Path, tmp: Path, *how: str) -> None:
    """Begin to join main, and join pyproject.toml by hand, as a person does."""
    said = sh(clone, "git", *how, "origin/main", tmp=tmp, ok=False)
    assert "CONFLICT" in said
    assert "uv.lock" in said
    (clone / "pyproject.toml").write_text(JOINED)
    sh(clone, "git", "add", "pyproject.toml", tmp=tmp)


# -- what uv itself says -----------------------------------------------------------------------------------------


def test_uv_accepts_the_planned_commands(clone: Path, tmp_path: Path) -> None:
    said = sh(clone, "uv", "sync", "--locked", "--dry-run", "--group", "dev", tmp=tmp_path, ok=False)
    assert "Group `dev` is not defined" in said  # as Megatron-LM's guide writes it
    (command,) = choose(clone, MEGATRON_LM, task="install", arguments="training dev test").plan.steps
    assert command.line == "uv sync --locked --extra training --extra dev --group test"
    sh(clone, *command.command, "--dry-run", tmp=tmp_path)


# -- conflicts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [("merge",), ("rebase",)], ids=["merge", "rebase"])
def test_a_real_conflict_is_resolved_by_main_and_uv(clone: Path, tmp_path: Path, how: tuple[str, ...]) -> None:
    diverge(clone, tmp_path)
    join(clone, tmp_path, *how)
    task = choose(clone, task="conflict")
    assert task.plan.steps[0].command[:2] == ("git", "checkout")
    run(task, clone, tmp_path)
    lock = (clone / "uv.lock").read_text()
    assert "<<<<<<<" not in lock
    assert ('name = "ours"' in lock, 'name = "theirs"' in lock) == (True, True)
    sh(clone, "uv", "lock", "--check", tmp=tmp_path)
    assert choose(clone, task="conflict").plan.idle == "uv.lock is not in conflict."
    conclude = ("commit", "--no-edit") if how == ("merge",) else ("-c", "core.editor=true", "rebase", "--continue")
    sh(clone, "git", *conclude, tmp=tmp_path)
    assert sh(clone, "git", "status", "--porcelain", tmp=tmp_path) == ""


# -- an environment that is shared -------------------------------------------------------------------------------


def test_concurrent_syncs_wait_for_each_other(clone: Path, tmp_path: Path) -> None:
    here = WorkPlace("local", MEGATRON_LM, WorkImage.parse("x:local"), str(clone), cache=str(tmp_path / "cache"))
    step = make_step("sync-once", {**here.values, "locked": ("--locked",), "sync_options": ("--extra", "dev")})
    # The paths inside of the container are those of this machine here.
    words = [word.replace("/opt/uv-cache", str(tmp_path)) for word in step.command]
    given = {**env(tmp_path), "UV_PROJECT_ENVIRONMENT": str(clone / ".venv"), "VIRTUAL_ENV": "/opt/venv"}
    given["UV_PYTHON"] = "/opt/venv/bin/python"  # as the image has it; it must not be used
    given["PATH"] = f"{Path(sys.executable).parent}:{given['PATH']}"
    both = [subprocess.Popen(words, cwd=clone, env=given, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    told = [it.communicate(timeout=200)[1] for it in both]
    assert [it.returncode for it in both] == [0, 0, 0], told
    assert sum("Creating virtual environment" in it for it in told) == 1
    assert "include-system-site-packages = true" in (clone / ".venv/pyvenv.cfg").read_text()
