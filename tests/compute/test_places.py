"""The places where a step runs: which a machine has, each option of each way, image files, and what is refused."""

import os
import re
import subprocess
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.compute import engine as engines
from runbook_lib.compute.engine import Engine
from runbook_lib.compute.places import (
    PLACES,
    Machine,
    PlaceName,
    WorkPlace,
    choose_place,
    container_sign,
)
from runbook_lib.compute.slurm.site import Session
from runbook_lib.compute.tasks import WorkStep, make_step, plan_task
from runbook_lib.compute.work_image import WorkImage
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM, ML_CONTAINERS

MACHINE = Machine(engine="docker")
PODMAN = Machine(engine="podman")
SHELL = make_step("shell", {"checkout": "/c", "inside": "/i"})
LOCK, COMMIT = make_step("lock", {}), WorkStep("Commit", ("git", "commit"), "host", "Why.")
CLUSTER = {"session": Session(2, 4, "team", "batch", "4:00:00"), "repository": MEGATRON_BRIDGE}


def place(name: PlaceName = "local", image: str = "megatron-lm:local", **more: Any) -> WorkPlace:
    given = {"repository": MEGATRON_LM, "machine": MACHINE, "checkout": "/home/me/lm", "cache": "/u", **more}
    return WorkPlace(name, image=WorkImage.parse(image), **given)


SYNC = make_step("sync-once", {**place("slurm").values, "locked": (), "sync_options": ("--all-extras",)})


@pytest.mark.parametrize(
    ("more", "step", "has", "lacks"),
    [
        ({}, SHELL, [
            "--interactive", "--tty", "--gpus=all", "--shm-size=24g", "--ulimit=memlock=-1", "--ulimit=stack=67108864",
            "--volume=/home/me/lm:/opt/megatron-lm", "--volume=/u:/opt/uv-cache", "--env=UV_CACHE_DIR=/opt/uv-cache",
            "--workdir=/opt/megatron-lm", "--env=GIT_CONFIG_VALUE_0=*"], "--user"),
        ({}, LOCK, [f"--user={os.getuid()}:{os.getgid()}", "--env=HOME=/tmp", "--init"], "--gpus"),
        ({}, LOCK, [], "--shm-size"),
        ({"machine": PODMAN}, LOCK, ["podman", "--user=0:0", "--security-opt=label=disable"], "--device"),
        ({"machine": PODMAN}, SHELL, ["--device=nvidia.com/gpu=all"], "--user"),
        ({"image": "alibaba:25.05-serverless"}, SHELL, ["--ipc=host", "--net=host", "--privileged"], "--shm-size"),
        ({"image": "alibaba:25.05"}, LOCK, [], "--user"),
        ({"session": Session(2, 0)}, SHELL, [], "--gpus"),
        ({"name": "slurm", "image": "/s/b.sqsh", "session": Session(2, 0)}, SHELL, [], "--gpus"),
        ({"name": "slurm", "image": "/s/b.sqsh"}, SHELL, ["srun"], "--mpi"),
        ({"name": "slurm", "image": "/s/b.sqsh", **CLUSTER}, SHELL, [
            "--nodes=1", "--ntasks-per-node=1", "--gpus-per-node=4", "--account=team", "--partition=batch",
            "--time=4:00:00", "--mpi=pmix", "--pty", "--container-image=/s/b.sqsh", "--no-container-mount-home",
            "--container-workdir=/opt/Megatron-Bridge", "UV_CACHE_DIR=/opt/uv-cache",
            "--container-mounts=/home/me/lm:/opt/Megatron-Bridge,/u:/opt/uv-cache"], "--env"),
        ({"name": "slurm", "image": "/s/b.sqsh", **CLUSTER}, make_step("benchmark", {}), ["--nodes=2"], "--pty"),
        ({"name": "slurm", "image": "/s/b.sqsh", "session": Session(2)}, SYNC, [
            "--nodes=1", "UV_PROJECT_ENVIRONMENT=/opt/megatron-lm/.venv"], "--gpus"),  # not twice in one shared tree
        ({"checkout": "/c", "cache": "", "also": ("/g/.git",)}, LOCK, ["--volume=/g/.git:/g/.git"], "--volume=/u"),
        ({"repository": ML_CONTAINERS}, LOCK, ["--workdir=/opt/ml-containers"], "--tty"),
        ({"name": "here"}, WorkStep("x", ("bash",), "container", "Why.", env={"A": "b c"}), ["env", "A=b c"], "-"),
        ({"name": "here"}, LOCK, ["uv", "lock"], "-"),
        ({"name": "slurm", "image": "/s/b.sqsh"}, COMMIT, ["git", "commit"], "-"),
    ],
)  # fmt: skip
def test_a_step_has_the_options_of_the_guides(more: dict[str, Any], step: WorkStep, has: list[str], lacks: str) -> None:
    words = place(**more).command(step)
    assert set(has) <= set(words)
    assert not [word for word in words if word.startswith(lacks)]
    assert words[-len(step.command) :] == step.command


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=12), min_size=1, max_size=5))
def test_hostile_words_stay_words(words: list[str]) -> None:
    step = WorkStep("x", tuple(word.replace("\x00", "") for word in words), "container", "Why.")
    command = place().command(step)
    shell = ["sh", "-c", f"printf '%s\\0' {replace(step, command=command).line}"]
    output = subprocess.run(shell, capture_output=True, check=True).stdout
    assert output == b"".join(word.encode() + b"\0" for word in command)


