"""The step of work-inside: previews that change nothing, what it runs, what fails, and the record of each."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from archives import told
from clones import commit, git
from slurm_cluster import cluster

from runbook_lib.bump.run import Run
from runbook_lib.compute import engine as engines
from runbook_lib.compute import work_step
from runbook_lib.compute.places import Machine
from runbook_lib.compute.work_step import WorkFacts, WorkInside
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.pins.bump import Bump
from runbook_lib.record.recorder import Recorder
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.ports import World

TAG = "26.04-py3"


@pytest.fixture
def clone(offline_uv: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone without a lock, inside of what looks like a container."""
    monkeypatch.setenv("container", "test")
    monkeypatch.setenv("GITHUB_REPOSITORY", "me/Megatron-Bridge")
    monkeypatch.setenv("RUNBOOK_AUDIT", str(tmp_path / "audit"))
    project = '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.11"\n'
    return commit(tmp_path / "clone", {"pyproject.toml": project})


def said(clone: Path, kind: str, *, mode: str = "preview", tag: str = TAG, **parameters: str) -> Any:
    """Run the step in this process, and return what it told the record of this kind."""
    bump, folder = Bump.parse(tag=tag, mode=mode), clone.parent / "record"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    record = Recorder("work-inside", bump, folder)
    Run(bump, Checkout.open(clone), record).step(WorkInside(**parameters))
    return told(record, kind)


def facts(clone: Path, machine: Machine, *, site: str = "", **parameters: str) -> WorkFacts:
    (clone.parent / "site.yaml").write_text(site)
    step = WorkInside(machine=machine, site=str(clone.parent / "site.yaml"), **parameters)
    return step.look(World(Checkout.open(clone), None, None), Bump.parse(tag=TAG))  # type: ignore[arg-type]


def test_a_preview_changes_nothing_and_what_it_shows_is_run_on_request(clone: Path) -> None:
    assert [it["sentence"] for it in said(clone, "planned", task="lock")] == ["lock again: uv lock"]
    assert said(clone, "effects", mode="local", tag="", task="lock") == []
    assert git(clone, "status", "--porcelain") == ""
    for _ in range(2):
        assert [it["after"] for it in said(clone, "effects", mode="local", task="lock")] == ["uv lock"]
        assert git(clone, "status", "--porcelain") == "?? uv.lock"
        assert "$ uv lock" in (clone.parent / "record/work-inside.log").read_text()
    (clone / "uv.lock").write_text("version = 0\n")
    (check,) = said(clone, "checks", mode="local", task="install")
    assert check["status"] == "failed"
    assert "The step “Sync the environment”" in check["detail"]


def test_a_session_is_shown_for_a_terminal(clone: Path) -> None:
    (clone.parent / "site.yaml").write_text(f"cache: {clone.parent}\n")
    site, image = str(clone.parent / "site.yaml"), "/shared/bridge.sqsh"
    (done,) = said(clone, "done", mode="local", where="slurm", image=image, site=site)
    assert done["sentence"].startswith("Shown: a shell inside the image.")
    assert "In a terminal, in " in done["next"]["because"]


