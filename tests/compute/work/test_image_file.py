"""An image as a file: created once, from the right source, and never left incomplete."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.compute import run
from runbook_lib.compute.engine import Engine, EngineName
from runbook_lib.compute.work.allocation import Allocation
from runbook_lib.compute.work.container import WorkContainer
from runbook_lib.compute.work.image import WorkImage
from runbook_lib.compute.work.image_file import image_file_stem, plan_image_file
from runbook_lib.compute.work.machine import Machine
from runbook_lib.compute.work.target import TargetName, WorkTarget
from runbook_lib.errors import Refused
from runbook_lib.pins.repositories import MEGATRON_LM


def target(
    image: str, name: TargetName = "slurm", engine: EngineName = "docker", parent: Path = Path("/shared")
) -> WorkTarget:
    container = WorkContainer.create(MEGATRON_LM, WorkImage.parse(image), "/c", f"{parent}/.uv-cache")
    return WorkTarget(name, container, Machine(engine=Engine(engine)), MEGATRON_LM.name, Allocation())


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> str:
    """The id that the engine knows for images that were built here."""
    monkeypatch.setattr(run, "image_id", lambda *_: "sha256:0123456789abcdef")
    return "0123456789ab"


@pytest.fixture
def unknown_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "image_id", lambda *_: "")


def test_an_import_is_complete_before_it_gets_its_name(tmp_path: Path, identity: str) -> None:
    file = plan_image_file(target("megatron-lm:local", parent=tmp_path))
    assert file.path == f"{tmp_path}/megatron-lm-local-{identity}.sqsh"
    draft = f"{file.path}.part"
    assert [step.command for step in file.steps] == [
        ("rm", "-f", "--", draft),
        ("enroot", "import", "--output", draft, "dockerd://megatron-lm:local"),
        ("mv", "--", draft, file.path),
    ]


def test_an_import_is_made_once(tmp_path: Path, identity: str) -> None:
    (tmp_path / f"megatron-lm-local-{identity}.sqsh").touch()
    assert plan_image_file(target("megatron-lm:local", parent=tmp_path)).steps == ()


@pytest.mark.parametrize(
    ("image", "name", "engine", "source"),
    [
        ("megatron-lm:local", "slurm", "podman", "podman://megatron-lm:local"),
        ("nemo:26.06", "slurm", "podman", "docker://nvcr.io#nvidia/nemo:26.06"),
        ("megatron-lm:local", "apptainer", "docker", "docker-daemon:megatron-lm:local"),
        ("nemo:26.06", "apptainer", "docker", "docker://nvcr.io/nvidia/nemo:26.06"),
    ],
)
@pytest.mark.usefixtures("identity")
def test_the_source_is_the_engine_or_the_registry(
    image: str, name: TargetName, engine: EngineName, source: str
) -> None:
    assert plan_image_file(target(image, name, engine)).steps[1].command[-1] == source


@pytest.mark.usefixtures("identity")
def test_the_file_is_beside_uvs_cache() -> None:
    path = plan_image_file(target("nemo:26.06", "apptainer")).path
    assert re.fullmatch(r"/shared/nemo-26\.06-[0-9a-f]{12}\.sif", path)


@pytest.mark.usefixtures("unknown_identity")
def test_a_mutable_image_is_imported_again_unless_its_id_is_known(tmp_path: Path) -> None:
    for image, again in (("megatron-lm:local", True), ("nvcr.io/a/b:nightly", True), ("nemo:26.06", False)):
        file = plan_image_file(target(image, parent=tmp_path))
        Path(file.path).touch()
        assert bool(plan_image_file(target(image, parent=tmp_path)).steps) == again


def test_a_file_is_not_imported() -> None:
    with pytest.raises(Refused):
        plan_image_file(target("/shared/x.sqsh"))


def test_images_of_two_registries_have_two_files() -> None:
    names = ("nvcr.io/nvidia/pytorch:26.04-py3", "registry.example.com/team/pytorch:26.04-py3")
    assert len({image_file_stem(WorkImage.parse(name), "") for name in (*names, *names)}) == 2


@given(st.text(max_size=80))
def test_the_stem_of_an_image_file_is_a_plain_file_name(text: str) -> None:
    stem = image_file_stem(WorkImage(text, "other"), "sha256:abc")
    assert "/" not in stem
    assert not stem.startswith((".", "-"))
    assert stem.endswith("-abc")
