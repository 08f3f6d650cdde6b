"""Work with uv for real: git repositories in conflict, uv itself without a network, and steps that fail midway."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runbook_lib.bump import Bump
from runbook_lib.containers import run as container
from runbook_lib.containers.engine import Engine
from runbook_lib.containers.work import inspect, local, pyproject, pyxis, uv_git
from runbook_lib.containers.work import run as inside_do
from runbook_lib.containers.work.image import Image
from runbook_lib.containers.work.run import Command
from runbook_lib.containers.work.task import Here, Step
from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM
from runbook_lib.steps.work_inside import task as inside_task
from runbook_lib.steps.work_inside.task import Wish

INSIDE = Here("/.dockerenv", "Linux")
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


def choose(clone: Path, whose: object = MEGATRON_BRIDGE, here: Here = INSIDE, **wish: str) -> inside_task.Task:
    # Bridge's commits need no key, which this machine has not.
    return inside_task.choose(Checkout.open(clone), Bump.parse(repository=whose), Wish(**wish), here)  # type: ignore[arg-type]


def run(task: inside_task.Task, clone: Path, tmp: Path, **more: str) -> inside_do.Done:
    return inside_do.run(task.runnable, clone, tmp / "log", lambda _: None, {**env(tmp), **more})


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


def test_uv_refuses_what_is_prevented_and_takes_what_is_rendered(clone: Path, tmp_path: Path) -> None:
    said = sh(clone, "uv", "sync", "--locked", "--dry-run", "--group", "dev", tmp=tmp_path, ok=False)
    assert "Group `dev` is not defined" in said
    with pytest.raises(RunbookError, match="here it is an extra"):
        choose(clone, MEGATRON_LM, task="install", install="--group dev --group test")
    task = choose(clone, MEGATRON_LM, task="install", install="training dev test")
    (command,) = task.commands
    assert command.line == "uv sync --locked --extra training --extra dev --group test"
    sh(clone, *command.words, "--dry-run", tmp=tmp_path)
    said = sh(clone, "uv", "add", "--optional", "--extra", "dev", "./packages/ours", tmp=tmp_path, ok=False)
    assert "a value is required for '--optional" in said  # as Megatron-Bridge's guide writes it


def test_every_option_that_is_rendered_is_one_of_uvs(clone: Path, tmp_path: Path) -> None:
    everything = choose(clone, task="install")
    sh(clone, *everything.commands[-1].words, "--dry-run", tmp=tmp_path)
    sh(clone, "uv", "run", "--isolated", "--locked", "--only-group", "test", "true", tmp=tmp_path)
    sh(clone, "uv", "run", "--no-sync", "true", tmp=tmp_path)
    sh(clone, "uv", "sync", "--inexact", "--dry-run", tmp=tmp_path)


# -- adding ------------------------------------------------------------------------------------------------------


def test_a_package_is_added_locked_and_committed_alone(clone: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "clone/wheels"
    wheel.mkdir()
    _wheel(wheel, "humanize")
    (clone / "pyproject.toml").write_text(PROJECT)
    sh(clone, "uv", "lock", tmp=tmp_path)
    sh(clone, "git", "add", "pyproject.toml", "uv.lock", tmp=tmp_path)
    sh(clone, "git", "commit", "-qm", "wheels", tmp=tmp_path)
    sh(clone, "git", "push", "-q", "origin", "HEAD:refs/heads/other", tmp=tmp_path)
    sh(clone, "git", "update-ref", "refs/remotes/origin/main", "HEAD", tmp=tmp_path)
    (clone / "wip.py").write_text("mine\n")
    task = choose(clone, task="add", package="humanize", extra="dev")

    # Cut off before the commit: the next run goes on, and adds nothing twice.
    first = inside_do.run(task.runnable[:2], clone, tmp_path / "log", lambda _: None, env(tmp_path))
    assert first.failure is None, first.failure
    rest = choose(clone, task="add", package="humanize", extra="dev")
    assert [it.words[:2] for it in rest.runnable] == [("uv", "lock"), ("git", "add"), ("git", "commit")]
    done = run(rest, clone, tmp_path)

    assert done.failure is None, done.failure
    assert sh(clone, "git", "branch", "--show-current", tmp=tmp_path) == "build/add-humanize"
    assert sh(clone, "git", "log", "-1", "--format=%B", tmp=tmp_path).splitlines() == [
        "build: add humanize", "", "Signed-off-by: A <a@example.com>",
    ]  # fmt: skip
    changed = sh(clone, "git", "show", "--name-only", "--format=", tmp=tmp_path).split()
    assert changed == ["pyproject.toml", "uv.lock"]
    assert pyproject.Project.read((clone / "pyproject.toml").read_text()).where("humanize") == ("extra dev",)
    assert choose(clone, task="add", package="humanize", extra="dev").work.idle
    assert (clone / "wip.py").read_text() == "mine\n"


def _wheel(folder: Path, name: str) -> None:
    import zipfile

    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as made:
        made.writestr(f"{name}.py", "")
        made.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        made.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr(f"{name}-1.0.dist-info/RECORD", "")


def test_a_package_that_does_not_exist_leaves_the_files_as_they_were(clone: Path, tmp_path: Path) -> None:
    before = (clone / "pyproject.toml").read_bytes(), (clone / "uv.lock").read_bytes()
    done = run(choose(clone, task="add", package="no-such-package", extra="dev"), clone, tmp_path)
    assert done.failure is not None
    assert done.failure.command.step.title == "Add no-such-package to extra dev"
    assert "run again" in done.failure.sentence
    assert ((clone / "pyproject.toml").read_bytes(), (clone / "uv.lock").read_bytes()) == before


# -- conflicts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [("merge",), ("rebase",)], ids=["merge", "rebase"])
def test_a_real_conflict_is_resolved_by_main_and_uv(clone: Path, tmp_path: Path, how: tuple[str, ...]) -> None:
    diverge(clone, tmp_path)
    join(clone, tmp_path, *how)
    held = (clone / "uv.lock").read_bytes()
    task = choose(clone, task="conflict")
    assert task.commands[0].words[:2] == ("git", "checkout")
    done = run(task, clone, tmp_path)
    assert done.failure is None, done.failure
    lock = (clone / "uv.lock").read_text()
    assert "<<<<<<<" not in lock
    assert ('name = "ours"' in lock, 'name = "theirs"' in lock) == (True, True)
    assert sh(clone, "git", "status", "--porcelain", tmp=tmp_path) == ""
    sh(clone, "uv", "lock", "--check", tmp=tmp_path)
    parents = sh(clone, "git", "log", "-1", "--format=%P", tmp=tmp_path).split()
    assert len(parents) == (2 if how == ("merge",) else 1)
    assert choose(clone, task="conflict").work.idle == "uv.lock is not in conflict."
    ((path, blob),) = done.kept
    assert path == "uv.lock"
    assert sh(clone, "git", "cat-file", "blob", blob, tmp=tmp_path).encode() == held.strip()


def test_the_lock_of_main_is_that_of_the_commit_being_merged(clone: Path, tmp_path: Path) -> None:
    diverge(clone, tmp_path)
    join(clone, tmp_path, "merge")
    merged = sh(clone, "git", "rev-parse", "MERGE_HEAD", tmp=tmp_path)
    newer = sh(clone, "git", "commit-tree", "-p", merged, "-m", "newer", f"{merged}^{{tree}}", tmp=tmp_path)
    sh(clone, "git", "update-ref", "refs/remotes/origin/main", newer, tmp=tmp_path)
    assert inspect.tree(Checkout.open(clone), "x/y").theirs == merged
    # A branch that is not main's, merged into one's own: its lock is nobody's base.
    sh(clone, "git", "update-ref", "refs/remotes/origin/main", f"{merged}^", tmp=tmp_path)
    assert inspect.tree(Checkout.open(clone), "x/y").theirs != merged


def test_a_conflict_goes_on_after_uv_has_failed(clone: Path, tmp_path: Path) -> None:
    diverge(clone, tmp_path)
    join(clone, tmp_path, "merge")
    packages = clone / "packages"
    packages.rename(clone / "away")
    failed = run(choose(clone, task="conflict"), clone, tmp_path)
    assert failed.failure is not None
    assert failed.failure.command.words == ("uv", "lock")
    (clone / "away").rename(packages)
    again = choose(clone, task="conflict")
    assert [it.words[0] for it in again.runnable] == ["uv", "git", "git"]
    assert run(again, clone, tmp_path).failure is None
    assert sh(clone, "git", "status", "--porcelain", tmp=tmp_path) == ""


def test_other_conflicts_are_left_to_a_person(clone: Path, tmp_path: Path) -> None:
    diverge(clone, tmp_path)
    origin = tmp_path / "Megatron-LM"
    for place, text in ((clone, "ours\n"), (origin, "theirs\n")):
        (place / "a.py").write_text(text)
        sh(place, "git", "add", "a.py", tmp=tmp_path)
        sh(place, "git", "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "a", tmp=tmp_path)
    sh(clone, "git", "fetch", "-q", tmp=tmp_path)
    join(clone, tmp_path, "merge")
    task = choose(clone, task="conflict")
    assert "Resolve a.py as well" in task.work.after
    assert run(task, clone, tmp_path).failure is None
    assert "<<<<<<<" in (clone / "a.py").read_text()
    assert inspect.tree(Checkout.open(clone), "x/y").unmerged == ("a.py",)


def test_a_pyproject_in_conflict_is_not_joined(clone: Path, tmp_path: Path) -> None:
    diverge(clone, tmp_path)
    sh(clone, "git", "merge", "origin/main", tmp=tmp_path, ok=False)
    text = (clone / "pyproject.toml").read_text()
    sh(clone, "git", "checkout", "--conflict=merge", "--", "pyproject.toml", tmp=tmp_path, ok=False)
    (clone / "pyproject.toml").write_text(f"<<<<<<< ours\n{text}")
    with pytest.raises(CannotTell, match="join the file by hand"):
        choose(clone, task="conflict")


# -- Megatron-Core in Megatron-Bridge ----------------------------------------------------------------------------


def test_the_uv_lock_that_dev_left_is_taken_back_and_kept(clone: Path, tmp_path: Path) -> None:
    (clone / "scripts").mkdir()
    (clone / uv_git.SWITCH).write_text('echo "switched to $1"\n')
    (clone / "uv.lock").write_text((clone / "uv.lock").read_text() + "# dev\n")
    task = choose(clone, task="mcore-main")
    done = run(task, clone, tmp_path)
    assert done.failure is None, done.failure
    assert "# dev" not in (clone / "uv.lock").read_text()
    assert sh(clone, "git", "cat-file", "blob", done.kept[0][1], tmp=tmp_path).endswith("# dev")
    assert (clone / ".venv").is_dir()
    assert "switched to main" in (tmp_path / "log").read_text()


def test_a_submodule_that_is_not_initialized_is_found(clone: Path, tmp_path: Path) -> None:
    text = (clone / "pyproject.toml").read_text()
    (clone / "pyproject.toml").write_text(f'{text}\n[tool.uv.sources]\nmcore = {{ path = "3rdparty/Megatron-LM/" }}\n')
    assert inspect.tree(Checkout.open(clone), "x/y").missing == ()
    (clone / ".gitmodules").write_text('[submodule "m"]\n\tpath = 3rdparty/Megatron-LM\n\turl = ../x\n')
    assert inspect.tree(Checkout.open(clone), "x/y").missing == ("3rdparty/Megatron-LM",)
    (clone / "3rdparty/Megatron-LM").mkdir(parents=True)
    (clone / "3rdparty/Megatron-LM/pyproject.toml").write_text("")
    assert inspect.tree(Checkout.open(clone), "x/y").missing == ()


# -- an environment that is shared -------------------------------------------------------------------------------


def test_tasks_at_once_sync_one_after_the_other(clone: Path, tmp_path: Path) -> None:
    box = local.of(MEGATRON_LM, Image.parse("x:local"), str(clone), str(tmp_path / "cache"))
    step = pyxis.sync_once(box, ("--extra", "dev"))
    # The paths inside of the container are those of this machine here.
    words = [word.replace("/opt/uv-cache", str(tmp_path)) for word in step.command]
    here = {**env(tmp_path), "UV_PROJECT_ENVIRONMENT": str(clone / ".venv"), "VIRTUAL_ENV": "/opt/venv"}
    here["UV_PYTHON"] = "/opt/venv/bin/python"  # as the image has it; it must not be used
    here["PATH"] = f"{Path(sys.executable).parent}:{here['PATH']}"
    both = [subprocess.Popen(words, cwd=clone, env=here, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    told = [it.communicate(timeout=200)[1] for it in both]
    assert [it.returncode for it in both] == [0, 0, 0], told
    assert sum("Creating virtual environment" in it for it in told) == 1
    assert "include-system-site-packages = true" in (clone / ".venv/pyvenv.cfg").read_text()


# -- what fails --------------------------------------------------------------------------------------------------


def steps(*commands: tuple[str, ...]) -> tuple[Command, ...]:
    return tuple(Command(Step(f"Step {i}", it, "host", "Why."), it) for i, it in enumerate(commands))


def test_the_first_failing_step_ends_it_with_what_is_known(tmp_path: Path) -> None:
    said: list[str] = []
    commands = steps(
        ("sh", "-c", "echo fine"),
        ("sh", "-c", "echo 'error: Group `dev` is not defined in the project' >&2; exit 2"),
        ("touch", "never"),
    )
    done = inside_do.run(commands, tmp_path, tmp_path / "log", said.append, env(tmp_path))
    assert done.failure is not None
    assert (done.failure.status, len(done.commands)) == (2, 1)
    assert "--extra for [project.optional-dependencies]" in done.failure.sentence
    assert not (tmp_path / "never").exists()
    assert "fine" in said
    assert "$ touch never" not in (tmp_path / "log").read_text()


def test_secrets_are_neither_said_nor_kept(tmp_path: Path) -> None:
    said: list[str] = []
    here = env(tmp_path) | {"MY_TOKEN": "abcdefgh12345678"}
    inside_do.run(steps(("sh", "-c", "echo $MY_TOKEN")), tmp_path, tmp_path / "log", said.append, here)
    assert "abcdefgh12345678" not in (tmp_path / "log").read_text() + " ".join(said)


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunbookError, match="enroot is not installed here"):
        inside_do.run(steps(("enroot", "import")), tmp_path, tmp_path / "log", lambda _: None, env(tmp_path))


def test_an_interrupted_step_is_ended_with_what_it_started(tmp_path: Path) -> None:
    commands = steps(("sh", "-c", "echo $$ > pid; echo begun; sleep 60 & wait"))

    def interrupt(line: str) -> None:
        if line == "begun":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        inside_do.run(commands, tmp_path, tmp_path / "log", interrupt, env(tmp_path))
    group = int((tmp_path / "pid").read_text())
    for _ in range(600):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("what the step started goes on")


def test_a_step_is_ended_with_a_run_that_is_killed(tmp_path: Path) -> None:
    code = f"""