@pytest.fixture
def two_nodes(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A clone beside a real Slurm of two nodes, whose srun runs on the nodes what Pyxis would run in a container."""
    (tmp_path / "image.sqsh").touch()
    for name, text in {
        "srun": f"""\
#!{sys.executable}
import os, sys
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
        monkeypatch.setenv("SLURM_CONF", started.environment["SLURM_CONF"])
        yield clone


@pytest.mark.component("slurm")
def test_a_command_runs_once_on_each_of_two_nodes(two_nodes: Path, tmp_path: Path) -> None:
    def run_command(command: str) -> tuple[str, str]:
        site = tmp_path / "site.yaml"
        site.write_text(f"nodes: 2\ngpus-per-node: 1\ncache: {tmp_path}\n")
        parameters = {"where": "slurm", "site": str(site), "image": str(tmp_path / "image.sqsh")}
        (check,) = said(two_nodes, "checks", task="run", arguments=command, mode="local", **parameters)
        return check["status"], check["detail"]

    assert run_command(f"bash -c 'echo $SLURMD_NODENAME >> {tmp_path}/ran-$SLURM_NODEID'")[0] == "passed"
    assert [(tmp_path / f"ran-{number}").read_text() for number in (0, 1)] == ["node1\n", "node2\n"]

    status, detail = run_command("bash -c 'exit $((7 * SLURM_NODEID))'")
    assert (status, "failed with exit status 7" in detail) == ("failed", True)

    assert run_command("torch.distributed.run train.py --lr 1")[0] == "passed"
    for number in (0, 1):
        words = (tmp_path / f"launched-{number}").read_text().split()
        assert words[5:9] == ["--nproc-per-node=1", "--nnodes=2", f"--node-rank={number}", "--master-addr=node1"]
        assert words[10:] == ["train.py", "--lr", "1"]


@pytest.mark.parametrize(("where", "after"), [("local", "/"), ("slurm", "#")])
def test_alibabas_image_of_a_region_runs_with_the_variables_given(clone: Path, where: str, after: str) -> None:
    site = "region: cn-hangzhou\nenv: {CHECKPOINT_OPTIMIZATION: 'true', NOTE: a b}\n"
    task = facts(clone, Machine(), task="demo", where=where, image="alibaba:25.05", site=site)
    words = " ".join(task.plan.steps[-1].command)
    image = f"acs-registry-vpc.cn-hangzhou.cr.aliyuncs.com{after}egslingjun/training-nv-pytorch:25.05"
    assert all(part in words for part in (image, "CHECKPOINT_OPTIMIZATION=true", "NOTE=a b"))


@pytest.mark.parametrize(
    ("site", "parameters", "match"),
    [
        ("env: {A: true}", {}, "env.*expected a text|A is True; expected a text"),
        ("region: the moon", {"image": "alibaba:25.05"}, "the moon"),
        ("time: soon", {}, "expected a time limit"),
        ("", {"image": "ours:" + "2" * 129}, "at most 128"),
        ("", {"image": "alibaba:25.05", "task": "install"}, "Do not reinstall PyTorch"),
        ("", {"where": "moon"}, "where='moon'"),
    ],
)
def test_a_wrong_site_or_image_is_refused(clone: Path, site: str, parameters: dict[str, str], match: str) -> None:
    with pytest.raises(RunbookError, match=match):
        facts(clone, Machine(), **{"where": "local", **parameters}, site=site)


def test_a_task_that_cannot_run_here_is_refused(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_step, "detect_machine", Machine)
    with pytest.raises(Refused, match="srun is not installed"):
        said(clone, "done", mode="local", task="lock", where="slurm", image="nemo:26.06")
    (shown,) = said(clone, "done", task="lock", where="slurm", image="nemo:26.06")
    assert "run the commands on the cluster's login node" in shown["sentence"]
    assert git(clone, "status", "--porcelain") == ""


def test_an_image_built_here_is_imported_once_for_a_cluster(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "image_id", lambda *_: "sha256:0123456789abcdef")
    here, request = Machine(engine="docker", slurm=True), {"where": "slurm", "site": f"cache: {clone.parent}/new/uv"}
    with pytest.raises(RunbookError, match="task import"):
        facts(clone, here, **request)
    file = clone.parent / "new/megatron-lm-local-0123456789ab.sqsh"
    assert [step.line for step in facts(clone, here, task="import", **request).plan.steps] == [
        f"mkdir -p -- {file.parent}", f"rm -f -- {file}.part",
        f"enroot import --output {file}.part dockerd://megatron-lm:local", f"mv -- {file}.part {file}",
    ]  # fmt: skip
    file.parent.mkdir()
    file.touch()
    assert f"--container-image={file}" in facts(clone, here, **request).plan.steps[-1].command
    assert str(file) in facts(clone, here, task="import", **request).plan.idle
    with pytest.raises(RunbookError, match="task import"):
        facts(clone, Machine(slurm=True), **request)
