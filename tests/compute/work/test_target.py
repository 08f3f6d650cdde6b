"""The place where a task is done: which a machine has, and how each step's command reads there."""

from dataclasses import replace

import pytest

from runbook_lib.compute.engine import Engine
from runbook_lib.compute.work.allocation import Allocation
from runbook_lib.compute.work.container import WorkContainer
from runbook_lib.compute.work.image import WorkImage
from runbook_lib.compute.work.machine import Machine
from runbook_lib.compute.work.target import (
    TARGETS,
    TargetName,
    WorkTarget,
    choose_target,
    require_container,
    unavailability,
)
from runbook_lib.compute.work.tasks import WorkStep, make_step
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.pins.repositories import MEGATRON_LM

LOCK, COMMIT = make_step("lock"), WorkStep("Commit", ("git", "commit"), "host", "Why.")
SHELL = make_step("shell", checkout="/c", inside="/i")
MACHINE = Machine(uid=1000, gid=1001, engine=Engine("docker"))


def target(name: TargetName, image: str = "nemo:26.06") -> WorkTarget:
    container = WorkContainer.create(MEGATRON_LM, WorkImage.parse(image), "/c", "/u")
    return WorkTarget(name, container, MACHINE, MEGATRON_LM.name, Allocation())


@pytest.mark.parametrize(
    ("machine", "name"),
    [
        (Machine("/.dockerenv"), "inside"),
        (Machine(engine=Engine("podman"), slurm=True), "local"),
        (Machine(slurm=True, apptainer=True), "slurm"),
        (Machine(apptainer=True), "apptainer"),
        (Machine(), "local"),
    ],
)
def test_the_target_is_what_the_machine_has(machine: Machine, name: str) -> None:
    assert choose_target("", machine) == name
    for given in TARGETS:
        assert choose_target(given, machine) == given
    with pytest.raises(RunbookError):
        choose_target("cloud", machine)


def test_an_unavailable_target_is_explained() -> None:
    for name in ("local", "slurm", "apptainer"):
        assert unavailability(name, Machine(), gpus=False)  # type: ignore[arg-type]
    complete = Machine(engine=Engine("docker"), slurm=True, apptainer=True)
    for name in TARGETS:
        assert unavailability(name, complete, gpus=True) == ""
    mac = Machine(system="Darwin", engine=Engine("docker"))
    assert unavailability("local", mac, gpus=False) == ""
    assert "GPU" in unavailability("local", mac, gpus=True)


def test_container_steps_are_refused_outside_of_a_container() -> None:
    for machine in (Machine(), Machine(system="Darwin")):
        for name in ("host", "inside"):
            with pytest.raises(Refused):
                require_container(name, machine)  # type: ignore[arg-type]
        for name in ("local", "slurm", "apptainer"):
            require_container(name, machine)  # type: ignore[arg-type]
    require_container("inside", Machine("/.dockerenv"))
    with pytest.raises(Refused):  # some container need not be the image
        require_container("host", Machine("/.dockerenv"))


@pytest.mark.parametrize(
    ("name", "program"),
    [("inside", "uv"), ("host", "uv"), ("local", "docker"), ("slurm", "srun"), ("apptainer", "apptainer")],
)
def test_each_target_runs_a_step_in_its_own_way(name: TargetName, program: str) -> None:
    assert target(name).command(LOCK)[0] == program
    assert target(name).command(COMMIT) == ("git", "commit")


def test_steps_that_write_files_run_as_the_user_and_sessions_do_not() -> None:
    assert "--user=1000:1001" in target("local").command(LOCK)
    sessions = (*target("local").command(SHELL), *target("local", "alibaba:25.05").command(LOCK))
    assert not [word for word in sessions if word.startswith("--user")]


def test_without_gpus_none_is_requested() -> None:
    for name in ("local", "slurm", "apptainer"):
        without = replace(target(name), allocation=Allocation(2, 0))  # type: ignore[arg-type]
        words = without.command(SHELL)
        assert not [word for word in words if "gpus" in word or word == "--nv"]
        assert ("--nodes=1" in words) == (name == "slurm")


def test_places_are_described() -> None:
    assert target("local").describe_place(LOCK).startswith("inside nvcr.io/nvidia/nemo:26.06, a container of docker")
    assert target("local").describe_place(COMMIT) == "on this machine, in the checkout"
    assert target("inside").describe_place(COMMIT) == TARGETS["inside"]
