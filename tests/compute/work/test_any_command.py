"""A command of the user's inside the image: as it is, and as one group of workers on all GPUs of all nodes."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from runbook_lib.compute.engine import Engine
from runbook_lib.compute.work.allocation import Allocation
from runbook_lib.compute.work.any_command import plan_command
from runbook_lib.compute.work.container import WorkContainer
from runbook_lib.compute.work.image import WorkImage
from runbook_lib.compute.work.machine import Machine
from runbook_lib.compute.work.target import TARGETS, TargetName, WorkTarget
from runbook_lib.errors import RunbookError
from runbook_lib.pins.repositories import MEGATRON_LM

TRAIN = "torch.distributed.run pretrain_gpt.py --note 'a b'"


def target(name: TargetName, nodes: int = 1, gpus: int = 8, image: str = "megatron-lm:local") -> WorkTarget:
    container = WorkContainer.create(MEGATRON_LM, WorkImage.parse(image), "/c", "/u")
    machine = Machine(uid=1000, gid=1001, engine=Engine("docker"))
    return WorkTarget(name, container, machine, MEGATRON_LM.name, Allocation(nodes, gpus))


@pytest.mark.parametrize("name", [name for name in TARGETS if name != "host"])
def test_the_words_of_a_command_arrive_as_they_are(name: TargetName) -> None:
    words = target(name, image="nemo:26.06").command(
        plan_command("python -c 'print(\"a  b\", {x})' *.py", target(name))
    )
    assert words[-4:] == ("python", "-c", 'print("a  b", {x})', "*.py")


def test_gpus_are_requested_unless_there_are_none() -> None:
    assert "--gpus=all" in target("local").command(plan_command("nvidia-smi", target("local")))
    without = target("local", gpus=0)
    assert "--gpus=all" not in without.command(plan_command("python -V", without))


@pytest.mark.parametrize(
    ("text", "nodes", "gpus", "name"),
    [
        ("", 1, 8, "local"),
        ("  ", 1, 8, "slurm"),
        ("echo 'open", 1, 8, "local"),
        ("torchrun pretrain_gpt.py", 1, 8, "slurm"),
        ("/opt/venv/bin/torchrun x.py", 1, 8, "local"),
        ("hostname", 2, 8, "local"),
        (TRAIN, 1, 0, "slurm"),
    ],
)
def test_commands_that_cannot_run_are_refused(text: str, nodes: int, gpus: int, name: TargetName) -> None:
    with pytest.raises(RunbookError):
        plan_command(text, target(name, nodes, gpus))


def test_a_launcher_starts_one_worker_per_gpu() -> None:
    step = plan_command(TRAIN, target("local", gpus=4))
    assert step.command == (
        "uv", "run", "--no-sync", "python", "-m", "torch.distributed.run", "--nproc-per-node=4", "pretrain_gpt.py",
        "--note", "a b",
    )  # fmt: skip
    alibaba = plan_command(TRAIN, target("local", image="alibaba:25.05"))
    assert alibaba.command[:3] == ("python", "-m", "torch.distributed.run")


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node1", "node1"),
        ("node1,node2", "node1"),
        ("node[1-2]", "node1"),
        ("node[01-04,7],gpu2", "node01"),
        ("a-b[3,5]", "a-b3"),
        ("rack1-[09-10]", "rack1-09"),
        ("n[1-2]-ib", "n1-ib"),
        ("n[5]-ib,m1", "n5-ib"),
    ],
)
def test_on_several_nodes_the_first_is_the_master(tmp_path: Path, nodes: str, first: str) -> None:
    uv = tmp_path / "uv"
    uv.write_text("#!/usr/bin/env python3\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    uv.chmod(0o755)
    step = plan_command(TRAIN, target("slurm", nodes=2))
    srun = target("slurm", nodes=2, image="/shared/x.sqsh").command(step)
    assert {"--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=8"} <= set(srun)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_STEP_NODELIST": nodes, "SLURM_NNODES": "2",
        "SLURM_NODEID": "1", "SLURM_JOB_ID": "12345",
    }  # fmt: skip
    ran = subprocess.run(step.command, env=environment, check=True, capture_output=True, text=True)
    assert json.loads(ran.stdout) == [
        "run", "--no-sync", "python", "-m", "torch.distributed.run", "--nproc-per-node=8", "--nnodes=2",
        "--node-rank=1", f"--master-addr={first}", "--master-port=29845", "pretrain_gpt.py", "--note", "a b",
    ]  # fmt: skip
