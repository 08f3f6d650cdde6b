"""The table of tasks, and the commands that it gives for each state of a checkout, without uv itself."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from runbook_lib.compute.allocation import Allocation
from runbook_lib.compute.places import Machine, PlaceName, WorkPlace
from runbook_lib.compute.project import ProjectState, PythonProject
from runbook_lib.compute.tasks import TABLE, TaskPlan, expand, make_step, plan_task, split_words
from runbook_lib.compute.work_image import WorkImage
from runbook_lib.compute.work_step import command_values
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.images.reference import ImageType
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM, ML_CONTAINERS, Repository

CORE = """
[project]
name = "core"
dependencies = ["torch>=2", "numpy"]
[project.optional-dependencies]
training = ["tiktoken"]
dev = ["einops~=0.8", "Nvidia_Resiliency.Ext"]
lts = []
[dependency-groups]
test = ["pytest"]
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
FILLED = CORE.replace("lts = []", 'lts = ["einops~=0.8", "tqdm"]')
PINNED = frozenset({"docker/lts/requirements.txt"})
SWITCH = frozenset({"scripts/switch_mcore.sh"})
SUBMODULE = "3rdparty/Megatron-LM"


def place(
    name: PlaceName = "here", repository: Repository = MEGATRON_LM, image: str = "x:local", **more: Any
) -> WorkPlace:
    machine = Machine("/.dockerenv" * (name == "here"), engine="docker")
    return WorkPlace(name, repository, WorkImage.parse(image), "/c", **{"machine": machine, "cache": "/u", **more})


def plan(
    task: str, arguments: str = "", repository: Repository = MEGATRON_LM, text: str = "", image_type: ImageType = "dev",
    where: WorkPlace | None = None, **state: Any,
) -> TaskPlan:  # fmt: skip
    parsed = PythonProject.parse(text or (BRIDGED if repository is MEGATRON_BRIDGE else CORE))
    if "files" in state and state["files"] != {"a"}:
        state["files"] |= {"uv.lock"}
    project, words = ProjectState(repository.name, parsed, **state), split_words(arguments)
    values = {**(where or place(repository=repository)).values, **project.values(image_type, words)}
    if task != "add":
        values["sync_options"] = project.sync_options(image_type, words)
    return plan_task(task, values)


def lines(plan: TaskPlan) -> list[str]:
    return [" ".join(step.command) for step in plan.steps]


# -- the table ---------------------------------------------------------------------------------------------------


def conditions() -> Iterator[str]:
    for row in TABLE["tasks"].values():
        for key in ("refuse", "idle", "next", "warn"):
            yield from row.get(key, {})
    for row in TABLE["steps"].values():
        yield row.get("when", "")


def test_each_condition_is_about_a_known_fact() -> None:
    project = ProjectState(MEGATRON_LM.name, PythonProject.parse(CORE))
    known = {*project.values(), *command_values(())}
    for name in TABLE["where"]:
        known |= {*place(name).values, *place(name).image_file()}
    facts = {fact.removeprefix("!") for condition in conditions() for fact in condition.split()}
    assert {fact for fact in facts - known if "/" not in fact} == set()


@pytest.mark.parametrize("name", TABLE["steps"])
def test_every_step_of_the_table_is_complete(name: str) -> None:
    row = TABLE["steps"][name]
    assert set(row) <= {"title", "command", "place", "reason", "gpus", "terminal", "env", "when"}
    texts = [row["title"], row["command"], row["reason"], *row.get("env", {}).values()]
    step = make_step(name, {field: "one two" for text in texts for _, field, _, _ in Formatter().parse(text) if field})
    assert step.place in ("host", "container")
    assert step.command
    assert step.reason.endswith(".")
    assert "{" not in f"{step.title}{step.command}{step.reason}{step.env}".replace("${", "")
    assert any(name in ([each] if isinstance(each, str) else each) for row in TABLE["tasks"].values()
               for each in row["steps"]) or name == "cache-folder"  # fmt: skip


def test_a_value_is_one_word_and_a_tuple_is_as_many_as_it_has() -> None:
    values = {"options": ("--optional", "dev"), "requirement": "x; {y} 'z", "none": ()}
    assert expand("uv add {options} {none} {requirement}", values) == ("uv", "add", "--optional", "dev", "x; {y} 'z")