def test_an_image_that_a_place_cannot_run_is_refused() -> None:
    with pytest.raises(RunbookError, match="task import"):
        place("slurm").command(SHELL)
    with pytest.raises(Refused, match="is a file"):
        place(image="/shared/b.sqsh").command(SHELL)


# -- the machine -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "files", "sign"),
    [
        ({"SLURM_JOB_ID": "7", "container": "", "SLURM_CONTAINER": "no"}, ("/.dockerignore",), ""),
        ({}, ("/.dockerenv",), "/.dockerenv"),
        ({}, ("/run/.containerenv",), "/run/.containerenv"),
        ({}, ("/.lock",), "/.lock"),
        ({"container": "podman"}, (), "$container"),
        ({"APPTAINER_CONTAINER": "/x.sif"}, (), "$APPTAINER_CONTAINER"),
        ({"NVIDIA_PYTORCH_VERSION": "26.04"}, (), "$NVIDIA_PYTORCH_VERSION"),
    ],
)
def test_signs_of_a_container(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], files: tuple[str, ...], sign: str
) -> None:
    monkeypatch.setattr(os, "environ", env)
    monkeypatch.setattr(os.path, "exists", lambda path: path in files)
    assert container_sign() == sign


@pytest.mark.parametrize(
    ("machine", "name"),
    [
        (Machine("/.dockerenv"), "here"),
        (Machine(engine="podman", slurm=True), "local"),
        (Machine(slurm=True), "slurm"),
        (Machine(), "local"),
    ],
)
def test_the_place_is_what_the_machine_has(machine: Machine, name: str) -> None:
    assert choose_place("", machine) == name
    for named in PLACES:
        assert choose_place(named, machine) == named
    with pytest.raises(RunbookError):
        choose_place("cloud", machine)


def test_an_unavailable_place_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("local", "slurm"):
        assert place(name, machine=Machine()).obstacle()  # type: ignore[arg-type]
    complete = Machine(engine="docker", slurm=True)
    for name in PLACES:
        assert place(name, "nemo:26.06", machine=complete).obstacle() == ""
    monkeypatch.setattr(engines, "image_id", lambda *_: "")
    assert "build it first" in place(machine=complete).obstacle()


# -- an image as a file --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "name", "engine", "source"),
    [
        ("megatron-lm:local", "slurm", "podman", "podman://megatron-lm:local"),
        ("nemo:26.06", "slurm", "podman", "docker://nvcr.io#nvidia/nemo:26.06"),
    ],
)
def test_the_source_is_the_engine_or_the_registry(
    image: str, name: PlaceName, engine: Engine, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "image_id", lambda *_: "sha256:0123456789abcdef")
    facts = place(name, image, machine=Machine(engine=engine), cache="/shared/uv").image_file()
    assert facts["source"] == source
    assert re.fullmatch(r"/shared/\S+-[0-9a-f]{12}\.sqsh", str(facts["file"]))


def test_a_file_is_not_imported() -> None:
    there = place("slurm", "/shared/x.sqsh")
    with pytest.raises(Refused, match="already a file"):
        plan_task("import", {**there.values, **there.image_file()})


def test_images_of_two_registries_have_two_files() -> None:
    names = ("nvcr.io/nvidia/pytorch:26.04-py3", "registry.example.com/team/pytorch:26.04-py3")
    assert len({place("slurm", name).image_file()["file"] for name in (*names, *names)}) == 2
