"""The notebook work-inside: previews that change nothing, what it runs, what fails, and the record of each."""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import executing as run
import pytest
from clones import git
from executing import Ran
from slurm_cluster import cluster

from runbook_lib.bump.run import Run
from runbook_lib.compute.places import Machine
from runbook_lib.compute.work_step import WorkFacts, WorkInside
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins.bump import Bump
from runbook_lib.record.recorder import Recorder
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


def execute(clone: Path, **parameters: object) -> Ran:
    return run.execute(NOTEBOOK, {"repo": str(clone), "tag": TAG, **parameters})


def predicate(result: Ran) -> dict[str, Any]:
    assert result.record is not None
    return json.loads((result.record / "run.json").read_text())  # type: ignore[no-any-return]


def facts(clone: Path, machine: Machine, *, site: str = "", **parameters: str) -> WorkFacts:
    (clone.parent / "site.yaml").write_text(site)
    step = WorkInside(machine=machine, site=str(clone.parent / "site.yaml"), **parameters)
    return step.look(World(Checkout.open(clone), None, None), Bump.parse(tag=TAG))  # type: ignore[arg-type]


def test_a_preview_shows_the_commands_and_changes_nothing(clone: Path) -> None:
    result = execute(clone, task="lock")
    assert (result.state, result.ok) == ("previewed", True), result.summary
    assert [it["sentence"] for it in result.run["planned"]] == ["lock again: uv lock"]
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


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"task": "dance"}, "Choose one of session"),
        ({"task": "install", "arguments": "devv"}, "has no extra or group 'devv'"),
        ({"task": "lock", "arguments": "now"}, "takes no arguments"),
        ({"task": "lock", "where": "moon"}, "where='moon'"),
        ({"task": "session", "image": "nemo:26.99"}, "is not a tag of the NeMo images"),
        ({"task": "install", "image": "alibaba:25.05", "where": "local"}, "Do not reinstall PyTorch"),
        ({"task": "demo"}, "Only Alibaba's image"),
    ],
)
def test_a_refusal_is_explained(clone: Path, parameters: dict[str, str], says: str) -> None:
    with pytest.raises(RunbookError, match=says):
        facts(clone, Machine("/.dockerenv"), **parameters)


def test_a_session_is_shown_for_a_terminal(clone: Path) -> None:
    site = clone.parent / "site.yaml"
    site.write_text(f"cache: {clone.parent}\n")
    slurm = execute(clone, where="slurm", image="/shared/bridge.sqsh", site=str(site), mode="local")
    assert slurm.ok, slurm.summary
    assert predicate(slurm)["effects"] == []
    assert "In a terminal, in " in slurm.next
    assert slurm.summary.startswith("Shown: a shell inside the image.")


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
    def run_command(command: str) -> Ran:
        site = tmp_path / "site.yaml"
        site.write_text(f"nodes: 2\ngpus-per-node: 1\ncache: {tmp_path}\n")
        parameters = {"where": "slurm", "site": str(site), "image": str(tmp_path / "image.sqsh")}
        return execute(two_nodes, task="run", arguments=command, mode="local", **parameters)

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


@pytest.mark.parametrize("where", ["local", "slurm"])
def test_alibabas_image_of_a_region_runs_with_the_variables_given(clone: Path, where: str) -> None:
    site = "region: cn-hangzhou\nenv: {CHECKPOINT_OPTIMIZATION: 'true', NOTE: a b}\n"
    task = facts(clone, Machine(), task="demo", where=where, image="alibaba:25.05", site=site)
    words = " ".join(task.plan.steps[-1].command)
    assert re.search(
        r"acs-registry-vpc\.cn-hangzhou\.cr\.aliyuncs\.com[/#]egslingjun/training-nv-pytorch:25\.05", words
    )
    assert "CHECKPOINT_OPTIMIZATION=true" in words
    assert "NOTE=a b" in words


@pytest.mark.parametrize(
    ("site", "image", "match"),
    [
        ("env: {A: true}", "", "env.*expected a text|A is True; expected a text"),
        ("env: {A-B: c}", "", "no name of a variable"),
        ("region: the moon", "", "the moon"),
        ("time: soon", "", "expected a time limit"),
        ("", "alibaba:" + "2" * 129, "at most 128"),
        ("", "ours:" + "2" * 129, "at most 128"),
    ],
)
def test_a_wrong_region_variable_or_tag_is_refused(clone: Path, site: str, image: str, match: str) -> None:
    with pytest.raises(RunbookError, match=match):
        facts(clone, Machine(), where="local", image=image or "alibaba:25.05", site=site)


def test_a_test_that_cannot_run_here_is_refused(clone: Path, tmp_path: Path) -> None:
    for apply in (False, True):
        bump = Bump.parse(tag=TAG, mode="local" if apply else "preview")
        run = Run(bump, Checkout.open(clone), Recorder("work-inside", bump, "me/x", tmp_path))
        step = WorkInside("lock", "slurm", "nemo:26.06", machine=Machine())
        if apply:
            with pytest.raises(Refused, match="srun is not installed"):
                run.step(step)
        else:
            run.step(step)
            assert "run the commands on the cluster's login node" in run.record.show().text
    assert git(clone, "status", "--porcelain") == ""


def test_the_missing_folder_of_an_image_file_is_created(clone: Path, tmp_path: Path) -> None:
    for cache, first in ((tmp_path / "new/cache", "mkdir"), (tmp_path / "cache", "rm")):
        shown = facts(
            clone, Machine(slurm=True), task="import", where="slurm", image="nemo:26.06", site=f"cache: {cache}"
        )
        assert shown.plan.steps[0].command[0] == first
