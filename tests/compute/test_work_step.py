"""The notebook work-inside: previews that change nothing, what it runs, what fails, and the record of each."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import cluster

from runbook_lib.bump.run import Run
from runbook_lib.compute.work.machine import Machine
from runbook_lib.compute.work_step import PlaceOptions, TaskOptions, WorkFacts, WorkInside
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins.bump import Bump
from runbook_lib.records.step_record import StepRecord
from runbook_lib.runner import execute as run
from runbook_lib.runner.execute import StepResult
from runbook_lib.world.outside import World

NOTEBOOK = Path(__file__).resolve().parents[2] / "runbooks/work-inside.ipynb"
TAG = "26.04-py3"
UV = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone without a lock, inside of what looks like a container with its own uv and without a network."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "uv").symlink_to(UV)
    for name, value in {
        "container": "test", "PATH": f"{tools}:{os.environ['PATH']}", "UV_OFFLINE": "1", "UV_PYTHON_DOWNLOADS": "never",
        "UV_CACHE_DIR": str(tmp_path / "cache"), "UV_PYTHON": sys.executable, "GITHUB_REPOSITORY": "me/Megatron-Bridge",
        "RUNBOOK_AUDIT": str(tmp_path / "audit"), "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    clone = tmp_path / "clone"
    clone.mkdir()
    git(clone, "init", "-q", "-b", "main")
    (clone / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.11"\n')
    git(clone, "add", ".")
    git(clone, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-qm", "first")
    return clone


def git(place: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", place, *words], check=True, capture_output=True, text=True).stdout.strip()


def execute(clone: Path, **parameters: object) -> StepResult:
    return run.execute(NOTEBOOK, {"repo": str(clone), "tag": TAG, **parameters})


def predicate(result: StepResult) -> dict[str, Any]:
    assert result.record is not None
    return json.loads((result.record / "run.json").read_text())["predicate"]  # type: ignore[no-any-return]


def facts(clone: Path, task: TaskOptions, place: PlaceOptions, machine: Machine) -> WorkFacts:
    step = WorkInside(task, place, machine)
    return step.look(World(Checkout.open(clone), None, None), Bump.parse(tag=TAG))  # type: ignore[arg-type]


def test_a_preview_shows_the_commands_and_changes_nothing(clone: Path) -> None:
    result = execute(clone, task="lock")
    assert (result.state, result.ok) == ("previewed", True), result.summary
    assert [it["sentence"] for it in result.planned] == ["lock again: uv lock"]
    assert git(clone, "status", "--porcelain") == ""
    assert result.record is not None
    assert "uv lock" in (result.record / "steps.csv").read_text()
    assert "-r task lock -r mode publish" in result.next


def test_the_same_is_run_on_request_and_again_does_no_harm(clone: Path) -> None:
    for _ in range(2):
        result = execute(clone, task="lock", mode="local")
        assert result.state == "done", result.summary
        assert [it["after"] for it in predicate(result)["effects"]] == ["uv lock"]
        assert {it["status"] for it in predicate(result)["checks"]} == {"passed"}
        assert git(clone, "status", "--porcelain") == "?? uv.lock"
        assert result.record is not None
        assert "$ uv lock" in (result.record / "work-inside.log").read_text()


def test_without_a_tag_nothing_is_run(clone: Path) -> None:
    result = run.execute(NOTEBOOK, {"repo": str(clone), "task": "lock", "mode": "local"})
    assert result.ok, result.summary
    assert git(clone, "status", "--porcelain") == ""


def test_a_step_that_fails_is_explained_in_the_record(clone: Path) -> None:
    (clone / "uv.lock").write_text("version = 0\n")
    result = execute(clone, task="install", mode="local")
    assert result.state == "failed"
    assert "The step “Sync the environment”" in result.summary
    assert "again" in result.summary
    assert predicate(result)["effects"] == []


@pytest.mark.slow
def test_a_refusal_changes_nothing(clone: Path) -> None:
    for parameters, says in (
        ({"task": "dance"}, "Choose one of session"),
        ({"task": "install", "install": "--group dev"}, "has no group 'dev'"),
        ({"task": "lock", "where": "moon"}, "where='moon'"),
        ({"task": "session", "image": "nemo:26.99"}, "is not a tag of the NeMo images"),
    ):
        result = execute(clone, mode="local", **parameters)
        assert result.state == "failed"
        assert says in result.summary
    assert git(clone, "status", "--porcelain") == ""


def test_a_session_is_shown_for_a_terminal(clone: Path) -> None:
    cache = str(clone.parent)
    slurm = execute(clone, where="slurm", image="/shared/bridge.sqsh", cache=cache, mode="local")
    assert slurm.ok, slurm.summary
    assert predicate(slurm)["effects"] == []
    assert "In a terminal, in " in slurm.next
    assert slurm.summary.startswith("Shown: a shell inside the image. ")  # and why it cannot be run from here


@pytest.mark.parametrize(("nodes", "warned"), [(1, False), (2, True)])
def test_a_session_on_several_nodes_opens_on_the_first_only(clone: Path, nodes: int, warned: bool) -> None:
    place = PlaceOptions("slurm", "/a.sqsh", slurm=f"nodes={nodes}")
    shown = facts(clone, TaskOptions("session"), place, Machine(slurm=True)).show().text
    assert ("on the first of the 2 nodes only" in shown) == warned


@pytest.fixture
def two_nodes(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A clone beside a real Slurm of two nodes, whose srun runs on the nodes what Pyxis would run in a container."""
    (tmp_path / "image.sqsh").touch()
    for name, text in {
        "srun": f"""\
#!{sys.executable}
import os, sys
if sys.argv[1] == "--help":
    sys.exit(print("--container-image"))
words = [word for word in sys.argv[1:] if not word.startswith(("--container-", "--no-container-"))]
os.execv({shutil.which("srun")!r}, ["srun", "--chdir={clone}", "--export=ALL", *words])
""",
        "uv": f'#!/bin/sh\necho "$@" > {tmp_path}/launched-$SLURM_NODEID\n',
    }.items():
        path = tmp_path / "bin" / name
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    monkeypatch.delenv("container")
    monkeypatch.setenv("GITHUB_REPOSITORY", "me/Megatron-LM")
    with cluster() as started:
        for name, value in started.environment.items():
            monkeypatch.setenv(name, value)
        yield clone


