"""The table of tasks, and the commands that it gives for each state of a checkout, without uv itself."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from string import Formatter
from typing import Any

import pytest
from clones import commit, git

from runbook_lib.compute.places import Machine, PlaceName, WorkPlace
from runbook_lib.compute.slurm.site import Session
from runbook_lib.compute.tasks import (
    TABLE,
    PythonProject,
    TaskPlan,
    make_step,
    plan_task,
    read_facts,
    split_words,
)
from runbook_lib.compute.work_image import WorkImage
from runbook_lib.compute.work_step import WorkInside, command_values
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM, ML_CONTAINERS, Repository
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.ports import World

CORE = """
[project]
name = "core"
dependencies = ["torch>=2", "numpy"]
[project.optional-dependencies]
training = ["tiktoken"]
dev = ["einops~=0.8", "Nvidia_Resiliency.Ext"]
lts = []
[dependency-groups]
test = ["pytest", {include-group = "linting"}]
linting = ["ruff~=0.9"]
"""
BRIDGED = """
[project]
name = "bridge"
optional-dependencies = { recipes = ["nemo-run"], te = [] }
[dependency-groups]
dev = ["pre-commit>=3.6", "ruff>=0.9.9"]
test = ["pytest"]
"""
State, Planner = Callable[[Path], object], Callable[..., TaskPlan]
LINTERS = "uv run --isolated --locked --only-group"
LM, BRIDGE = MEGATRON_LM, MEGATRON_BRIDGE


def conflict(*paths: str) -> State:
    """These files are in conflict."""

    def unmerge(clone: Path) -> None:
        blob = git(clone, "rev-parse", "HEAD:uv.lock")
        entries = "".join(f"100644 {blob} {stage}\t{path}\n" for path in paths for stage in (1, 2, 3))
        command = ["git", "-C", str(clone), "update-index", "--index-info"]
        subprocess.run(command, input=entries, text=True, check=True)

    return unmerge


def file(path: str, text: str | None = "") -> State:
    """Commit a file, or with None remove it."""
    return lambda clone: commit(clone, {path: text})


def not_initialized(clone: Path) -> None:
    """The submodule is listed, and its folder is empty."""
    commit(clone, {".gitmodules": '[submodule "m"]\n\tpath = a b\n\turl = ../m\n'})
    git(clone, "update-index", "--add", "--cacheinfo", f"160000,{git(clone, 'rev-parse', 'HEAD')},a b")


def on_dev(clone: Path) -> None:
    """The submodule has the commit that is pinned for dev."""
    core = commit(clone / "3rdparty/Megatron-LM", {"a": ""})
    commit(clone, {".dev.commit": git(core, "rev-parse", "HEAD") + "\n"})


def lts(text: str) -> State:
    """The extra lts has packages, in this pyproject.toml."""
    return file("pyproject.toml", text.replace("lts = []", 'lts = ["einops~=0.8"]'))


PINNED, SWITCH, SCRIPT = map(file, TABLE["files"])
EDITED: State = lambda clone: (clone / "uv.lock").write_text("edited")  # noqa: E731
OLDER = CORE.replace('training = ["tiktoken"]', 'mlm = ["tiktoken"]')


@pytest.fixture(scope="module")
def clones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clones of both repositories with a lock, which track main."""
    folder = tmp_path_factory.mktemp("clones")
    for repository, text in ((LM, CORE), (BRIDGE, BRIDGED)):
        clone = commit(folder / repository.name, {"pyproject.toml": text, "uv.lock": "version = 1\n"})
        git(clone, "remote", "add", "origin", f"https://example.com/{repository.name}")
        git(clone, "update-ref", "refs/remotes/origin/main", "HEAD")
    return folder


@pytest.fixture
def plan(clones: Path, tmp_path: Path) -> Planner:
    """Return the plan of a task, with its arguments after its name, inside of a container; only states need a copy."""

    def look(repository: Repository, task: str, *states: State, **more: Any) -> TaskPlan:
        clone = clones / (BRIDGE.name if repository is BRIDGE else LM.name)
        if states:
            clone = Path(shutil.copytree(clone, tmp_path / "clone", dirs_exist_ok=True))
        for state in states:
            state(clone)
        name, _, arguments = task.partition(" ")
        machine = more.pop("machine", Machine("/.dockerenv"))
        step = WorkInside(name, more.pop("where", "here"), "nemo:26.06", arguments, machine=machine)
        world = World(Checkout.open(clone), None, None)  # type: ignore[arg-type]
        return step.look(world, Bump.parse(repository=repository, **more)).plan

    return look


