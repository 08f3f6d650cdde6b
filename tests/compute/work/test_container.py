"""Commands that run a step in a container: each option of each way, and what is refused."""

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.compute.engine import Engine
from runbook_lib.compute.work.allocation import Allocation
from runbook_lib.compute.work.container import (
    WorkContainer,
    apptainer_command,
    direct_command,
    engine_command,
    slurm_command,
)
from runbook_lib.compute.work.image import WorkImage
from runbook_lib.compute.work.tasks import WorkStep, make_step, wrap_command
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM, ML_CONTAINERS

LM, BRIDGE = MEGATRON_LM.name, MEGATRON_BRIDGE.name
DOCKER, PODMAN = Engine("docker"), Engine("podman")
IMAGE = WorkImage.parse("megatron-lm:local")
BUILT = WorkContainer.create(MEGATRON_LM, IMAGE, "/home/me/lm", "/home/me/.cache/uv")
FILE = WorkContainer.create(MEGATRON_BRIDGE, WorkImage.parse("/shared/b.sqsh"), "/shared/bridge", "/shared/cache")
SHELL = make_step("shell", checkout="/c", inside="/i")
LOCK = make_step("lock")
OWNER = (1000, 1001)


def test_a_session_of_docker_has_the_options_of_the_guides() -> None:
    words = engine_command(BUILT, Engine("docker", options=("--context=x",)), SHELL)
    assert words[:6] == ("docker", "--context=x", "run", "--rm", "--interactive", "--tty")
    assert {
        "--gpus=all", "--shm-size=24g", "--ulimit=memlock=-1", "--ulimit=stack=67108864",
        "--volume=/home/me/lm:/opt/megatron-lm", "--volume=/home/me/.cache/uv:/opt/uv-cache",
        "--env=UV_CACHE_DIR=/opt/uv-cache", "--workdir=/opt/megatron-lm",
    } <= set(words)  # fmt: skip
    assert words[-2:] == ("megatron-lm:local", "bash")
    assert not [word for word in words if word.startswith("--user")]


def test_files_in_the_checkout_belong_to_the_user() -> None:
    docker, podman = engine_command(BUILT, DOCKER, LOCK, OWNER), engine_command(BUILT, PODMAN, LOCK, OWNER)
    assert {"--user=1000:1001", "--env=HOME=/tmp", "--init"} <= set(docker)
    assert {"--user=0:0", "--security-opt=label=disable"} <= set(podman)
    assert not {"--gpus=all", "--tty", "--shm-size=24g"} & set(docker)
    assert docker[-2:] == ("uv", "lock")


def test_podman_names_gpus_by_the_container_device_interface() -> None:
    assert "--device=nvidia.com/gpu=all" in engine_command(BUILT, PODMAN, SHELL)


def test_alibabas_image_runs_with_the_hosts_shared_memory() -> None:
    image = WorkImage.parse("alibaba:25.05-serverless")
    words = engine_command(WorkContainer.create(MEGATRON_LM, image, "/c"), DOCKER, SHELL)
    assert {"--ipc=host", "--net=host", "--privileged"} <= set(words)
    assert not [word for word in words if word.startswith("--shm-size")]


def test_an_engine_that_cannot_run_the_image_is_refused() -> None:
    with pytest.raises(Refused, match="docker or podman"):
        engine_command(BUILT, Engine("buildah"), SHELL)
    with pytest.raises(Refused, match="is a file"):
        engine_command(FILE, DOCKER, SHELL)


@pytest.mark.parametrize(
    ("image", "source"),
    [
        ("megatron-lm:local", "docker-daemon:megatron-lm:local"),
        ("nemo:26.06", "docker://nvcr.io/nvidia/nemo:26.06"),
        ("/shared/x.sif", "/shared/x.sif"),
    ],
)
def test_apptainer_gets_neither_home_nor_variables_of_the_user(image: str, source: str) -> None:
    words = apptainer_command(WorkContainer.create(MEGATRON_LM, WorkImage.parse(image), "/c", "/u"), SHELL)
    assert words[:2] == ("apptainer", "exec")
    assert {"--nv", "--cleanenv", "--no-home", "--bind=/c:/opt/megatron-lm", "--pwd=/opt/megatron-lm"} <= set(words)
    assert words[-2:] == (source, "bash")


