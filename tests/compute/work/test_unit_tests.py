"""Unit tests inside the image: buckets, files, names, and what does not exist."""

import pytest

from runbook_lib.compute.work.tasks import WorkStep
from runbook_lib.compute.work.unit_tests import plan_tests
from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import ImageType
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM
from runbook_lib.recipes.workloads import Workload

FILES = frozenset({
    "tests/unit_tests/test_utils.py", "tests/unit_tests/transformer/moe/test_router.py", "tests/unit_tests/__init__.py",
    "tests/unit_tests/Launch_Unit_Tests_Core.sh",
})  # fmt: skip
ROWS = (
    ("tests/unit_tests/**/*.py", "dgx_h100", 8, ("lts", "dev")),
    ("tests/unit_tests/transformer/**/*.py", "dgx_h100", 8, ("dev",)),
    ("tests/unit_tests/transformer/moe/**/*.py", "dgx_h100", 8, ("lts", "dev")),
    ("tests/unit_tests/rl/", "dgx_gb200", 4, ("dev",)),
)
BUCKETS = [
    Workload("r", "unit-tests", name, environment, platform, (), 1, gpus, 60, "true")
    for name, platform, gpus, environments in ROWS
    for environment in environments
]


def plan(tests: str, image_type: ImageType = "dev", gpus: int = 8) -> WorkStep:
    return plan_tests(tests, MEGATRON_LM.name, BUCKETS, FILES, image_type, gpus)


def test_a_bucket_is_run_by_cis_script() -> None:
    step = plan("tests/unit_tests/transformer/**/*.py")
    assert step.command[:2] == ("bash", "tests/unit_tests/run_ci_test.sh")
    assert step.command[2:8] == ("--tag", "latest", "--environment", "dev", "--bucket", ROWS[1][0])
    assert ("GPUS_PER_NODE", "8") in step.env
    assert "--platform" not in step.command


def test_a_bucket_of_another_platform_names_it() -> None:
    step = plan("tests/unit_tests/rl/")
    assert step.command[8:10] == ("--platform", "gb200")
    assert step.env == (("GPUS_PER_NODE", "4"),)


def test_a_bucket_that_ci_does_not_run_for_an_image_type_is_refused() -> None:
    with pytest.raises(RunbookError, match="only for dev"):
        plan("tests/unit_tests/transformer/**/*.py", "lts")


@pytest.mark.parametrize(
    ("tests", "last"),
    [
        ("", ("tests/unit_tests",)),
        ("tests/unit_tests/test_utils.py", ("tests/unit_tests/test_utils.py",)),
        ("tests/unit_tests/test_utils.py::TestIt::test_x", ("tests/unit_tests/test_utils.py::TestIt::test_x",)),
        ("tests/unit_tests/transformer", ("tests/unit_tests/transformer",)),
        ("optimizer and not moe", ("tests/unit_tests", "-k", "optimizer and not moe")),
        ("$(rm -rf ~)", ("tests/unit_tests", "-k", "$(rm -rf ~)")),
    ],
)
def test_files_tests_and_names_are_run_by_torch(tests: str, last: tuple[str, ...]) -> None:
    step = plan(tests, gpus=4)
    head = ("uv", "run", "--no-sync", "python", "-m", "torch.distributed.run", "--nproc-per-node=4")
    assert step.command[: len(head)] == head
    assert step.command[-len(last) :] == last
    assert step.gpus


@pytest.mark.parametrize("tests", ["tests/unit_tests/test_util.py", "-k x", "a\nb", "tests/gone/", "test_utils.p.py"])
def test_tests_that_do_not_exist_are_refused(tests: str) -> None:
    with pytest.raises(RunbookError):
        plan(tests)


def test_a_similar_file_is_suggested() -> None:
    with pytest.raises(RunbookError, match=r"tests/unit_tests/test_utils\.py"):
        plan("tests/unit_tests/test_util.py")


def test_megatron_bridge_has_scripts_for_buckets() -> None:
    step = plan_tests("core", MEGATRON_BRIDGE.name, (), FILES, "dev")
    assert step.command == ("bash", "tests/unit_tests/Launch_Unit_Tests_Core.sh")
    assert dict(step.env) == {"SHARD_ID": "0", "NUM_SHARDS": "1"}
    step = plan_tests("tests/unit_tests/test_utils.py", MEGATRON_BRIDGE.name, (), FILES, "dev")
    assert step.command[-3:] == ("-m", "not pleasefixme", "tests/unit_tests/test_utils.py")
    assert "torch.distributed.run" not in step.command