# -- the table ---------------------------------------------------------------------------------------------------


def place(name: PlaceName = "here", image: str = "x:local", **more: Any) -> WorkPlace:
    machine = Machine("/.dockerenv" * (name == "here"), engine="docker")
    given = {"repository": LM, "checkout": "/c", "machine": machine, "cache": "/u", **more}
    return WorkPlace(name, image=WorkImage.parse(image), **given)


def conditions() -> Iterator[str]:
    for row in TABLE["tasks"].values():
        for key in ("refuse", "idle", "next", "warn"):
            yield from row.get(key, {})
    for row in TABLE["steps"].values():
        yield row.get("when", "")
    for row in TABLE["places"].values():
        yield from row["options"]


def test_each_condition_is_about_a_known_fact(clones: Path) -> None:
    known = {
        "on_gpus",
        "terminal",
        *read_facts(Checkout.open(clones / LM.name), "lock", (), "main", "dev"),
        *command_values(()),
    }
    for name in TABLE["where"]:
        known |= {*place(name).values, *place(name).image_file()}
    facts = {fact.removeprefix("!") for condition in conditions() for fact in condition.split()}
    assert facts - known == set()


@pytest.mark.parametrize("name", TABLE["steps"])
def test_every_step_of_the_table_is_complete(name: str) -> None:
    row = TABLE["steps"][name]
    assert set(row) <= {"title", "command", "place", "reason", "gpus", "terminal", "env", "when"}
    texts = [row["title"], row["command"], row["reason"], *row.get("env", {}).values()]
    step = make_step(name, {field: "one two" for text in texts for _, field, _, _ in Formatter().parse(text) if field})
    assert step.place in ("host", "container")
    assert step.command
    assert step.reason.endswith(".")
    assert "{" not in f"{step.title}{step.command}{step.reason}{list(step.env.values())}".replace("${", "")
    assert any(name in ([each] if isinstance(each, str) else each) for row in TABLE["tasks"].values()
               for each in row["steps"]) or name == "cache-folder"  # fmt: skip


# -- tasks of a project ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("repository", "task", "states", "lines"),
    [
        (LM, "install", (), ["uv sync --locked --extra training --extra dev --group test"]),
        (LM, "install linting", (), ["uv sync --locked --only-group linting"]),
        (LM, "install linting test", (), ["uv sync --locked --group linting --group test"]),
        (LM, "install --extra dev", (), ["uv sync --locked --extra dev"]),
        (LM, "install", (file("uv.lock", None),), ["uv sync --extra training --extra dev --group test"]),
        (LM, "install lts", (lts(CORE),), ["uv sync --locked --extra lts"]),
        (LM, "install", (lts(OLDER),), ["uv sync --locked --extra mlm --extra dev --group test"]),
        (BRIDGE, "install", (), ["uv sync --locked --all-extras --all-groups"]),
        (BRIDGE, "install", (on_dev,), ["uv sync --all-extras --all-groups"]),
        (BRIDGE, "lock", (not_initialized,), ["git submodule update --init 'a b'", "uv lock"]),
        (LM, "add --optional dev humanize~=4.0", (), ["uv add --no-sync --optional dev 'humanize~=4.0'"]),
        (LM, "add --optional lts humanize", (lts(CORE),), ["uv add --no-sync --optional lts humanize"]),
        (LM, "conflict", (conflict("uv.lock", "a.py"),), ["git checkout origin/main -- uv.lock", "uv lock"]),
        (LM, "conflict", (), []),
        (LM, "conflict", (conflict("a.py"),), []),
        (BRIDGE, "mcore-dev", (SWITCH,), ["bash scripts/switch_mcore.sh dev", "uv sync --all-extras --all-groups"]),
        (BRIDGE, "mcore-main", (SWITCH, EDITED), ["bash scripts/switch_mcore.sh main", "git stash push -- uv.lock"]),
        (BRIDGE, "format", (), [f"{LINTERS} dev ruff check --fix .", f"{LINTERS} dev ruff format ."]),
        (BRIDGE, "lint", (), [f"{LINTERS} dev ruff check .", f"{LINTERS} dev ruff format --check ."]),
        (LM, "lint", (SCRIPT,), [
            f"{LINTERS} linting env BASE_REF=main CHECK_ONLY=true SKIP_DOCS=false bash tools/autoformat.sh"]),
        (LM, "tests tests/a.py -k 'a b'", (), [
            "uv run --no-sync python -m torch.distributed.run --nproc-per-node=8 -m pytest -q tests/a.py -k 'a b'"]),
        (BRIDGE, "tests", (), ["uv run --no-sync python -m pytest -vs -m 'not pleasefixme' tests/unit_tests"]),
    ],
)  # fmt: skip
def test_the_commands_of_a_task(
    plan: Planner, repository: Repository, task: str, states: tuple[State, ...], lines: list[str]
) -> None:
    planned = plan(repository, task, *states)
    assert [step.line for step in planned.steps][: len(lines) or None] == lines
    assert bool(planned.idle) == (not lines)


