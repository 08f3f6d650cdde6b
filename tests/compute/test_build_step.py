"""The notebook that builds an image: previews first, then really built from the pin that a bump wrote."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import executing as run
import pytest
from building import ANSWER, Place, claims, debian_registry, place
from executing import Ran

from runbook_lib.compute import build_step
from runbook_lib.compute import engine as engines
from runbook_lib.compute.build_step import BuildImage, VersionsMatch
from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.model import Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import MEGATRON_BRIDGE
from runbook_lib.practice.world import PracticeWorld
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.ports import OnlineServices, World

ROOT = Path(__file__).resolve().parents[2]
TAG = "26.04-py3"
OFFLINE = OnlineServices({"RUNBOOK_REGISTRY": "none"})


@pytest.fixture
def checkout(seeded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    subprocess.run(["git", "clone", "--quiet", str(seeded / "remote.git"), str(tmp_path / "clone")], check=True)
    monkeypatch.setenv("GITHUB_REPOSITORY", "practice/Megatron-LM")
    return Checkout.open(tmp_path / "clone")


@pytest.fixture(autouse=True)
def no_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the machine's engines from tests that build nothing."""
    if "engine" not in request.fixturenames:
        monkeypatch.setattr(engines, "shutil", SimpleNamespace(which=lambda *_, **__: None))


def planned(checkout: Checkout, options: Any = None, /, **parameters: Any) -> Plan[World]:
    """Plan with these options of the step, for a bump with these parameters."""
    step, world = BuildImage(**(options or {})), World(checkout, None, None, OFFLINE)  # type: ignore[arg-type]
    bump = Bump.parse(**parameters)
    return step.plan(step.look(world, bump), bump)


# -- the plan -------------------------------------------------------------------------------------------------------


def test_a_plan_is_shown_without_engine_and_registry(checkout: Checkout) -> None:
    plan = planned(checkout, tag="26.02-py3")
    assert plan.conditions == ()
    assert plan.done.sentence.startswith("Apply would be refused. ")
    assert "docker is not installed" in plan.done.sentence
    assert "nvcr.io/nvidia/pytorch:26.02-py3" in plan.evidence.warnings[0]
    text = plan.shown[0].text
    assert "docker build --progress=plain" in text
    assert "--target=main" in text
    assert "--build-arg=FROM_IMAGE_NAME=nvcr.io/nvidia/pytorch:26.02-py3" in text
    applied = planned(checkout, tag="26.02-py3", mode="local")
    assert applied.conditions[0].sentence.startswith("build the image: docker build ")
    with pytest.raises(RunbookError, match="docker is not installed"):
        list(applied.conditions[0].make_true(World(checkout, None, None)))  # type: ignore[arg-type]


@pytest.mark.parametrize(("practice", "tag", "says"), [(False, "", "26.02-py3"), (True, "26.02-py3", "practice")])
def test_without_a_tag_or_in_practice_nothing_is_built(checkout: Checkout, practice: bool, tag: str, says: str) -> None:
    plan = planned(checkout, {"practice": practice}, tag=tag, mode="local")
    assert says in plan.done.sentence
    assert plan.conditions == ()


def test_a_work_tree_that_pins_another_tag_is_not_built(checkout: Checkout) -> None:
    preview = planned(checkout, tag=TAG)
    assert preview.done.sentence.startswith("Apply would be refused. ")
    assert "nvcr.io/nvidia/pytorch:26.02-py3 (docker/.ngc_version.dev:1)" in preview.done.sentence
    (build,) = planned(checkout, tag=TAG, mode="local").conditions
    with pytest.raises(Refused, match=r"bump/main/dev-26\.04-py3"):
        list(build.make_true(World(checkout, None, None)))  # type: ignore[arg-type]


def test_uncommitted_changes_are_built_and_reported(checkout: Checkout) -> None:
    (checkout.path / "docker/common/install_nccl.sh").write_text("exit 1\n")
    assert "docker/common/install_nccl.sh" in planned(checkout).evidence.warnings[-1]


