"""Work with uv for real: git repositories in conflict, uv itself without a network, and steps that fail midway."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runbook_lib.compute import engine as engines
from runbook_lib.compute.command_run import run_step
from runbook_lib.compute.places import Machine, WorkPlace
from runbook_lib.compute.project import PythonProject, read_project_state
from runbook_lib.compute.tasks import make_step
from runbook_lib.compute.work_image import WorkImage
from runbook_lib.compute.work_step import WorkFacts, WorkInside
from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM
from runbook_lib.world.outside import World

pytestmark = pytest.mark.slow

INSIDE = Machine("/.dockerenv")
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

[tool.uv]
find-links = ["wheels"]
"""
BARE = PROJECT.replace('\n[tool.uv]\nfind-links = ["wheels"]\n', "")
SOURCES = "".join(f'{name} = {{ path = "packages/{name}" }}\n' for name in ("ours", "theirs"))
JOINED = f"{BARE}\n[tool.uv.sources]\n{SOURCES}".replace("training = []", 'training = ["theirs"]').replace(
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
    (origin / "pyproject.toml").write_text(BARE)
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


def choose(clone: Path, whose: object = MEGATRON_BRIDGE, here: Machine = INSIDE, **request: str) -> WorkFacts:
    step = WorkInside(machine=here, **request)
    return step.look(World(Checkout.open(clone), None, None), Bump.parse(repository=whose))  # type: ignore[arg-type]


def run(task: WorkFacts, clone: Path, tmp: Path) -> None:
    for command in task.runnable:
        assert run_step(command, clone, tmp / "log", lambda _: None, env(tmp)).status == "passed"


def diverge(clone: Path, tmp: Path) -> None:
    """Main and a branch that both add a package, so that both change uv.lock in the same place."""
    origin = tmp / "Megatron-LM"
    sh(clone, "git", "switch", "-qc", "feature", tmp=tmp)
    for place, name in ((clone, "ours"), (origin, "theirs")):
        extra = "dev" if name == "ours" else "training"
        sh(place, "uv", "add", "--no-sync", "--no-workspace", "--optional", extra, f"./packages/{name}", tmp=tmp)
        sh(place, "git", "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-qam", name, tmp=tmp)
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


# -- adding ------------------------------------------------------------------------------------------------------


def test_a_package_is_added_and_locked_however_often(clone: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "clone/wheels"
    wheel.mkdir()
    _wheel(wheel, "humanize")
    (clone / "pyproject.toml").write_text(PROJECT)
    for _ in range(2):
        run(choose(clone, task="add", arguments="--optional dev humanize"), clone, tmp_path)
        (added,) = PythonProject.parse((clone / "pyproject.toml").read_text()).extras["dev"]
        assert added.startswith("humanize")
    assert 'name = "humanize"' in (clone / "uv.lock").read_text()


def _wheel(folder: Path, name: str) -> None:
    import zipfile

    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as made:
        made.writestr(f"{name}.py", "")
        made.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        made.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr(f"{name}-1.0.dist-info/RECORD", "")


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


# -- Megatron-Core in Megatron-Bridge ----------------------------------------------------------------------------


def test_the_uv_lock_that_dev_changed_is_restored_and_saved(clone: Path, tmp_path: Path) -> None:
    (clone / "scripts").mkdir()
    (clone / "scripts/switch_mcore.sh").write_text('echo "switched to $1"\n')
    (clone / "uv.lock").write_text((clone / "uv.lock").read_text() + "# dev\n")
    task = choose(clone, task="mcore-main")
    run(task, clone, tmp_path)
    assert "# dev" not in (clone / "uv.lock").read_text()
    assert "+# dev" in sh(clone, "git", "stash", "show", "-p", tmp=tmp_path)
    assert (clone / ".venv").is_dir()
    assert "switched to main" in (tmp_path / "log").read_text()


def test_a_submodule_that_is_not_initialized_is_found(clone: Path, tmp_path: Path) -> None:
    head = sh(clone, "git", "rev-parse", "HEAD", tmp=tmp_path)
    sh(clone, "git", "update-index", "--add", "--cacheinfo", f"160000,{head},3rdparty/Megatron-LM", tmp=tmp_path)
    assert read_project_state(Checkout.open(clone), "x/y").submodules == ()
    (clone / ".gitmodules").write_text('[submodule "m"]\n\tpath = 3rdparty/Megatron-LM\n\turl = ../x\n')
    assert read_project_state(Checkout.open(clone), "x/y").submodules == ("3rdparty/Megatron-LM",)


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


# -- elsewhere ---------------------------------------------------------------------------------------------------


def test_uv_is_refused_outside_of_a_container_and_synced_once_for_slurm(clone: Path) -> None:
    for machine in (Machine(), Machine(slurm=True)):
        for task in ("lock", "lint", "session"):
            with pytest.raises((Refused, CannotTell)):
                choose(clone, MEGATRON_LM, machine, task=task, where="here")
    with pytest.raises(Refused):
        choose(clone, MEGATRON_LM, Machine(), task="install", where="here")
    (step,) = choose(clone, MEGATRON_LM, Machine(slurm=True), task="install", where="here", arguments="dev").plan.steps
    assert step.command[0] == "flock"
    assert step.command[2:] == ("uv", "sync", "--locked", "--extra", "dev")
    assert step.command[1].endswith("/.git/uv-sync.lock")
    shown = choose(clone, MEGATRON_LM, Machine(), task="lock")
    assert shown.obstacle.startswith("Neither docker nor podman")
    assert shown.plan.steps[-1].command[-2:] == ("uv", "lock")


def test_an_image_built_here_is_imported_once_for_a_cluster(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "image_id", lambda *_: "sha256:0123456789abcdef")
    here = Machine(engine="docker", slurm=True)
    (tmp_path / "site.yaml").write_text(f"cache: {tmp_path}\n")
    request = {"task": "session", "where": "slurm", "site": str(tmp_path / "site.yaml")}
    file = f"{tmp_path.parent}/megatron-lm-local-0123456789ab.sqsh"
    with pytest.raises(RunbookError, match="task import"):
        choose(clone, MEGATRON_LM, here, **request)
    Path(file).touch()
    try:
        (step,) = choose(clone, MEGATRON_LM, here, **request).plan.steps
        assert step.command[0] == "srun"
        assert f"--container-image={file}" in step.command
        assert "exists" in choose(clone, MEGATRON_LM, here, **{**request, "task": "import"}).plan.idle
    finally:
        Path(file).unlink()
    with pytest.raises(RunbookError, match="task import"):
        choose(clone, MEGATRON_LM, Machine(slurm=True), **request)