@pytest.mark.parametrize(
    ("repository", "task", "states", "says"),
    [
        (LM, "install lts", (PINNED,), "docker/lts/requirements.txt"),
        (LM, "install lts", (), "extra lts"),
        (LM, "add --optional lts humanize", (), "extra lts"),
        (LM, "install devv", (), "Its extras are training, dev, lts; its groups are test"),
        (LM, "add --optional mlm humanize", (), "in favour of training"),
        (LM, "add", (), "needs a package"),
        (LM, "conflict", (conflict("uv.lock", "pyproject.toml"),), "by hand"),
        (LM, "lock", (conflict("uv.lock"),), "choose the task conflict"),
        (LM, "mcore-dev", (), "only Megatron-Bridge"),
        (LM, "lint", (file("pyproject.toml", '[project]\nname = "x"'),), "linters are"),
        (LM, "lock", (file("pyproject.toml", None),), "uv has nothing to work on"),
        (ML_CONTAINERS, "train", (), "no training"),
        (LM, "run", (), "needs a command"),
        (LM, "run echo 'open", (), "No closing quotation"),
        (LM, "run /opt/venv/bin/torchrun x.py", (), "Use torch.distributed.run"),
        (LM, "dance", (), "Choose one of session"),
        (LM, "lock now", (), "takes no arguments"),
        (LM, "demo", (), "Only Alibaba's image"),
    ],
)
def test_a_refusal_is_explained(
    plan: Planner, repository: Repository, task: str, states: tuple[State, ...], says: str
) -> None:
    with pytest.raises(RunbookError, match=says):
        plan(repository, task, *states)


def test_the_type_and_the_base_of_the_bump_count(plan: Planner) -> None:
    (synced,) = plan(LM, "install", lts(CORE), image_type="lts").steps
    assert synced.line == "uv sync --locked --extra training --extra lts --group test"
    with pytest.raises(RunbookError, match="`git fetch` it first"):
        plan(LM, "conflict", conflict("uv.lock"), base="core_r0.16.0")


def test_what_is_left_to_the_user_and_the_warnings(plan: Planner) -> None:
    assert "Resolve a.py as well" in plan(LM, "conflict", conflict("uv.lock", "a.py")).next
    added = plan(LM, "add --optional dev humanize~=4.0")
    assert added.warnings == ()
    assert "git switch -c build/add-humanize && " in added.next
    assert "git commit -S -s -m 'build: add humanize dependency' -- pyproject.toml uv.lock" in added.next
    assert "extra is preferred: training" in " ".join(plan(LM, "add humanize").warnings)
    assert "isort" in plan(LM, "format", SCRIPT).next
    assert "git commit -s -m 'build: add humanize' --" in plan(BRIDGE, "add --optional recipes humanize").next
    for state, count in ((file("a"), 1), (on_dev, 2), (file("uv.lock", None), 3)):
        assert len(plan(BRIDGE, "install", state).warnings) == count