def test_a_folder_that_no_clone_has_is_made(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    file = checkout.path / "docker/Dockerfile.ci.dev"
    file.write_text(file.read_text().replace(" AS main\n", " AS main\nCOPY assets/ /opt/data/\n", 1))
    monkeypatch.setattr(engines, "find", lambda *_: "docker")
    plan = planned(checkout, tag="26.02-py3", mode="local")
    assert "mkdir -p -- assets" in plan.shown[0].text
    assert any("download_unit_tests_dataset.py" in warning for warning in plan.evidence.warnings)
    world = World(checkout, None, None, OFFLINE)  # type: ignore[arg-type]
    assert [effect.after for effect in plan.conditions[0].make_true(world)] == ["mkdir -p -- assets"]
    assert (checkout.path / "assets").is_dir()
    assert not any("assets" in condition.sentence for condition in planned(checkout, tag="26.02-py3").conditions)


def test_the_internal_image_is_pulled_from_the_host_of_the_remote(checkout: Checkout) -> None:
    for bump in (Bump.parse(image_type="lts"), Bump.parse(repository=MEGATRON_BRIDGE)):
        with pytest.raises(Refused, match="dev lane only"):
            build_step.internal_image(checkout, bump)
    with pytest.raises(RunbookError, match="no remote named 'gitlab'"):
        planned(checkout, {"how": "pull"})
    checkout.git("remote", "add", "gitlab", "git@gitlab:x/y")
    with pytest.raises(CannotTell, match="has no host such as"):
        planned(checkout, {"how": "pull"})
    checkout.git("remote", "set-url", "gitlab", "ssh://git@gitlab.example.com:12051/ADLR/megatron-lm.git")
    plan = planned(checkout, {"how": "pull"}, tag="26.02-py3", mode="local")
    image = "gitlab.example.com/adlr/megatron-lm/mcore_ci_dev:main"
    assert f"docker pull {image}" in plan.shown[0].text
    assert plan.conditions[0].sentence == f"pull the image: docker pull {image}"


def test_wrong_parameters_are_refused(checkout: Checkout) -> None:
    for options, named in (({"how": "guess"}, "how='guess'"), ({"arguments": "--target 'a"}, "No closing quotation")):
        with pytest.raises(RunbookError, match=named):
            planned(checkout, options)


def test_the_site_file_names_the_engine(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("engine: podman\n")
    plan = planned(checkout, {"site": str(tmp_path / "site.yaml")}, tag="26.02-py3")
    assert "podman is not installed" in plan.done.sentence
    assert "docker is not installed" not in plan.done.sentence


def test_an_image_that_the_engine_keeps_elsewhere_is_not_checked(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "image_id", lambda *_: "")
    with pytest.raises(CannotTell, match="its builder stores images elsewhere"):
        VersionsMatch("x:local", "docker", {}).make_true(World(checkout, None, None))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("claims", "status", "detail"),
    [
        (
            {"PyTorch": "2.12", "CUDA": "13.2", "Python": "3.12"},
            "passed",
            "As in the base image: Python, PyTorch, CUDA.",
        ),
        ({"CUDA": "13.2"}, "passed", "As in the base image: CUDA. The registry names no version of Python, PyTorch."),
        ({}, "skipped", "Nothing was compared. The registry names no version of Python, PyTorch, CUDA."),
        ({"CUDA": "13.1"}, "failed", "CUDA 13.2 (13.1 is claimed)."),
    ],
)
def test_only_versions_that_the_registry_names_are_said_to_match(
    monkeypatch: pytest.MonkeyPatch, claims: dict[str, str], status: str, detail: str
) -> None:
    monkeypatch.setattr(engines, "image_id", lambda *_: "sha256:1")
    monkeypatch.setattr(engines, "inside", lambda *_: f"runbook-smoke {json.dumps(ANSWER)}")
    condition, world = VersionsMatch("x:local", "docker", claims), World(None, None, None)  # type: ignore[arg-type]
    condition.make_true(world)
    check = condition.holds(world)
    assert (check.status, check.detail) == (status, detail)


# -- real builds -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("engine")
    with debian_registry(folder) as url:
        published = place(folder, url)
        published.publish(TAG, claims("26.04"))
        published.publish("25.09-py3", claims("25.09"))  # contains the versions of 26.04
        yield published


def execute(name: str, /, **parameters: object) -> Ran:
    return run.execute(ROOT / "runbooks" / f"{name}.ipynb", parameters)


@pytest.mark.component("registry")
@pytest.mark.component("container")
def test_the_image_of_a_bump_is_built_from_the_pin_that_it_wrote(
    practised: PracticeWorld, engine: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert execute("01-github-pin", tag=TAG, mode="local").ok
    subprocess.run(["git", "-C", str(practised.checkout), "switch", "-q", f"bump/main/dev-{TAG}"], check=True)
    for name, value in {**engine.env, "GITHUB_REPOSITORY": "practice/Megatron-LM"}.items():
        monkeypatch.setenv(name, value)
    parameters = {"repo": str(practised.checkout), "tag": TAG, "arguments": "--tag practice:bumped"}

    previewed = execute("build-image", **parameters)
    assert previewed.state == "previewed", previewed.summary
    build, look = (entry["sentence"] for entry in previewed.run["planned"])
    assert build.startswith("build the image: buildah build ")
    assert f"--build-arg=FROM_IMAGE_NAME=nvcr.io/nvidia/pytorch:{TAG}" in build
    assert "megatron-lm:local" in look
    assert engines.image_id("buildah", "practice:bumped") == ""

    first = execute("build-image", **parameters, mode="local")
    assert (first.state, first.summary) == ("done", "Built megatron-lm:local."), first.summary
    statement, record = first.run, first.record
    assert record is not None
    assert [check["status"] for check in statement["checks"]] == ["passed", "passed"]
    (effect,) = statement["effects"]
    image = engines.image_id("buildah", "practice:bumped")
    assert (effect["target"], effect["after"]) == ("Build the image", build.partition(": ")[2])
    assert image.startswith("sha256:")
    assert statement["inputs"]["image"] == image
    assert f"FROM nvcr.io/nvidia/pytorch:{TAG} AS main" in (record / "build-image.log").read_text()
    smoke = (record / "smoke.csv").read_text()
    assert "PyTorch,2.12.0a0+0291f96,2.12.0a0+0291f96.nv26.4,as claimed," in smoke
    assert engine.buildah("containers", "-q") == ""

    repeated = execute("build-image", **parameters, mode="local")
    assert (repeated.state, repeated.run["inputs"]["image"]) == ("done", image)

    # A failed build leaves the earlier image, and the record names the line and the cause.
    (practised.checkout / "docker/common/install_nccl.sh").write_text("uv sync --locked\n")
    failed = execute("build-image", **parameters, mode="local")
    assert failed.state == "failed"
    assert "RUN sh /opt/install_nccl.sh" in failed.summary
    assert "Use the image built from" in failed.summary
    assert engines.image_id("buildah", "practice:bumped") == image
    statement = failed.run
    assert statement["effects"] == []
    assert "It waits for the one above." in statement["checks"][1]["detail"]