# -- install -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("repository", "names", "command"),
    [
        (MEGATRON_LM, "", "uv sync --locked --extra training --extra dev --group test"),
        (MEGATRON_BRIDGE, "", "uv sync --locked --all-extras --all-groups"),
        (MEGATRON_BRIDGE, "dev test", "uv sync --locked --group dev --group test"),
        (MEGATRON_LM, "linting", "uv sync --locked --only-group linting"),
        (MEGATRON_LM, "linting test", "uv sync --locked --group linting --group test"),
    ],
)
def test_the_guides_choice_or_the_names_are_installed(repository: Repository, names: str, command: str) -> None:
    assert lines(plan("install", names, repository)) == [command]


@pytest.mark.parametrize(
    ("files", "text", "says"),
    [
        (PINNED, CORE, "docker/lts/requirements.txt"),
        (PINNED, FILLED, "docker/lts/req"),
        (frozenset(), CORE, "extra lts"),
    ],
)
def test_the_checkout_determines_the_location_of_the_lts_packages(files: frozenset[str], text: str, says: str) -> None:
    with pytest.raises(Refused, match=says):
        plan("install", text=text, image_type="lts", files=files)
    with pytest.raises(Refused, match=says):
        plan("add", "--optional lts humanize", text=text, files=files)


def test_an_extra_lts_with_packages_is_installed_and_added_to() -> None:
    assert "--extra training --extra lts" in lines(plan("install", text=FILLED, image_type="lts"))[0]
    assert "--optional lts" in lines(plan("add", "--optional lts humanize", text=FILLED))[0]
    older = FILLED.replace('training = ["tiktoken"]', 'mlm = ["tiktoken"]')
    assert "--extra mlm --extra lts" in lines(plan("install", text=older, image_type="lts"))[0]


def test_a_lock_that_cannot_match_is_not_required() -> None:
    for state in ({"files": frozenset({"a"})}, {"mcore_branch": "dev"}):
        unlocked = plan("install", repository=MEGATRON_BRIDGE, **state)
        assert lines(unlocked) == ["uv sync --all-extras --all-groups"]
        assert len(unlocked.warnings) == 2
    assert len(plan("install", repository=MEGATRON_BRIDGE, mcore_branch="main").warnings) == 1


def test_the_sync_depends_on_the_place() -> None:
    def first(where: WorkPlace) -> str:
        return plan("install", where=where).steps[0].command[0]

    assert [first(place(name)) for name in ("here", "local", "slurm")] == ["uv", "env", "env"]
    on_cluster = place("here", machine=Machine(slurm=True))
    project = ProjectState(MEGATRON_LM.name, PythonProject.parse(CORE)).values()
    values = {**on_cluster.values, **project, "host_lock": "/l", "sync_options": ()}
    assert plan_task("install", values).steps[0].command[:2] == ("flock", "/l")


def test_a_missing_submodule_is_initialized_first() -> None:
    steps = plan("lock", repository=MEGATRON_BRIDGE, submodules=(SUBMODULE,)).steps
    assert [step.line for step in steps] == [f"git submodule update --init {SUBMODULE}", "uv lock"]
    assert [step.place for step in steps] == ["host", "container"]


# -- add ---------------------------------------------------------------------------------------------------------


def test_a_dependency_is_added_and_its_commit_follows_the_repositorys_rules() -> None:
    added = plan("add", "--optional dev humanize~=4.0")
    assert lines(added) == ["uv add --no-sync --optional dev humanize~=4.0", "uv lock --check"]
    assert added.warnings == ()
    assert "git switch -c build/add-humanize && " in added.next
    assert "git commit -S -s -m 'build: add humanize dependency' -- pyproject.toml uv.lock" in added.next
    bridge = plan("add", "--optional recipes humanize", MEGATRON_BRIDGE)
    assert "git commit -s -m 'build: add humanize' --" in bridge.next
    assert "uv add --no-sync --group linting humanize" in lines(plan("add", "--group linting humanize"))
    required = plan("add", "humanize")
    assert "uv add --no-sync humanize" in lines(required)
    assert "extra is preferred: training" in " ".join(required.warnings)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--optional mlm humanize", "in favour of training"),
        ("", "needs a package"),
    ],
)
def test_an_addition_that_is_refused(arguments: str, says: str) -> None:
    with pytest.raises(RunbookError, match=says):
        plan("add", arguments)


# -- conflicts, branches and style ---------------------------------------------------------------------------------


def test_a_conflict_is_resolved_by_locking_again() -> None:
    resolved = plan("conflict", unmerged=("uv.lock", "a.py"))
    assert lines(resolved) == ["git checkout origin/main -- uv.lock", "uv lock", "git add -- uv.lock"]
    assert "Resolve a.py as well" in resolved.next


