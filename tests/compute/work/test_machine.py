"""The machine of this process: signs of a container, why uv is refused, and what commands would lack."""

from pathlib import Path

import pytest

from runbook_lib.compute.work.image import WorkImage
from runbook_lib.compute.work.machine import Machine, container_sign, missing_prerequisite, uv_refusal


@pytest.mark.parametrize(
    ("env", "files", "sign"),
    [
        ({}, (), ""),
        ({"SLURM_JOB_ID": "7", "container": "", "SLURM_CONTAINER": "no"}, ("/.dockerignore",), ""),
        ({}, ("/.dockerenv",), "/.dockerenv"),
        ({}, ("/run/.containerenv",), "/run/.containerenv"),
        ({}, ("/.lock",), "/.lock"),
        ({"container": "podman"}, (), "$container"),
        ({"APPTAINER_CONTAINER": "/x.sif"}, (), "$APPTAINER_CONTAINER"),
        ({"NVIDIA_PYTORCH_VERSION": "26.04"}, (), "$NVIDIA_PYTORCH_VERSION"),
    ],
)
def test_signs_of_a_container(env: dict[str, str], files: tuple[str, ...], sign: str) -> None:
    assert container_sign(env, lambda path: path in files) == sign


def test_uv_is_refused_outside_of_a_container() -> None:
    assert uv_refusal(Machine("/.dockerenv")) == ""
    for system in ("Linux", "Darwin", "Windows"):
        assert uv_refusal(Machine(system=system))


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with an srun that has no option for containers."""
    folder = tmp_path / "only"
    folder.mkdir()
    program(folder / "srun", "echo '  --chdir=D  where to run'")
    return folder


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_missing_prerequisites_are_known_before_anything_is_run(tmp_path: Path, programs: Path) -> None:
    env = {"PATH": str(programs)}
    missing, existing = WorkImage.parse("/no/such.sqsh"), WorkImage.parse(str(tmp_path / "image.sqsh"))
    Path(existing.name).touch()
    srun = ("srun", f"--container-image={existing.name}", "env")
    assert missing_prerequisite(existing, [("uv", "lock")], env) == ""
    assert "Pyxis" in missing_prerequisite(existing, [srun], env)
    assert missing.name in missing_prerequisite(missing, [("srun", f"--container-image={missing.name}")], env)
    assert missing_prerequisite(missing, [("mv", "a", missing.name), ("x", missing.name)], env) == ""
    for end in ("", "exit 1"):  # a failing srun is not held against the cluster
        program(programs / "srun", f"echo '  --container-image=IMG'\n{end}")
        assert missing_prerequisite(existing, [srun], env) == ""
