"""Batch files for Slurm: what they hold, how many calls they take, and what is refused."""

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runbook_lib.compute.slurm.batch_files import CALLS, JobArray, arrays
from runbook_lib.compute.slurm.site import Site
from runbook_lib.errors import CannotTell
from runbook_lib.recipes.parallelism import Connections
from runbook_lib.recipes.workloads import Workload

SITE = Site("/shared/Megatron-LM", "/shared/results")
UNSET, ONE = Connections(None, "Nothing requires it."), Connections(1, "TP 2 on Hopper\nrequires 1.")


def workload(
    case: str = "a", platform: str = "dgx_h100", nodes: int = 1, gpus: int = 8, seconds: int = 1800,
    script: str = "echo {test_case} > {assets_dir}/x", values: Mapping[str, str] | None = None,
) -> Workload:  # fmt: skip
    return Workload(
        "r.yaml",
        "gpt",
        case,
        "dev",
        platform,
        ("mr",),
        nodes,
        gpus,
        seconds,
        script,
        {"test_case": case, **(values or {})},
    )


def rendered(*tests: Workload, site: Site = SITE, connections: Connections = UNSET) -> tuple[JobArray, ...]:
    return arrays([(it, connections) for it in tests], site)


def directives(array: JobArray) -> dict[str, str]:
    lines = (line.removeprefix("#SBATCH --") for line in array.text.splitlines() if line.startswith("#SBATCH --"))
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def test_nothing_chosen_makes_nothing() -> None:
    assert arrays([], SITE) == ()


def test_a_test_gets_the_resources_in_its_recipe() -> None:
    (array,) = rendered(workload(nodes=2, gpus=4, seconds=5400))
    asked = directives(array)
    assert {name: asked[name] for name in ("nodes", "ntasks-per-node", "gpus-per-node", "time", "array")} == {
        "nodes": "2", "ntasks-per-node": "1", "gpus-per-node": "4", "time": "01:30:00", "array": "0-0",
    }  # fmt: skip
    assert asked["output"] == f"/shared/results/{array.name}/%a/job.log"
    assert not {"partition", "account", "error"} & asked.keys()
    assert "GPUS_PER_NODE=4\n" in array.text


@pytest.mark.parametrize(
    ("seconds", "time"), [(0, "00:01:00"), (60, "00:01:00"), (61, "00:02:00"), (90000, "25:00:00")]
)
def test_a_time_limit_is_rounded_up_to_minutes(seconds: int, time: str) -> None:
    assert directives(rendered(workload(seconds=seconds))[0])["time"] == time


def test_the_site_names_partition_account_and_more() -> None:
    site = replace(
        SITE,
        partitions={"": "batch", "dgx_gb200": "grace"},
        account="me",
        at_once=3,
        options=("--qos=high", "--exclusive"),
    )
    first, second = rendered(workload("a"), workload("b", "dgx_gb200"), workload("c"), site=site)
    assert [directives(it)["partition"] for it in (first, second)] == ["batch", "grace"]
    assert [directives(it)["array"] for it in (first, second)] == ["0-1%3", "0-0%3"]
    assert directives(first)["account"] == "me"
    assert directives(first)["qos"] == "high"
    assert "exclusive" in directives(first)


def test_a_cluster_without_gpus_in_its_books_and_one_that_gives_all() -> None:
    assert "gpus-per-node" not in directives(rendered(workload(), site=replace(SITE, gpus=False))[0])
    small = rendered(workload(gpus=1), site=replace(SITE, least_gpus=8))[0]
    assert directives(small)["gpus-per-node"] == "8"
    assert "GPUS_PER_NODE=8\n" in small.text


@pytest.mark.parametrize(
    ("change", "alone"),
    [
        ({}, False),  # what a node has is not known
        ({"node_gpus": {"": 16}}, False),
        ({"node_gpus": {"": 8}}, True),
        ({"node_gpus": {"batch": 8, "": 16}, "partitions": {"": "batch"}}, True),
        ({"node_gpus": {"batch": 8, "large": 8}, "partitions": {"": "batch,large"}}, True),
        ({"node_gpus": {"batch": 8, "large": 16}, "partitions": {"": "batch,large"}}, False),
        ({"gpus": False}, True),
        ({"gpus": False, "options": ("--oversubscribe",)}, False),
        ({"node_gpus": {"": 8}, "options": ("--cpus-per-gpu=16",)}, False),
        ({"node_gpus": {"": 8}, "options": ("--qos=high",)}, True),
    ],
)
def test_a_job_with_all_gpus_of_a_node_gets_the_complete_node(change: dict[str, Any], alone: bool) -> None:
    assert ("exclusive" in directives(rendered(workload(), site=replace(SITE, **change))[0])) == alone


def test_the_files_of_a_test() -> None:
    (array,) = rendered(workload("tp2", script="echo {name} ${{HOME}} {artifacts_dir}\n"), connections=ONE)
    (task,) = array.tasks
    assert task.folder == f"{array.folder}/0"
    assert sorted(array.files) == sorted([array.path, f"{task.folder}/task.sh", f"{task.folder}/script.sh"])
    assert task.script == f"echo gpt-tp2-dev-dgx_h100 ${{HOME}} {task.folder}/artifacts\n"
    assert "export CUDA_DEVICE_MAX_CONNECTIONS=1\n" in task.text
    assert "# TP 2 on Hopper requires 1.\n" in task.text
    assert "cd /shared/Megatron-LM\n" in task.text
    assert "\nexport RUN_ID=runbook-$SLURM_JOB_ID\n" in task.text  # recipes delete folders below it: never empty
    assert "hf_home" not in task.text
    assert "unset CUDA_DEVICE_MAX_CONNECTIONS\n" in rendered(workload())[0].tasks[0].text


