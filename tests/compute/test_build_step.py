"""The notebook that builds an image: previews first, then really built from the pin that a bump wrote."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import executing as run
import pytest
from building import ANSWER, Place, claims, place, start_registry
from executing import Ran

from runbook_lib.bump.run import Run
from runbook_lib.compute import engine as container
from runbook_lib.compute.build_log import CommandFailure
from runbook_lib.compute.build_plan import BuildRequest
from runbook_lib.compute.build_step import BuildImage, parse_request
from runbook_lib.compute.engine import BuildResult, Engine
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.failures.known_problems import find
from runbook_lib.git.checkout import Checkout
from runbook_lib.model import Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.practice import PracticeWorld, open_world
from runbook_lib.record.recorder import Recorder
from runbook_lib.world.outside import World
from runbook_lib.world.services import OnlineServices

ROOT = Path(__file__).resolve().parents[2]
TAG = "26.04-py3"
OFFLINE = OnlineServices({"RUNBOOK_REGISTRY": "none"})


@pytest.fixture
def checkout(seeded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    subprocess.run(["git", "clone", "--quiet", str(seeded / "remote.git"), str(tmp_path / "clone")], check=True)
    monkeypatch.setenv("GITHUB_REPOSITORY", "practice/Megatron-LM")
    return Checkout.open(tmp_path / "clone")


@pytest.fixture
def offline(tmp_path: Path) -> dict[str, str]:
    """An environment without an engine."""
    return {"PATH": str(tmp_path)}


def bump(**parameters: Any) -> Bump:
    return Bump.parse(**parameters)


def planned(checkout: Checkout, env: dict[str, str], options: Any = None, /, **parameters: Any) -> Plan[World]:
    """Plan with these options of the step, for a bump with these parameters."""
    step, world = BuildImage(**{"env": env, **(options or {})}), World(checkout, None, None, OFFLINE)  # type: ignore[arg-type]
    return step.plan(step.look(world, bump(**parameters)), bump(**parameters))


# -- the plan -------------------------------------------------------------------------------------------------------


def test_a_plan_is_shown_without_engine_and_registry(checkout: Checkout, offline: dict[str, str]) -> None:
    plan = planned(checkout, offline, tag="26.02-py3")
    assert plan.conditions == ()
    assert plan.done.sentence.startswith("Apply would be refused. ")
    assert "docker is not installed" in plan.done.sentence
    assert "nvcr.io/nvidia/pytorch:26.02-py3" in plan.evidence.warnings[0]
    text = plan.shown[0].text
    assert "docker build --progress=plain" in text.replace(" \\\n    ", " ")
    assert "--target=main" in text
    assert "--build-arg=FROM_IMAGE_NAME=nvcr.io/nvidia/pytorch:26.02-py3" in text
    applied = planned(checkout, offline, tag="26.02-py3", mode="local")
    assert "build megatron-lm:local on nvcr.io/nvidia/pytorch:26.02-py3" in applied.conditions[0].sentence
    with pytest.raises(RunbookError, match="docker is not installed"):
        applied.conditions[0].make_true(World(checkout, None, None))  # type: ignore[arg-type]


def test_without_a_tag_nothing_is_built(checkout: Checkout, offline: dict[str, str]) -> None:
    plan = planned(checkout, offline, mode="local")
    assert "26.02-py3" in plan.done.sentence
    assert plan.conditions == ()


def test_a_work_tree_that_pins_another_tag_is_not_built(checkout: Checkout, offline: dict[str, str]) -> None:
    preview = planned(checkout, offline, tag=TAG)
    assert preview.done.sentence.startswith("Apply would be refused. ")
    assert "nvcr.io/nvidia/pytorch:26.02-py3 (docker/.ngc_version.dev:1)" in preview.done.sentence
    (build,) = planned(checkout, offline, tag=TAG, mode="local").conditions
    with pytest.raises(Refused, match=r"bump/main/dev-26\.04-py3"):
        build.make_true(World(checkout, None, None))  # type: ignore[arg-type]


def test_uncommitted_changes_are_built_and_reported(checkout: Checkout, offline: dict[str, str]) -> None:
    (checkout.path / "docker/common/install_nccl.sh").write_text("exit 1\n")
    assert "docker/common/install_nccl.sh" in planned(checkout, offline).evidence.warnings[-1]


def test_a_folder_that_no_clone_has_is_made(
    checkout: Checkout, offline: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = checkout.path / "docker/Dockerfile.ci.dev"
    file.write_text(file.read_text().replace(" AS main\n", " AS main\nCOPY assets/ /opt/data/\n", 1))
    monkeypatch.setattr(container, "find", lambda *_: Engine("docker"))
    plan = planned(checkout, offline, tag="26.02-py3", mode="local")
    assert "mkdir -p -- assets" in plan.shown[0].text
    assert any("download_unit_tests_dataset.py" in warning for warning in plan.evidence.warnings)
    world = World(checkout, None, None, OFFLINE)  # type: ignore[arg-type]
    assert [effect.after for effect in plan.conditions[0].make_true(world)] == ["mkdir -p -- assets"]
    assert (checkout.path / "assets").is_dir()
    assert not any(
        "assets" in condition.sentence for condition in planned(checkout, offline, tag="26.02-py3").conditions
    )


def test_the_internal_image_is_pulled_from_the_host_of_the_remote(checkout: Checkout, offline: dict[str, str]) -> None:
    with pytest.raises(Refused, match="no remote 'gitlab'"):
        planned(checkout, offline, {"how": "pull"})
    checkout.git("remote", "add", "gitlab", "ssh://git@gitlab.example.com:12051/ADLR/megatron-lm.git")
    plan = planned(checkout, offline, {"how": "pull"}, tag="26.02-py3", mode="local")
    image = "gitlab.example.com/adlr/megatron-lm/mcore_ci_dev:main"
    assert f"docker pull {image}" in plan.shown[0].text
    assert plan.conditions[0].sentence == f"pull the image: docker pull {image}"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"how": "guess"}, "how='guess'"),
        ({"arguments": "--target nowhere"}, "has no stage 'nowhere'"),
        ({"arguments": "--target=jet"}, "needs a build secret"),
        (
            {"arguments": "--build-arg NCCL_VERSON=1"},
            r"declares no ARG NCCL_VERSON \(did you mean NCCL_VERSION\?\)",
        ),
    ],
)
def test_an_impossible_build_is_refused_before_it_starts(
    checkout: Checkout, offline: dict[str, str], options: dict[str, Any], named: str
) -> None:
    with pytest.raises(RunbookError, match=named):
        planned(checkout, offline, options)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("--build-arg NCCL", "--build-arg 'NCCL' is not"),
        ("--build-arg A=1 --build-arg --x=2", "cannot be read"),
        ("--build-arg API_TOKEN=correct-horse-battery", "API_TOKEN"),
        ("correct-horse", "options of docker build"),
        ("--tag '--tag=x'", "cannot be read"),
        ("--tag Megatron", "--tag 'Megatron'"),
        ("--tag 'a b'", "--tag 'a b'"),
        ("--target 'a", "No closing quotation"),
    ],
)
def test_invalid_arguments_are_refused_without_their_values(arguments: str, named: str) -> None:
    with pytest.raises(RunbookError, match=named) as raised:
        parse_request(arguments)
    assert "correct-horse" not in str(raised.value)


def test_arguments_are_options_of_docker_build() -> None:
    words = "--target main --build-arg NCCL_VERSION=2.30 --build-arg=UV=1 --tag megatron-lm:mine"
    request = parse_request(f"{words} --file docker/D")
    assert request == BuildRequest({"NCCL_VERSION": "2.30", "UV": "1"}, "main", "docker/D", "megatron-lm:mine")
    assert parse_request("") == BuildRequest()
    assert parse_request("--tag 127.0.0.1:5000/x/y:1").tag == "127.0.0.1:5000/x/y:1"


def test_the_site_file_names_the_engine(checkout: Checkout, offline: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("engine: podman\n")
    plan = planned(checkout, offline, {"site": str(tmp_path / "site.yaml")}, tag="26.02-py3")
    assert "podman is not installed" in plan.done.sentence
    assert "docker is not installed" not in plan.done.sentence


def test_a_failed_build_is_recorded_with_a_fix(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failure = CommandFailure("It failed.", find("uv: command not found"), ("last words",))
    monkeypatch.setattr(container, "find", lambda *_: Engine("docker"))
    monkeypatch.setattr(container, "image_id", lambda *_: "")
    monkeypatch.setattr(container, "build", lambda *_: BuildResult("", 3, 4.0, failure))
    applied = bump(tag="26.02-py3", mode="local")
    record = Recorder("build-image", applied, checkout.repository(), tmp_path)
    run = Run(applied, checkout, record, OFFLINE)
    run.step(BuildImage(env={}))
    with pytest.raises(RunbookError, match=r"It failed\."):
        run.close()
    text = record.show().text
    assert failure.pitfalls[0].fix in text
    assert "megatron-lm.log" in text
    assert "last words" in capsys.readouterr().out
    assert "It waits for the one above." in text  # the check of the versions


# -- real builds -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("engine")
    process, url = start_registry(folder, folder / "registry")
    try:
        published = place(folder, url)
        published.publish(TAG, claims("26.04"))
        published.publish("25.09-py3", claims("25.09"))  # contains the versions of 26.04
        yield published
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PracticeWorld:
    monkeypatch.setenv("RUNBOOK_AUDIT", str(tmp_path / "audit"))
    monkeypatch.setenv("RUNBOOK_PRACTICE_HOME", str(tmp_path / "world"))
    return open_world()


def execute(name: str, /, **parameters: object) -> Ran:
    return run.execute(ROOT / "runbooks" / f"{name}.ipynb", parameters)


def predicate(result: Ran) -> dict[str, Any]:
    assert result.record is not None
    return json.loads((result.record / "run.json").read_text())  # type: ignore[no-any-return]


def with_engine(monkeypatch: pytest.MonkeyPatch, engine: Place) -> None:
    for name, value in engine.env.items():
        if os.environ.get(name) != value:
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("GITHUB_REPOSITORY", "practice/Megatron-LM")


@pytest.mark.component("registry")
@pytest.mark.component("container")
def test_the_image_of_a_bump_is_built_from_the_pin_that_it_wrote(
    world: PracticeWorld, engine: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert execute("01-github-pin", tag=TAG, mode="local").ok
    subprocess.run(["git", "-C", str(world.checkout), "switch", "-q", f"bump/main/dev-{TAG}"], check=True)
    with_engine(monkeypatch, engine)
    parameters = {"repo": str(world.checkout), "tag": TAG, "arguments": "--tag practice:bumped"}

    previewed = execute("build-image", **parameters)
    assert previewed.state == "previewed", previewed.summary
    build, look = (entry["sentence"] for entry in previewed.run["planned"])
    assert f"build practice:bumped on nvcr.io/nvidia/pytorch:{TAG}, from docker/Dockerfile.ci.dev (main)" in build
    assert ", with buildah 1." in build
    assert "practice:bumped" in look
    assert container.image_id(Engine("buildah"), "practice:bumped", engine.env) == ""

    first = execute("build-image", **parameters, mode="local")
    assert (first.state, first.summary) == ("done", "Built practice:bumped."), first.summary
    statement, record = predicate(first), first.record
    assert record is not None
    assert [check["status"] for check in statement["checks"]] == ["passed", "passed"]
    (effect,) = statement["effects"]
    image = container.image_id(Engine("buildah"), "practice:bumped", engine.env)
    assert (effect["target"], effect["before"], effect["after"]) == ("practice:bumped", "", image)
    assert image.startswith("sha256:")
    assert f"FROM nvcr.io/nvidia/pytorch:{TAG} AS main" in (record / "megatron-lm.log").read_text()
    smoke = (record / "smoke.csv").read_text()
    assert "PyTorch,2.12.0a0+0291f96,2.12.0a0+0291f96.nv26.4,as claimed," in smoke
    assert engine.buildah("containers", "-q") == ""

    repeated = execute("build-image", **parameters, mode="local")
    assert (repeated.state, predicate(repeated)["effects"]) == ("done", [])

    # A failed build leaves the earlier image, and the record names the line and the cause.
    (world.checkout / "docker/common/install_nccl.sh").write_text("uv sync --locked\n")
    failed = execute("build-image", **parameters, mode="local")
    assert failed.state == "failed"
    assert "RUN sh /opt/install_nccl.sh" in failed.summary
    assert container.image_id(Engine("buildah"), "practice:bumped", engine.env) == image
    assert predicate(failed)["effects"] == []


@pytest.mark.component("registry")
@pytest.mark.component("container")
@pytest.mark.parametrize("end", ["cancel", "kill"])
def test_a_build_that_is_cancelled_or_killed_leaves_no_image_and_can_be_run_again(
    world: PracticeWorld, engine: Place, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    with_engine(monkeypatch, engine)
    parameters: dict[str, object] = {"tag": "25.09-py3", "image_type": "lts", "repo": str(world.checkout)}
    parameters["arguments"] = f"--tag practice:{end}"
    file = world.checkout / "docker/Dockerfile.ci.lts"
    text = file.read_text()
    file.write_text(text.replace('RUN echo "uv', 'RUN sleep 600 && echo "uv'))
    command = [
        sys.executable,
        "-m",
        "runbook_lib.notebook.papermill",
        str(ROOT / "runbooks/build-image.ipynb"),
        "-p",
        "mode",
        "local",
    ]
    command += [part for name, value in parameters.items() for part in ("-p", name, str(value))]
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
    repeated = execute("build-image", **parameters, mode="local")
    assert "is claimed" in repeated.summary  # it was built: only its versions are others
    assert container.image_id(Engine("buildah"), f"practice:{end}", engine.env) != ""
    states = [json.loads(path.read_text())["state"] for path in sorted(audit.rglob("run.json"))]
    assert states == ["interrupted", "failed"]


@pytest.mark.component("registry")
@pytest.mark.component("container")
def test_an_image_with_other_versions_than_claimed_fails_the_check(
    world: PracticeWorld, engine: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_engine(monkeypatch, engine)
    result = execute("build-image", repo=str(world.checkout), tag="25.09-py3", image_type="lts", mode="local")
    assert result.state == "failed"
    assert f"PyTorch {ANSWER['found']['PyTorch']} (" in result.summary  # type: ignore[index]
    assert "is claimed)" in result.summary


def test_the_practice_environment_builds_nothing(world: PracticeWorld) -> None:
    result = execute("build-image", tag="26.02-py3", mode="local")
    assert result.state == "done", result.summary
    assert "practice" in result.summary
    assert predicate(result)["effects"] == []