@pytest.mark.component("slurm")
def test_a_command_runs_once_on_each_of_two_nodes(two_nodes: Path, tmp_path: Path) -> None:
    def run_command(command: str) -> StepResult:
        parameters = {"where": "slurm", "slurm": "nodes=2 gpus=1", "image": str(tmp_path / "image.sqsh")}
        cache = str(tmp_path)
        return execute(two_nodes, task="run", command=command, cache=cache, mode="local", **parameters)

    result = run_command(f"bash -c 'echo $SLURMD_NODENAME >> {tmp_path}/ran-$SLURM_NODEID'")
    assert result.ok, result.summary
    assert [(tmp_path / f"ran-{number}").read_text() for number in (0, 1)] == ["node1\n", "node2\n"]

    failed = run_command("bash -c 'exit $((7 * SLURM_NODEID))'")
    assert failed.state == "failed"
    assert "failed with exit status 7" in failed.summary

    launched = run_command("torch.distributed.run train.py --lr 1")
    assert launched.ok, launched.summary
    for number in (0, 1):
        words = (tmp_path / f"launched-{number}").read_text().split()
        assert words[:6] == ["run", "--no-sync", "python", "-m", "torch.distributed.run", "--nproc-per-node=1"]
        assert words[6:9] == ["--nnodes=2", f"--node-rank={number}", "--master-addr=node1"]
        assert words[10:] == ["train.py", "--lr", "1"]


@pytest.mark.parametrize("where", ["local", "slurm", "apptainer"])
def test_alibabas_image_of_a_region_runs_with_the_variables_given(clone: Path, where: str) -> None:
    options = TaskOptions("demo", env="CHECKPOINT_OPTIMIZATION=true NOTE='a b'")
    task = facts(clone, options, PlaceOptions(where, "alibaba:25.05", region="cn-hangzhou"), Machine())
    words = " ".join(task.commands[-1].words)
    assert re.search(
        r"acs-registry-vpc\.cn-hangzhou\.cr\.aliyuncs\.com[/#]egslingjun/training-nv-pytorch:25\.05", words
    )
    assert "CHECKPOINT_OPTIMIZATION=true" in words
    assert "NOTE=a b" in words


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"env": "CHECKPOINT_OPTIMIZATION"}, "NAME=value"),
        ({"env": "A='b"}, "env="),
        ({"env": "A-B=c"}, "NAME=value"),
        ({"region": "cn-beijing", "image": "nemo:26.06"}, "Alibaba"),
        ({"region": "the moon"}, "the moon"),
        ({"image": "alibaba:" + "2" * 129}, "at most 128"),
        ({"image": "ours:" + "2" * 129}, "at most 128"),
    ],
)
def test_a_wrong_region_variable_or_tag_is_refused(clone: Path, parameters: dict[str, str], match: str) -> None:
    task = TaskOptions("session", env=parameters.pop("env", ""))
    place = PlaceOptions(**{"where": "local", "image": "alibaba:25.05", **parameters})
    with pytest.raises(RunbookError, match=match):
        facts(clone, task, place, Machine())


def test_a_test_that_cannot_run_here_is_refused(clone: Path, tmp_path: Path) -> None:
    for apply in (False, True):
        bump = Bump.parse(tag=TAG, mode="local" if apply else "preview")
        run = Run(bump, Checkout.open(clone), StepRecord("work-inside", bump, "me/x", tmp_path))
        step = WorkInside(TaskOptions("lock"), PlaceOptions("slurm", "nemo:26.06"), Machine())
        if apply:
            with pytest.raises(Refused, match="srun is not installed"):
                run.step(step)
        else:
            run.step(step)
            assert "run the commands on the cluster's login node" in run.record.show().text
    assert git(clone, "status", "--porcelain") == ""


def test_the_missing_folder_of_an_image_file_is_created(clone: Path, tmp_path: Path) -> None:
    for folder, first in ((tmp_path / "new", "mkdir"), (tmp_path, "rm")):
        place = PlaceOptions("slurm", "nemo:26.06", folder=str(folder))
        assert facts(clone, TaskOptions("import"), place, Machine(slurm=True)).commands[0].words[0] == first