def test_the_sync_depends_on_the_place(plan: Planner, clones: Path) -> None:
    for machine, where, words in (
        (Machine("/.dockerenv"), "here", "uv sync --locked"),
        (Machine(slurm=True), "here", f"flock {clones}/{LM.name}/.git/uv-sync.lock uv sync --locked"),
        (Machine(engine="docker"), "local", "docker run --rm"),
        (Machine(slurm=True), "slurm", "srun --nodes=1"),
    ):
        assert plan(LM, "install dev", where=where, machine=machine).steps[-1].line.startswith(words)
    for task, machine in (("lock", Machine(slurm=True)), ("session", Machine(slurm=True)), ("install", Machine())):
        with pytest.raises(RunbookError, match="this machine itself"):
            plan(LM, task, machine=machine)


@pytest.mark.parametrize(
    "text",
    ["", "[tool.x]", "project = 3", "[project", "<<<<<<< ours\n[project]\n", "a = " * 9,
     "[project]\noptional-dependencies = 3", "[project]\n[dependency-groups]\na = 5"],
)  # fmt: skip
def test_a_file_that_uv_does_not_manage_is_refused(text: str) -> None:
    with pytest.raises(CannotTell, match=r"pyproject\.toml"):
        PythonProject.parse(text)


# -- a command ---------------------------------------------------------------------------------------------------

TRAIN = "torch.distributed.run pretrain_gpt.py --note 'a b'"
LAUNCHER = ("python", "-m", "torch.distributed.run", "--nproc-per-node=8")


def run_task(text: str, where: WorkPlace) -> tuple[str, ...]:
    (step,) = plan_task("run", {**where.values, **command_values(split_words(text))}).steps
    return step.command


@pytest.mark.parametrize("name", ["here", "local", "slurm"])
def test_the_words_of_a_command_arrive_as_they_are(name: PlaceName) -> None:
    there = place(name, image="nemo:26.06")
    (step,) = plan_task("run", {**there.values, **command_values(("python", "-c", 'print("a  b", {x})', "*.py"))}).steps
    assert there.command(step)[-4:] == ("python", "-c", 'print("a  b", {x})', "*.py")


@pytest.mark.parametrize(("text", "nodes", "gpus", "name"), [("hostname", 2, 8, "local"), (TRAIN, 1, 0, "slurm")])
def test_commands_that_a_place_cannot_run_are_refused(text: str, nodes: int, gpus: int, name: PlaceName) -> None:
    with pytest.raises(RunbookError):
        run_task(text, place(name, session=Session(nodes, gpus)))


def test_a_launcher_starts_one_worker_per_gpu() -> None:
    assert run_task(TRAIN, place()) == ("uv", "run", "--no-sync", *LAUNCHER, "pretrain_gpt.py", "--note", "a b")
    assert run_task(TRAIN, place(image="alibaba:25.05"))[:4] == LAUNCHER


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node1", "node1"), ("node1,node2", "node1"), ("node[1-2]", "node1"), ("node[01-04,7],gpu2", "node01"),
        ("a-b[3,5]", "a-b3"), ("rack1-[09-10]", "rack1-09"), ("n[1-2]-ib", "n1-ib"), ("n[5]-ib,m1", "n5-ib"),
    ],
)  # fmt: skip
def test_on_several_nodes_the_first_is_the_master(tmp_path: Path, nodes: str, first: str) -> None:
    for program in ("uv", "python"):
        (tmp_path / program).write_text("#!/usr/bin/env python3\nimport json, sys\nprint(json.dumps(sys.argv))\n")
        (tmp_path / program).chmod(0o755)
    command = run_task(TRAIN, place("slurm", session=Session(2)))
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_STEP_NODELIST": nodes, "SLURM_NNODES": "2",
        "SLURM_NODEID": "1", "SLURM_JOB_ID": "12345",
    }  # fmt: skip
    ran = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    program, *words = json.loads(ran.stdout)
    assert [Path(program).name, *words[:-8]] == ["uv", *["run", "--no-sync", "python", "-m", "torch.distributed.run"]]
    assert words[-8:] == [
        "--nproc-per-node=8", "--nnodes=2", "--node-rank=1", f"--master-addr={first}", "--master-port=29845",
        "pretrain_gpt.py", "--note", "a b",
    ]  # fmt: skip