def test_a_container_sees_a_copy_of_the_checkout_and_never_the_home() -> None:
    site = replace(SITE, image="/images/mcore.sqsh", mounts=(("/data", "/mnt/artifacts"),))
    (array,) = rendered(workload(script="cd /opt/megatron-lm"), site=site)
    assert "--container-image=/images/mcore.sqsh" in array.text
    mounts = "/shared/results:/shared/results,/data:/mnt/artifacts"
    assert f"--container-mounts={mounts} " in array.text
    assert "--no-container-mount-home" in array.text
    assert "#SBATCH --no-container" not in array.text  # it is an option of srun
    assert "export HF_HOME=/mnt/hf_home TRANSFORMERS_OFFLINE=1\n" in array.tasks[0].text
    assert "\ntar -C /opt/megatron-lm --no-same-owner -xf /shared/results/tree.tar\n" in array.tasks[0].text


def test_a_matrix_of_500_tests_takes_at_most_5_calls() -> None:
    shapes = [(1, 8), (1, 1), (2, 4), (1, 4)]
    tests = [workload(f"t{i}", nodes=shapes[i % 4][0], gpus=shapes[i % 4][1], seconds=600 + i) for i in range(500)]
    made = rendered(*tests)
    assert len(made) == 4 <= CALLS
    assert sum(len(it.tasks) for it in made) == 500
    for array in made:  # nobody gets less time than its recipe gives
        longest = max(task.workload.time_limit for task in array.tasks)
        hours, minutes, _ = map(int, directives(array)["time"].split(":"))
        assert 60 * (60 * hours + minutes) >= longest
        assert {(it.workload.nodes, it.workload.gpus) for it in array.tasks} == {
            (int(directives(array)["nodes"]), int(directives(array)["gpus-per-node"]))
        }
    assert len({it.name for it in made}) == 4


def test_time_limits_are_separate_while_enough_calls_are_left() -> None:
    made = rendered(*(workload(f"t{i}", seconds=600 * (i % 3 + 1)) for i in range(6)))
    assert [directives(it)["time"] for it in made] == ["00:10:00", "00:20:00", "00:30:00"]


def test_an_array_holds_no_more_than_slurm_takes() -> None:
    made = arrays([(workload(f"t{i}"), UNSET) for i in range(25)], SITE, largest=10)
    assert [directives(it)["array"] for it in made] == ["0-9", "0-9", "0-4"]


def test_the_same_matrix_has_the_same_names_and_another_has_others() -> None:
    names = {rendered(workload("a"))[0].name, rendered(workload("a"))[0].name}
    assert len(names) == 1
    others = [
        rendered(workload("b")),
        rendered(workload("a", nodes=2)),
        rendered(workload(), site=replace(SITE, results="/r")),
    ]
    assert len(names | {it[0].name for it in others}) == 4


def test_a_platform_is_read_as_ci_does() -> None:
    site = replace(SITE, partitions={"": "batch,large", "dgx_gb200": "grace"})
    assert (site.partition("dgx  x_h100"), site.partition("dgx _gb200")) == ("batch,large", "grace")


def test_a_location_without_a_value_is_reported() -> None:
    with pytest.raises(CannotTell, match=r"line 1 of the script .* \{nothing\}"):
        rendered(workload(script="{nothing}"))


@pytest.mark.parametrize(
    "option", ["--exclude=node[1-2,7]", "--constraint=a&b", "--constraint=[a|b]*2", "--signal=USR1@300"]
)
def test_options_of_sbatch_are_passed_on(option: str) -> None:
    (array,) = rendered(workload(), site=replace(SITE, options=(option,)))
    assert array.text.count(f"#SBATCH {option}\n") == 1
    assert array.text.index(option) > array.text.index("--signal=USR1@60")  # the later option counts


def test_type_of_gpus_port_and_read_only_mounts() -> None:
    (array,) = rendered(workload(), site=replace(SITE, gpu_type="h100", master_port=29500))
    assert directives(array)["gpus-per-node"] == "h100:8"
    assert "\nMASTER_PORT=29500\n" in array.text
    assert "exclusive" in directives(array)  # two tests on a node would use the same port
    mounts = (("/data", "/mnt/artifacts", "ro"),)
    (array,) = rendered(workload(), site=replace(SITE, image="/a.sqsh", mounts=mounts))
    assert "--container-mounts=/shared/results:/shared/results,/data:/mnt/artifacts:ro " in array.text


def test_each_platform_has_its_image() -> None:
    site = replace(SITE, images={"dgx_h100": "/amd64.sqsh", "dgx_gb200": "/arm64.sqsh"})
    tests = [workload("a", script="cd /opt/megatron-lm"), workload("b", "dgx_gb200", script="cd /opt/megatron-lm")]
    assert ["/arm64.sqsh" in array.text for array in rendered(*tests, site=site)] == [False, True]


@pytest.mark.component("shellcheck")
def test_shellcheck_finds_nothing(tmp_path: Path) -> None:
    site = replace(SITE, image="/images/mcore.sqsh")
    files = {}
    for where, connections in ((SITE, UNSET), (site, ONE)):
        for array in rendered(workload("it's", script="true"), site=where, connections=connections):
            files |= {array.path: array.text, array.tasks[0].path: array.tasks[0].text}
    for number, text in enumerate(files.values()):
        (tmp_path / f"{number}.sh").write_text(text)
    program = shutil.which("shellcheck") or "shellcheck"
    done = subprocess.run([program, *tmp_path.glob("*.sh")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