@pytest.mark.parametrize("path", ["relative", "/a:b", "/a,b", "/a\nb", "/a\x1b[31m"])
def test_a_path_that_cannot_be_mounted_is_refused(path: str) -> None:
    with pytest.raises(Refused):
        WorkContainer.create(MEGATRON_LM, IMAGE, path)


def test_a_git_directory_outside_of_the_checkout_is_mounted() -> None:
    assert WorkContainer.create(MEGATRON_LM, IMAGE, "/c", git="/c/.git").mounts == (("/c", "/opt/megatron-lm"),)
    assert WorkContainer.create(MEGATRON_LM, IMAGE, "/c", git="/g/.git").mounts[1:] == (("/g/.git", "/g/.git"),)


def test_a_repository_that_is_not_known_is_mounted_by_its_name() -> None:
    assert WorkContainer.create(ML_CONTAINERS, IMAGE, "/c").inside == "/opt/ml-containers"


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=12), min_size=1, max_size=5))
def test_hostile_words_stay_words(words: list[str]) -> None:
    step = WorkStep("x", tuple(word.replace("\x00", "") for word in words), "container", "Why.")
    command = engine_command(BUILT, DOCKER, step, OWNER)
    shell = ["sh", "-c", f"printf '%s\\0' {wrap_command(command)}"]
    output = subprocess.run(shell, capture_output=True, check=True).stdout
    assert output == b"".join(word.encode() + b"\0" for word in command)
    assert tuple(shlex.split(shlex.join(command))) == command


def test_a_session_on_slurm() -> None:
    allocation = Allocation(2, 4, "team", "batch", "4:00:00")
    words = slurm_command(FILE, allocation, SHELL, BRIDGE)
    assert words[:3] == ("srun", "--nodes=1", "--ntasks-per-node=1")
    assert {
        "--gpus-per-node=4", "--account=team", "--partition=batch", "--time=4:00:00", "--mpi=pmix", "--pty",
        "--container-image=/shared/b.sqsh", "--no-container-mount-home", "--container-workdir=/opt/Megatron-Bridge",
        "--container-mounts=/shared/bridge:/opt/Megatron-Bridge,/shared/cache:/opt/uv-cache",
    } <= set(words)  # fmt: skip
    inner = words[words.index("env") :]
    assert inner[1] == "UV_CACHE_DIR=/opt/uv-cache"
    assert inner[-1] == "bash"
    assert "--mpi=pmix" not in slurm_command(FILE, allocation, SHELL, LM)


def test_an_image_of_this_machine_alone_is_not_for_slurm() -> None:
    with pytest.raises(RunbookError, match="task import"):
        slurm_command(BUILT, Allocation(), SHELL, LM)


def test_the_sync_of_the_checkouts_environment_holds_a_lock() -> None:
    step = make_step("sync-once", lock=FILE.sync_lock, options=("--locked", "--all-extras"), inside=FILE.inside)
    words = slurm_command(FILE, Allocation(1, 8), step, BRIDGE)
    assert not [word for word in words if word.startswith("--gpus")]
    assert "--nodes=1" in slurm_command(FILE, Allocation(2, 8), step, BRIDGE)  # not twice in one shared tree
    assert "UV_PROJECT_ENVIRONMENT=/opt/Megatron-Bridge/.venv" in words
    assert words[-3:] == (FILE.sync_lock, "--locked", "--all-extras")
    assert "flock 9" in " ".join(words)


def test_a_step_is_run_directly_with_its_variables() -> None:
    assert direct_command(LOCK) == ("uv", "lock")
    step = WorkStep("x", ("bash",), "container", "Why.", env=(("A", "b c"),))
    assert direct_command(step) == ("env", "A=b c", "bash")