def test_a_conflict_that_only_the_user_can_resolve() -> None:
    for task, state, says in (
        ("conflict", {"unmerged": ("uv.lock", "pyproject.toml")}, "by hand"),
        ("conflict", {"unmerged": ("uv.lock",), "base": ""}, "`git fetch` it first"),
        ("lock", {"unmerged": ("uv.lock",)}, "choose the task conflict"),
    ):
        with pytest.raises(Refused, match=says):
            plan(task, **state)
    for nothing in ({}, {"unmerged": ("a.py",)}):
        assert plan("conflict", **nothing) == TaskPlan(idle="uv.lock is not in conflict.")


def test_switching_megatron_core() -> None:
    dev = plan("mcore-dev", repository=MEGATRON_BRIDGE, files=SWITCH, submodules=(SUBMODULE,))
    assert lines(dev)[1:] == ["bash scripts/switch_mcore.sh dev", "uv sync --all-extras --all-groups"]
    main = plan("mcore-main", repository=MEGATRON_BRIDGE, files=SWITCH, lock_changed=True, mcore_branch="dev")
    assert lines(main)[1:] == ["git stash push -- uv.lock", "uv sync --locked --all-extras --all-groups"]
    with pytest.raises(Refused, match="only Megatron-Bridge"):
        plan("mcore-dev")


def test_a_file_is_no_other_fact() -> None:
    hostile = frozenset({"image", "bridge", "lock_conflict", "linters"})
    assert plan("lint", repository=MEGATRON_BRIDGE, files=hostile) == plan("lint", repository=MEGATRON_BRIDGE)
    assert not hostile & ProjectState("x/y", PythonProject.parse(CORE), files=hostile).values().keys() - {
        "lock_conflict", "linters",
    }  # fmt: skip


def test_linters_come_from_the_projects_group() -> None:
    alone, script = "uv run --isolated --locked --only-group", {"files": frozenset({"tools/autoformat.sh"})}
    assert lines(plan("lint", base="upstream/core_r0.16.0", **script)) == [
        f"{alone} linting env BASE_REF=core_r0.16.0 CHECK_ONLY=true SKIP_DOCS=false bash tools/autoformat.sh"
    ]
    assert "CHECK_ONLY=false" in lines(plan("format", **script))[0]
    assert "isort" in plan("format", **script).next
    bridge = {task: lines(plan(task, repository=MEGATRON_BRIDGE)) for task in ("lint", "format")}
    assert bridge["format"] == [f"{alone} dev ruff check --fix .", f"{alone} dev ruff format ."]
    assert bridge["lint"] == [f"{alone} dev ruff check .", f"{alone} dev ruff format --check ."]
    with pytest.raises(Refused, match="linters are"):
        plan("lint", text='[project]\nname = "x"')


def test_a_repository_without_a_guide_has_no_training() -> None:
    with pytest.raises(Refused, match="no training"):
        plan("train", repository=ML_CONTAINERS)


# -- tests and a command -------------------------------------------------------------------------------------------


def test_unit_tests_run_in_a_process_group() -> None:
    launch = "uv run --no-sync python -m torch.distributed.run --nproc-per-node=8 -m pytest -q"
    for arguments, last in (
        ("", "tests/unit_tests"),
        ("tests/unit_tests/test_a.py -k 'a b'", "tests/unit_tests/test_a.py -k 'a b'"),
    ):
        (step,) = plan_task("tests", {**place().values, **command_values(split_words(arguments))}).steps
        assert (step.line, step.gpus) == (f"{launch} {last}", True)
    (step,) = plan_task("tests", {**place(repository=MEGATRON_BRIDGE).values, **command_values(())}).steps
    assert step.line.endswith("-m pytest -vs -m 'not pleasefixme' tests/unit_tests")


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


@pytest.mark.parametrize(
    ("text", "nodes", "gpus", "name"),
    [
        ("  ", 1, 8, "slurm"), ("echo 'open", 1, 8, "local"), ("torchrun pretrain_gpt.py", 1, 8, "slurm"),
        ("/opt/venv/bin/torchrun x.py", 1, 8, "local"), ("hostname", 2, 8, "local"), (TRAIN, 1, 0, "slurm"),
    ],
)  # fmt: skip
def test_commands_that_cannot_run_are_refused(text: str, nodes: int, gpus: int, name: PlaceName) -> None:
    with pytest.raises(RunbookError):
        run_task(text, place(name, allocation=Allocation(nodes, gpus)))


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
    command = run_task(TRAIN, place("slurm", allocation=Allocation(2)))
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