import os
from pathlib import Path
from runbook_lib.containers.work import run
from runbook_lib.containers.work.task import Step
here = Path({str(tmp_path)!r})
words = ("sh", "-c", "echo $$ >pid; exec sleep 300")
run.run([run.Command(Step("Wait", words, "host", "Why."), words)], here, here / "log", print, os.environ)
"""
    root = Path(__file__).resolve().parents[3]
    with subprocess.Popen([sys.executable, "-c", code], cwd=root) as runner:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert runner.poll() is None
            time.sleep(0.05)
        runner.kill()
    step = int((tmp_path / "pid").read_text())
    assert ends(step)


def ends(process: int) -> bool:
    for _ in range(600):
        if not alive(process):
            return True
        time.sleep(0.1)
    os.kill(process, 9)
    return False


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize("left", ["sleep 300", "yes"])
def test_a_step_has_ended_though_what_it_left_holds_its_output(tmp_path: Path, left: str) -> None:
    said: list[str] = []
    command = ("sh", "-c", f"{left} & echo $! >pid; echo begun")
    done = inside_do.run(steps(command), tmp_path, tmp_path / "log", said.append, env(tmp_path))
    assert (done.failure, "begun" in said or left == "yes") == (None, True)
    assert ends(int((tmp_path / "pid").read_text()))


def test_of_a_step_that_prints_without_end_the_beginning_and_the_end_are_said(tmp_path: Path) -> None:
    said: list[str] = []
    command = ("sh", "-c", "seq 100000; printf '%09000d\\n' 1; echo last")
    done = inside_do.run(steps(command), tmp_path, tmp_path / "log", said.append, env(tmp_path))
    assert done.failure is None
    assert said[1:3] == ["1", "2"]
    assert said[-1] == "last"
    assert "[… 97972 lines more, in the log]" in said
    assert sum(map(len, said)) < 100_000
    assert "\n50000\n" in (tmp_path / "log").read_text()


def test_this_programs_own_uv_is_not_the_images() -> None:
    venv = sys.prefix
    own = inside_do.own({"VIRTUAL_ENV": venv, "PATH": f"{venv}/bin:/usr/bin", "PYTHONNOUSERSITE": "1", "A": "b"})
    assert own == {"PATH": "/usr/bin", "A": "b"}
    other = {"VIRTUAL_ENV": "/opt/venv", "PATH": "/opt/venv/bin:/usr/bin"}
    assert inside_do.own(other) == other


# -- elsewhere ---------------------------------------------------------------------------------------------------


def test_elsewhere_uv_work_is_refused_and_for_slurm_synced_once(clone: Path) -> None:
    for task in ("lock", "install", "lint"):
        with pytest.raises((Refused, CannotTell)):
            choose(clone, MEGATRON_LM, Here(), task=task, where="host")
    with pytest.raises(Refused, match="macOS"):
        choose(clone, MEGATRON_LM, Here(system="Darwin"), task="lock", where="host")
    (step,) = choose(clone, MEGATRON_LM, Here(slurm=True), task="install", where="host", install="dev").commands
    assert step.words[0] == "flock"
    assert step.words[2:] == ("uv", "sync", "--locked", "--extra", "dev")
    assert step.words[1].endswith("/.git/uv-sync.lock")
    shown = choose(clone, MEGATRON_LM, Here(), task="lock")
    assert shown.lacking.startswith("Neither docker nor podman")
    assert shown.commands[-1].words[-2:] == ("uv", "lock")


def test_a_folder_for_the_cache_is_made_where_a_container_mounts_it(clone: Path, tmp_path: Path) -> None:
    docker, cache = Here(engine=Engine("docker")), str(tmp_path / "new")
    first = choose(clone, MEGATRON_LM, docker, task="lock", cache=cache).commands[0]
    assert first.words == ("mkdir", "-p", "--", cache)
    for here, where in ((INSIDE, "inside"), (INSIDE, "host")):
        (only,) = choose(clone, MEGATRON_LM, here, task="lock", cache=cache, where=where).commands
        assert only.words == ("uv", "lock")
    (tmp_path / "new").mkdir()
    assert len(choose(clone, MEGATRON_LM, docker, task="lock", cache=cache).commands) == 1


def test_on_a_cluster_an_image_that_was_built_here_is_imported_once(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "image_id", lambda *_: "sha256:0123456789abcdef")
    here = Here(engine=Engine("docker"), slurm=True)
    wish = {"task": "session", "where": "slurm", "cache": str(tmp_path)}
    file = f"{tmp_path.parent}/megatron-lm-local-0123456789ab.sqsh"
    task = choose(clone, MEGATRON_LM, here, **wish)
    assert [it.words[0] for it in task.commands] == ["rm", "enroot", "mv", "srun"]
    assert f"--container-image={file}" in task.commands[-1].words
    assert [it.step.terminal for it in task.commands] == [False, False, False, True]
    Path(file).touch()
    try:
        assert [it.words[0] for it in choose(clone, MEGATRON_LM, here, **wish).commands] == ["srun"]
        assert "made of this same image" in choose(clone, MEGATRON_LM, here, **{**wish, "task": "import"}).work.idle
    finally:
        Path(file).unlink()
    with pytest.raises(RunbookError, match="task import"):
        choose(clone, MEGATRON_LM, Here(slurm=True), **wish)


def test_an_image_that_is_not_there_is_found_before_anything_is_run(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = Here(engine=Engine("docker"))
    monkeypatch.setattr(container, "image_id", lambda *_: "")
    assert "build it first" in choose(clone, MEGATRON_LM, docker, task="lock").lacking
    monkeypatch.setattr(container, "image_id", lambda *_: "sha256:1")
    assert choose(clone, MEGATRON_LM, docker, task="lock").lacking == ""


def test_alibabas_image_is_run_and_never_changed(clone: Path) -> None:
    docker = Here(engine=Engine("docker"))
    with pytest.raises(Refused, match="Do not reinstall PyTorch"):
        choose(clone, MEGATRON_LM, docker, task="install", image="alibaba:25.05")
    demo = choose(clone, MEGATRON_LM, docker, task="demo", image="alibaba:25.05")
    assert demo.commands[-1].words[-1] == "deepspeed/llama3-8b"
    assert "Do not reinstall" in demo.show().text
    with pytest.raises(RunbookError, match="Only Alibaba's image"):
        choose(clone, MEGATRON_LM, docker, task="demo")


def test_what_a_task_is_shown_as(clone: Path) -> None:
    task = choose(clone, MEGATRON_LM, Here(engine=Engine("docker")), task="session", install="dev")
    text = task.show().text
    assert "Commands, to be run in" in text
    assert "--volume=" in text
    assert task.shown_only[0].words[-1] == "bash"
    assert all(it.step.where == "host" or "docker" in it.words for it in task.runnable)
    with pytest.raises(RunbookError, match="is none of session"):
        choose(clone, task="sesion")
    with pytest.raises(RunbookError, match="expected words such as nodes=1"):
        choose(clone, task="session", slurm="nodes 2")
