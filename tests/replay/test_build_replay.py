"""Build plans from the real history of Megatron-LM, from Megatron-Bridge and ml-containers; the files are the judge."""

import re
from pathlib import Path

import pytest

from runbook_lib.compute import build_plan
from runbook_lib.compute.build_plan import BuildRequest
from runbook_lib.compute.engine import ENGINES, BuildPlan, Engine
from runbook_lib.errors import RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM, ML_CONTAINERS, Repository

pytestmark = pytest.mark.replay

#: A commit of each layout, as `sites` describes them.
LAYOUTS = {"layout 1": "23a1dcaf74^", "layout 2": "23a1dcaf74", "layout 3": "cdca7a60d8", "layout 4": "4f2e7ce74a"}
MAIN, BRIDGE_MAIN = "d98e8a64", "067f987d"


def texts(clone: Path, ref: str, repository: Repository) -> dict[str, str | None]:
    return Checkout.open(clone).read(build_plan.paths(repository), ref)


def show(clone: Path, ref: str, path: str) -> str:
    return Checkout.open(clone).read([path], ref)[path] or ""


def judge(clone: Path, ref: str, plan: BuildPlan) -> None:
    """By plain patterns over the file: its stages, its arguments, and that no stage of the plan wants a secret."""
    text = show(clone, ref, plan.command.dockerfile)
    stages = re.split(r"(?m)^FROM ", text)[1:]
    names = [re.match(r"\S+ +(?:AS|as) +(\S+)", stage) for stage in stages]
    by_name = {name[1] if name else str(index): stages[index] for index, name in enumerate(names)}
    assert plan.command.target in (*by_name, "")
    assert "type=secret" not in by_name.get(plan.command.target, stages[-1])
    declared = set(re.findall(r"(?m)^ARG +(\w+)", text))
    assert {name for name, _ in plan.command.arguments} <= declared
    for engine in ENGINES:
        command = plan.command.words(Engine(engine))
        assert command[:2] == (engine, "build")
        assert f"--file={plan.command.dockerfile}" in command
        assert command[-1] == plan.command.context


@pytest.mark.parametrize("image_type", ["dev", "lts"])
@pytest.mark.parametrize("ref", [*LAYOUTS.values(), MAIN], ids=[*LAYOUTS, "main"])
def test_dev_and_lts_at_every_layout(megatron_lm, ref, image_type):
    plan = build_plan.plan(texts(megatron_lm, ref, MEGATRON_LM), MEGATRON_LM, image_type)
    judge(megatron_lm, ref, plan)
    own = image_type == "lts" and ref in (LAYOUTS["layout 1"], LAYOUTS["layout 4"], MAIN)
    assert plan.command.dockerfile == f"docker/Dockerfile.ci.{'lts' if own else 'dev'}"
    assert (plan.command.target, plan.command.context, plan.warnings) == ("main", ".", ())
    path, _, line = plan.source.rpartition(":")
    assert plan.base in show(megatron_lm, ref, path).splitlines()[int(line) - 1]
    assert path == (
        ".gitlab/stages/01.build.yml" if ref == LAYOUTS["layout 1"] else f"docker/.ngc_version.{image_type}"
    )
    assert tuple(f"{name}/" for name in plan.folders) == (
        ("assets/",) if "\nCOPY assets/ " in show(megatron_lm, ref, plan.command.dockerfile) else ()
    )
    assert dict(plan.command.arguments).get("IMAGE_TYPE") == (None if own or ref == LAYOUTS["layout 1"] else image_type)


def test_megatron_bridge(megatron_bridge):
    clone = megatron_bridge
    plan = build_plan.plan(texts(clone, BRIDGE_MAIN, MEGATRON_BRIDGE), MEGATRON_BRIDGE)
    judge(clone, BRIDGE_MAIN, plan)
    assert (plan.command.dockerfile, plan.command.target) == ("docker/Dockerfile.ci", "megatron_bridge")
    assert plan.base == "nvcr.io/nvidia/pytorch:26.06-py3"
    (warning,) = plan.warnings
    assert ".github/workflows/cicd-main.yml" in warning
    assert "25.09-py3" in warning
    request = BuildRequest({"FROM_IMAGE_NAME": plan.base})
    with pytest.raises(RunbookError, match="declares no ARG FROM_IMAGE_NAME"):  # what its CI passes
        build_plan.plan(texts(clone, BRIDGE_MAIN, MEGATRON_BRIDGE), MEGATRON_BRIDGE, request=request)


def test_ml_containers(ml_containers):
    clone = ml_containers
    plan = build_plan.plan(texts(clone, "HEAD", ML_CONTAINERS), ML_CONTAINERS)
    judge(clone, "HEAD", plan)
    assert (plan.command.dockerfile, plan.command.context) == ("megatron/Dockerfile", "megatron")
    assert plan.base in show(clone, "HEAD", ".github/workflows/megatron.yml")
