"""Build plans from the real history of Megatron-LM, from Megatron-Bridge and ml-containers; the files are the judge."""

import re
from pathlib import Path

import pytest

from runbook_lib.compute import build_plan
from runbook_lib.compute.build_plan import BuildPlan
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM, ML_CONTAINERS, Repository
from runbook_lib.world.git.checkout import Checkout

pytestmark = pytest.mark.replay

#: A commit of each layout, as `sites` describes them.
LAYOUTS = {"layout 1": "23a1dcaf74^", "layout 2": "23a1dcaf74", "layout 3": "cdca7a60d8", "layout 4": "4f2e7ce74a"}
MAIN, BRIDGE_MAIN = "d98e8a64", "067f987d"


def texts(clone: Path, ref: str, repository: Repository) -> dict[str, str | None]:
    return Checkout.open(clone).read(build_plan.paths(repository), ref)


def show(clone: Path, ref: str, path: str) -> str:
    return Checkout.open(clone).read([path], ref)[path] or ""


def given(plan: BuildPlan) -> tuple[str, str, dict[str, str]]:
    """Return the Dockerfile, the target and the build arguments of a plan."""
    pairs = [option.removeprefix("--").split("=", 1) for option in plan.options]
    named = dict(pairs)
    return (
        named["file"],
        named.get("target", ""),
        dict(value.split("=", 1) for name, value in pairs if name == "build-arg"),
    )


def judge(clone: Path, ref: str, plan: BuildPlan) -> None:
    """By plain patterns over the file: its stages, its arguments, and that no stage of the plan wants a secret."""
    dockerfile, target, arguments = given(plan)
    text = show(clone, ref, dockerfile)
    stages = re.split(r"(?m)^FROM ", text)[1:]
    names = [re.match(r"\S+ +(?:AS|as) +(\S+)", stage) for stage in stages]
    by_name = {name[1] if name else str(index): stages[index] for index, name in enumerate(names)}
    assert target in (*by_name, "")
    assert "type=secret" not in by_name.get(target, stages[-1])
    assert arguments.keys() <= set(re.findall(r"(?m)^ARG +(\w+)", text))


@pytest.mark.parametrize("image_type", ["dev", "lts"])
@pytest.mark.parametrize("ref", [*LAYOUTS.values(), MAIN], ids=[*LAYOUTS, "main"])
def test_dev_and_lts_at_every_layout(megatron_lm, ref, image_type):
    plan = build_plan.plan(texts(megatron_lm, ref, MEGATRON_LM), MEGATRON_LM, image_type)
    judge(megatron_lm, ref, plan)
    own = image_type == "lts" and ref in (LAYOUTS["layout 1"], LAYOUTS["layout 4"], MAIN)
    dockerfile, target, arguments = given(plan)
    assert dockerfile == f"docker/Dockerfile.ci.{'lts' if own else 'dev'}"
    assert (target, plan.context, plan.warnings) == ("main", ".", ())
    path, _, line = plan.source.rpartition(":")
    assert str(plan.base) in show(megatron_lm, ref, path).splitlines()[int(line) - 1]
    assert path == (
        ".gitlab/stages/01.build.yml" if ref == LAYOUTS["layout 1"] else f"docker/.ngc_version.{image_type}"
    )
    assert tuple(f"{name}/" for name in plan.folders) == (
        ("assets/",) if "\nCOPY assets/ " in show(megatron_lm, ref, dockerfile) else ()
    )
    assert arguments.get("IMAGE_TYPE") == (None if own or ref == LAYOUTS["layout 1"] else image_type)


def test_megatron_bridge(megatron_bridge):
    plan = build_plan.plan(texts(megatron_bridge, BRIDGE_MAIN, MEGATRON_BRIDGE), MEGATRON_BRIDGE)
    judge(megatron_bridge, BRIDGE_MAIN, plan)
    assert given(plan)[:2] == ("docker/Dockerfile.ci", "megatron_bridge")
    assert str(plan.base) == "nvcr.io/nvidia/pytorch:26.06-py3"
    (warning,) = plan.warnings
    assert ".github/workflows/cicd-main.yml" in warning
    assert "25.09-py3" in warning


def test_ml_containers(ml_containers):
    plan = build_plan.plan(texts(ml_containers, "HEAD", ML_CONTAINERS), ML_CONTAINERS)
    judge(ml_containers, "HEAD", plan)
    assert (given(plan)[0], plan.context) == ("megatron/Dockerfile", "megatron")
    assert str(plan.base) in show(ml_containers, "HEAD", ".github/workflows/megatron.yml")
