"""Batch files for Slurm: the resources they request, what a container sees, and what is refused."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runbook_lib.compute.slurm.jobs import BATCH, SlurmJob, job_files
from runbook_lib.compute.slurm.selection import SelectedTest
from runbook_lib.compute.slurm.site import Resources, Session, Site
from runbook_lib.compute.workloads import Workload

FOLDER, TREE = Path("/shared/results/c/gpt-a/1"), Path("/shared/results/c/tree.tar")
SITE = Site("/shared/results", image="/images/mcore.sqsh")


def workload(
    case: str = "a", nodes: int = 1, gpus: int = 8, minutes: int = 30,
    script: str = "echo {test_case} > {assets_dir}/x",
) -> Workload:  # fmt: skip
    given = {"test_case": case}
    return Workload("r.yaml", "gpt", case, "dev", "dgx_h100", ("mr",), Resources(nodes, gpus, minutes), script, given)


def rendered(test: Workload, site: Site = SITE, connections: int | None = None) -> list[str]:
    """The texts of the batch file, of the task and of the script."""
    files = job_files(SlurmJob(SelectedTest(test, connections), FOLDER), site)
    assert list(files) == [FOLDER / BATCH, FOLDER / "task.sh", FOLDER / "script.sh"]
    return list(files.values())


def directives(batch: str) -> dict[str, str]:
    lines = (line.removeprefix("#SBATCH --") for line in batch.splitlines() if line.startswith("#SBATCH --"))
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def test_a_test_gets_the_resources_in_its_recipe() -> None:
    batch, *_ = rendered(workload(nodes=2, gpus=4, minutes=90))
    folders = (FOLDER, FOLDER.with_name("2"), Path("/other/gpt-a/1"))
    names = [SlurmJob(SelectedTest(workload()), folder).name for folder in folders]
    assert directives(batch) == {
        "job-name": names[0], "nodes": "2", "ntasks-per-node": "1", "gpus-per-node": "4", "time": "90",
        "output": f"{FOLDER}/job.log", "signal": "USR1@60", "exclusive": "", "no-requeue": "",
    }  # fmt: skip
    assert "GPUS_PER_NODE=4\n" in batch
    assert len(set(names)) == 3


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"session": Session(partition="a,b", account="me")}, {"partition": "a,b", "account": "me"}),
        ({"gpus": False}, {"gpus-per-node": None}),
        # A job has its nodes alone, unless the user decides how they are shared.
        *(({"options": (f"--{name}={value}",)}, {name: value, "exclusive": alone}) for name, value, alone in (
            ("exclude", "node[1-2,7]", ""), ("signal", "USR1@300", ""), ("gpus-per-node", "h100:8", ""),
            ("cpus-per-gpu", "16", None), ("oversubscribe", "yes", None),
        )),
    ],
)  # fmt: skip
def test_the_site_changes_what_is_requested(change: dict[str, Any], expected: dict[str, str | None]) -> None:
    found = directives(rendered(workload(), replace(SITE, **change))[0])
    assert {name: found.get(name) for name in expected} == expected


def test_the_files_of_a_test() -> None:
    _, task, script = rendered(workload(script="echo {name} ${{HOME}} {artifacts_dir}\n"), connections=1)
    assert script == f"echo gpt-a-dev-dgx_h100 ${{HOME}} {FOLDER}/artifacts\n"
    for line in (
        "export CUDA_DEVICE_MAX_CONNECTIONS=1", "cd /opt/megatron-lm",
        "export RUN_ID=runbook-$SLURM_JOB_ID",  # recipes delete folders below it: never empty
    ):  # fmt: skip
        assert line in task.splitlines()
    assert "unset CUDA_DEVICE_MAX_CONNECTIONS\n" in rendered(workload())[1]


def test_a_container_sees_a_copy_of_the_checkout_and_never_the_home() -> None:
    site = replace(SITE, mounts=["/data:/mnt/artifacts:ro"])
    batch, task, _ = rendered(workload(script="cd /opt/megatron-lm"), site)
    assert "--container-image=/images/mcore.sqsh" in batch
    mounts = "/shared/results/c:/shared/results/c,/data:/mnt/artifacts:ro"
    assert f"--container-mounts={mounts} " in batch
    assert "--no-container-mount-home" in batch
    assert "#SBATCH --no-container" not in batch  # it is an option of srun
    assert "export HF_HOME=/mnt/hf_home TRANSFORMERS_OFFLINE=1\n" in task
    assert f"\ntar -C /opt/megatron-lm --no-same-owner -xf {TREE}\n" in task


@pytest.mark.component("shellcheck")
def test_shellcheck_finds_nothing(tmp_path: Path) -> None:
    texts = rendered(workload("it's", script="true"))
    texts += rendered(workload(script="true"), SITE, 1)
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.sh").write_text(text if text.startswith("#!") else f"#!/bin/bash\n{text}")
    program = shutil.which("shellcheck") or "shellcheck"
    done = subprocess.run([program, *tmp_path.glob("*.sh")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
