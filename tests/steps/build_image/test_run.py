"""The notebook that builds an image: previews first, then really built from the pin that a bump wrote."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from building import ANSWER, Place, claims, place, start_registry

from runbook_lib import practice
from runbook_lib.bump import Bump
from runbook_lib.containers import run as container
from runbook_lib.containers.build_log import BuildFailure
from runbook_lib.containers.build_plan import BuildRequest
from runbook_lib.containers.engine import Engine
from runbook_lib.containers.run import BuildResult
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.records.step_record import StepRecord
from runbook_lib.runner import execute as run
from runbook_lib.runner.execute import StepResult
from runbook_lib.steps.build_image import run as build_image
from runbook_lib.steps.build_image.request import Asked, ask, wish

ROOT = Path(__file__).resolve().parents[3]
TAG = "26.04-py3"
REAL = [pytest.mark.component("registry"), pytest.mark.component("container")]


@pytest.fixture
def checkout(seeded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    subprocess.run(["git", "clone", "--quiet", str(seeded / "remote.git"), str(tmp_path / "clone")], check=True)
    monkeypatch.setenv("GITHUB_REPOSITORY", "practice/Megatron-LM")
    return Checkout.open(tmp_path / "clone")


@pytest.fixture
def offline(tmp_path: Path) -> dict[str, str]:
    """No engine, and no registry."""
    return {"PATH": str(tmp_path), "RUNBOOK_REGISTRY": "none", "XDG_CACHE_HOME": str(tmp_path / "cache")}


def bump(**given: Any) -> Bump:
    return Bump.parse(**given)


# -- what is asked ---------------------------------------------------------------------------------------------------


def test_a_plan_is_shown_without_engine_and_registry(checkout: Checkout, offline: dict[str, str]) -> None:
    asked = ask(checkout, bump(), BuildRequest(), env=offline)
    assert asked.engine is None
    assert asked.refusal == ""
    assert asked.problem.startswith("No engine for images works here. docker is not installed.")
    assert asked.warnings[0].startswith("What nvcr.io/nvidia/pytorch:26.02-py3 should hold is not known: ")
    text = asked.show().text
    assert "docker build --progress=plain" in text.replace(" \\\n    ", " ")
    assert "--target=main" in text
    assert "--build-arg=FROM_IMAGE_NAME=nvcr.io/nvidia/pytorch:26.02-py3" in text
    with pytest.raises(RunbookError, match="No engine for images works here"):
        build_image.carry_out(step(checkout), replace(asked, bump=bump(tag="26.02-py3", apply=True)), lambda _: None)
    previewed = step(checkout)
    build_image.verify(previewed, replace(asked, bump=bump(tag="26.02-py3")), build_image.Outcome())
    assert "Would build megatron-lm:local, but not from here. No engine for images works" in previewed.show().text


def test_without_a_tag_nothing_is_built(checkout: Checkout, offline: dict[str, str]) -> None:
    asked = ask(checkout, bump(apply=True), BuildRequest(), env=offline)
    assert asked.idle.endswith("the work tree pins 26.02-py3: give that as the tag to build it.")
    assert build_image.carry_out(step(checkout), asked, lambda _: None).ended == ()


def test_a_work_tree_that_pins_another_tag_is_not_built(checkout: Checkout, offline: dict[str, str]) -> None:
    asked = ask(checkout, bump(tag=TAG, apply=True), BuildRequest(), env=offline)
    assert asked.refusal.startswith("The work tree pins nvcr.io/nvidia/pytorch:26.02-py3 (docker/.ngc_version.dev:1), ")
    with pytest.raises(
        Refused, match=r"check out bump/main/dev-26\.04-py3, or ask for the tag that is pinned\. Nothing"
    ):
        build_image.carry_out(step(checkout), asked, lambda _: None)
    assert ask(checkout, bump(tag="26.02-py3"), BuildRequest(), env=offline).refusal == ""


def test_what_is_not_committed_is_built_and_said(checkout: Checkout, offline: dict[str, str]) -> None:
    (checkout.path / "docker/common/install_nccl.sh").write_text("exit 1\n")
    asked = ask(checkout, bump(), BuildRequest(), env=offline)
    assert asked.warnings[-1] == (
        "The build takes the work tree (main) as it is, with what is not committed: docker/common/install_nccl.sh."
    )


def test_the_internal_image_is_pulled_from_the_host_of_the_remote(checkout: Checkout, offline: dict[str, str]) -> None:
    with pytest.raises(Refused, match="no remote named 'gitlab'"):
        ask(checkout, bump(), BuildRequest(), how="pull", env=offline)
    checkout.git("remote", "add", "gitlab", "ssh://git@gitlab.example.com:12051/ADLR/megatron-lm.git")
    asked = ask(checkout, bump(), BuildRequest(), how="pull", env=offline)
    assert asked.commands == (("docker", "pull", "gitlab.example.com/adlr/megatron-lm/mcore_ci_dev:main"),)
    assert asked.image == asked.pulled


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"how": "guess"}, "how='guess' is none of build, stack, pull"),
        ({"engine": "kaniko"}, "engine='kaniko' is none of docker, podman, buildah"),
        ({"how": "stack"}, "fw_base, which does not exist"),
        ({"wish": BuildRequest(target="nowhere")}, "has no stage 'nowhere'"),
        ({"wish": BuildRequest(target="jet")}, "needs the build secret JET_INDEX_URLS"),
        ({"wish": BuildRequest({"NCCL_VERSON": "1"})}, r"declares no ARG NCCL_VERSON \(did you mean NCCL_VERSION\?\)"),
    ],
)
def test_what_cannot_be_built_is_said_before(
    checkout: Checkout, offline: dict[str, str], given: dict[str, Any], says: str
) -> None:
    with pytest.raises(RunbookError, match=says):
        ask(checkout, bump(), given.pop("wish", BuildRequest()), **given, env=offline)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"arguments": "NCCL"}, "arguments has the entry 'NCCL'; expected NAME=value"),
        ({"arguments": "A=1; --x=2"}, "arguments has the entry '--x=2'"),
        ({"arguments": "API_TOKEN=correct-horse-battery"}, "The build argument API_TOKEN looks like a secret"),
        ({"secrets": "the secret's value!"}, "takes names of environment variables, and 2 of its words is none"),
        ({"name": "--tag=x"}, "cannot name an image"),
        ({"name": "Megatron"}, "cannot name an image"),
        ({"name": "a b"}, "cannot name an image"),
    ],
)
def test_parameters_that_cannot_be_used(given: dict[str, str], says: str) -> None:
    with pytest.raises(RunbookError, match=says) as raised:
        wish(**given)
    assert "correct-horse" not in str(raised.value)
    assert "secret's value" not in str(raised.value)


def test_parameters_as_they_are_typed() -> None:
    read = wish(" main ", "", "NCCL_VERSION=2.30; UV_VERSION = 1 ;", "megatron-lm:mine", "A, B C")
    assert read == BuildRequest(
        {"NCCL_VERSION": "2.30", "UV_VERSION": "1"}, "main", "", "", "megatron-lm:mine", ("A", "B", "C")
    )
    assert wish() == BuildRequest()
    assert wish(name="127.0.0.1:5000/x/y:1").tag == "127.0.0.1:5000/x/y:1"


def test_the_training_is_a_command_for_an_engine_that_runs(checkout: Checkout, offline: dict[str, str]) -> None:
    asked = ask(checkout, bump(), BuildRequest(), train=True, env=offline)
    assert asked.training[:2] == ("docker", "run")
    assert "examples/run_simple_mcore_train_loop.py" in asked.training
    assert replace(asked, engine=Engine("podman")).training[0] == "podman"
    assert replace(asked, train=False).training == ()


# -- what is told of it ----------------------------------------------------------------------------------------------


def step(checkout: Checkout, folder: Path | None = None) -> StepRecord:
    return StepRecord("build-image", bump(), checkout.repository(), folder)


def outcome(checkout: Checkout, offline: dict[str, str], done: build_image.Outcome) -> str:
    asked: Asked = ask(checkout, bump(tag="26.02-py3", apply=True), BuildRequest(), env=offline)
    told = step(checkout)
    build_image.verify(told, asked, done)
    return told.show().text


def test_a_failed_build_is_told_with_its_mend(checkout: Checkout, offline: dict[str, str]) -> None:
    from runbook_lib.triage.known_problems import find

    failure = BuildFailure("D:3 failed.", "RUN x", "D:3", find("uv: command not found"), ("last words",))
    done = build_image.Outcome((("x:local", BuildResult("", 3, 4.0, failure), "x.log"),))
    text = outcome(checkout, offline, done)
    assert "D:3 failed. It is another image than the one that the project builds. Use the image" in text
    assert "The log is x.log." in text


# -- really built ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("engine")
    process, url = start_registry(folder, folder / "registry")
    try:
        made = place(folder, url)
        made.publish(TAG, claims("26.04"))
        made.publish("25.09-py3", claims("25.09"))  # answers as 26.04 does
        yield made
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[practice.World]:
    monkeypatch.setenv("RUNBOOK_AUDIT", str(tmp_path / "audit"))
    monkeypatch.setenv("RUNBOOK_PRACTICE_HOME", str(tmp_path / "world"))
    with practice.start() as started:
        yield started


def execute(name: str, /, **parameters: object) -> StepResult:
    return run.execute(ROOT / "runbooks" / f"{name}.ipynb", parameters)


def predicate(result: StepResult) -> dict[str, Any]:
    assert result.record is not None
    return json.loads((result.record / "run.json").read_text())["predicate"]  # type: ignore[no-any-return]


def with_engine(monkeypatch: pytest.MonkeyPatch, engine: Place) -> None:
    for name, value in engine.env.items():
        if os.environ.get(name) != value:
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("GITHUB_REPOSITORY", "practice/Megatron-LM")


@pytest.mark.component("registry")
@pytest.mark.component("container")
def test_the_image_of_a_bump_is_built_from_the_pin_that_it_wrote(
    world: practice.World, engine: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert execute("01-github-pin", tag=TAG, apply=True).ok
    with_engine(monkeypatch, engine)
    given = {"repo": str(world.checkout), "tag": TAG, "engine": "buildah", "name": "practice:bumped"}

    previewed = execute("build-image", **given)
    assert previewed.state == "previewed", previewed.summary
    build, look = (it["sentence"] for it in previewed.planned)
    assert build.startswith(
        f"build practice:bumped on nvcr.io/nvidia/pytorch:{TAG}, from docker/Dockerfile.ci.dev (main) of"
    )
    assert " and 2 files not committed, with buildah 1." in build
    assert look.startswith("look into practice:bumped")
    assert container.image_id(Engine("buildah"), "practice:bumped", engine.env) == ""

    first = execute("build-image", **given, apply=True)
    assert (first.state, first.summary) == ("done", "Built practice:bumped."), first.summary
    told, record = predicate(first), first.record
    assert record is not None
    assert [it["status"] for it in told["checks"]] == ["passed", "passed"]
    (effect,) = told["effects"]
    image = container.image_id(Engine("buildah"), "practice:bumped", engine.env)
    assert (effect["target"], effect["before"], effect["after"]) == ("practice:bumped", "", image)
    assert image.startswith("sha256:")
    assert f"FROM nvcr.io/nvidia/pytorch:{TAG} AS main" in (record / "megatron-lm.log").read_text()
    smoke = (record / "smoke.csv").read_text()
    assert "PyTorch,2.12.0a0+0291f96,2.12.0a0+0291f96.nv26.4,as claimed," in smoke
    assert engine.buildah("containers", "-q") == ""

    again = execute("build-image", **given, apply=True)
    assert (again.state, predicate(again)["effects"]) == ("done", [])

    # A build that fails: the image that was there stays, and the record says which line and why.
    (world.checkout / "docker/common/install_nccl.sh").write_text("uv sync --locked\n")
    failed = execute("build-image", **given, apply=True)
    assert failed.state == "failed"
    assert "docker/Dockerfile.ci.dev:13 failed with exit status 127: RUN sh /opt/install_nccl.sh" in failed.summary
    assert "Use the image that is built from the project's CI Dockerfile." in failed.summary
    assert container.image_id(Engine("buildah"), "practice:bumped", engine.env) == image
    assert predicate(failed)["effects"] == []


@pytest.mark.component("registry")
@pytest.mark.component("container")
@pytest.mark.parametrize("end", ["cancel", "kill"])
def test_a_build_that_is_cancelled_or_killed_leaves_no_image_and_can_be_run_again(
    world: practice.World, engine: Place, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    with_engine(monkeypatch, engine)
    given = {"repo": str(world.checkout), "tag": "25.09-py3", "image_type": "lts", "engine": "buildah", "look": False}
    given["name"] = f"practice:{end}"
    file = world.checkout / "docker/Dockerfile.ci.lts"
    text = file.read_text()
    file.write_text(text.replace('RUN echo "uv', 'RUN sleep 600 && echo "uv'))
    command = [
        sys.executable,
        "-m",
        "runbook_lib.run",
        str(ROOT / "runbooks/build-image.ipynb"),
        "-p",
        "apply",
        "True",
    ]
    command += [part for name, value in given.items() for part in ("-p", name, str(value))]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    until = time.monotonic() + 200  # the step would take longer
    audit = Path(os.environ["RUNBOOK_AUDIT"])
    while not any("RUN sleep 600" in log.read_text() for log in audit.rglob("megatron-lm.log")):
        assert time.monotonic() < until
        assert running.poll() is None
        time.sleep(0.1)
    running.send_signal(signal.SIGTERM if end == "cancel" else signal.SIGKILL)
    while running.poll() is None or engine.builds(f"practice:{end}"):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert container.image_id(Engine("buildah"), f"practice:{end}", engine.env) == ""
    file.write_text(text)
    again = execute("build-image", **given, apply=True)
    assert again.state == "done", again.summary
    assert container.image_id(Engine("buildah"), f"practice:{end}", engine.env) != ""
    states = [json.loads(it.read_text())["predicate"]["state"] for it in sorted(audit.rglob("run.json"))]
    assert states == ["cancelled" if end == "cancel" else "killed", "done"]


@pytest.mark.component("registry")
@pytest.mark.component("container")
def test_an_image_that_holds_something_else_than_is_claimed_fails_the_check(
    world: practice.World, engine: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_engine(monkeypatch, engine)
    result = execute(
        "build-image", repo=str(world.checkout), tag="25.09-py3", image_type="lts", engine="buildah", apply=True
    )
    assert result.state == "failed"
    assert f"PyTorch {ANSWER['found']['PyTorch']} (" in result.summary  # type: ignore[index]
    assert "is claimed)" in result.summary


def test_the_practice_world_shows_the_plan_and_builds_nothing(world: practice.World) -> None:
    result = execute("build-image", tag="26.02-py3", apply=True)
    assert result.state == "done", result.summary
    assert result.summary.startswith("The images of the practice world hold no programs")
    assert predicate(result)["effects"] == []
