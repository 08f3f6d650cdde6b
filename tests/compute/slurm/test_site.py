"""A cluster as its user describes it."""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.compute.allocation import Allocation
from runbook_lib.compute.slurm.client import Partition
from runbook_lib.compute.slurm.cluster import not_shared, unmet_requirements, unmounted
from runbook_lib.compute.slurm.site import SCHEMA, Session, Site, parse
from runbook_lib.errors import RunbookError
from runbook_lib.recipes.workloads import Workload
from runbook_lib.text.user_file import load_schema

FILE = """\
partition: {dgx_h100: batch, dgx_gb200: grace}
account: me
image: /images/mcore.sqsh
mounts: [/data:/mnt/artifacts, /models:/models]
results: /lustre/me/
at-once: 4
gpus: false
platform: ''
early: true
in-image: [/opt/data]
least-gpus: 8
options: [--qos=high]
shared: true
"""
TEST = Workload("r", "gpt", "a", "dev", "dgx_h100", (), 2, 8, 3600, "true")


def test_an_empty_file_is_an_empty_site() -> None:
    assert parse("", "s", "/c") == Site("/c", "")
    assert parse("# nothing\n", "s", "/c") == Site("/c", "")


def test_a_complete_file() -> None:
    assert parse(FILE, "s", "/c") == Site(
        "/c", "/lustre/me", "/images/mcore.sqsh", {"dgx_h100": "batch", "dgx_gb200": "grace"}, "me",
        (("/data", "/mnt/artifacts"), ("/models", "/models")), 4, False, 8, ("--qos=high",), True, {}, ("/opt/data",),
        platform="", early=True, session=Session(Allocation(account="me")),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("image: megatron-lm:local", "Import it into a .sqsh file on shared storage first"),
        ("partitions: x", r"s:1: .*unknown key 'partitions'.*did you mean partition\?"),
        ("partition: 3", "s:1: partition is 3; expected a name"),
        ("partition: {a: 1}", "expected a name, or names by platform"),
        ("image: [a]", r"image is \['a'\]; expected a text"),
        ("mounts: [/a]", "mounts is '/a'; expected outside:inside"),
        ("mounts: ['/a,/etc:/b']", "expected outside:inside"),
        ("mounts: [/a:/b:suid]", "expected outside:inside"),
        ("results: Megatron-LM", "expected an absolute path"),
        ("results: /a$(id)", "expected an absolute path"),
        ("image: a b", "without white space"),
        ("options: ['--comment=a #b']", "expected --name=value"),
        ('options: ["--qos=a\\nb"]', "expected --name=value"),
        ("options: [--nodes=3]", "--nodes follows"),
        ("options: [--part=other]", "--partition follows"),
        ("options: [--gpus=3]", "--gpus-per-node follows"),
        ("partition: a b", "expected a name"),
        ("partition: 'a,,b'", "expected a name"),
        ("account: 'a,b'", "expected the name of an account"),
        ("account: $(id)", "expected the name of an account"),
        ("at-once: -1", "expected a whole number"),
        ("master-port: 70000", "expected a whole number from 0 to 65535"),
        ("image: {a: 1}", "expected a text, or texts by platform"),
    ],
)
def test_an_invalid_file_is_explained(text: str, says: str) -> None:
    with pytest.raises(RunbookError, match=says):
        parse(text, "s", "/c")


@given(st.text(alphabet="apcountimges:-[]{}/ \n&*'", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(RunbookError):
        site = parse(text, "s", "/c")
        assert site.checkout == "/c"
        assert all(mount[0].startswith("/") for mount in site.mounts)


@pytest.mark.parametrize(
    ("said", "on"),
    [
        ("tmpfs /dev/shm", "/dev/shm (tmpfs)"), ("xfs      /shared/scratch space", "/shared/scratch space (xfs)"),
        ("overlay /", "/ (overlay)"), ("nfs4 /shared", ""), ("lustre /lustre", ""),
    ],
)  # fmt: skip
def test_a_file_system_of_one_machine_is_refused(tmp_path: Path, said: str, on: str) -> None:
    (tmp_path / "df").write_text(f"#!/bin/sh\necho 'Type Mounted on'; echo '{said}'; [ \"$3\" = {tmp_path} ]\n")
    (tmp_path / "df").chmod(0o755)
    told = not_shared(f"{tmp_path}/new/results", {"PATH": f"{tmp_path}:/bin"})
    assert told.startswith(f"{tmp_path}/new/results is on {on},") if on else told == ""


def test_an_unknown_file_system_is_not_refused(tmp_path: Path) -> None:
    assert not_shared("/x", {"PATH": str(tmp_path)}) == ""


@pytest.mark.parametrize(
    ("site", "partition", "says"),
    [
        ({}, {}, []),
        ({"partitions": {"": "batch"}}, {"default": False}, []),
        ({"partitions": {"": "other"}}, {}, []),  # told by Site.problems
        ({}, {"default": False}, ["The cluster has no default partition. Name one as partition."]),
        ({}, {"nodes": 2}, []),
        ({}, {"nodes": 1}, ["The partition batch has 1 nodes, and gpt/a@dgx_h100 (dev) needs 2."]),
        ({}, {"gpus": 4}, ["The nodes of batch have 4 GPUs, and gpt/a@dgx_h100 (dev) needs 8."]),
        ({"gpus": False}, {"gpus": 0}, []),
        ({}, {"seconds": 3600}, []),
        (
            {"partitions": {"": "gone,batch"}},
            {"nodes": 1},
            ["The partition batch has 1 nodes, and gpt/a@dgx_h100 (dev) needs 2."],
        ),
        ({}, {"seconds": 3599}, ["batch has a time limit of 3599 s, and gpt/a@dgx_h100 (dev) needs 3600 s."]),
    ],
)
def test_requirements_that_a_partition_does_not_meet(
    site: dict[str, Any], partition: dict[str, Any], says: list[str]
) -> None:
    has = replace(Partition("batch", None, 4, 8, True), **partition)
    assert list(unmet_requirements(replace(Site("/c", "/r"), **site), [has], TEST)) == says


def test_one_of_several_partitions_suffices() -> None:
    site = Site("/c", "/r", partitions={"": "small,large"})
    small, large = Partition("small", 60, 1, 8), Partition("large", None, 9, 8)
    assert unmet_requirements(site, [small, large], TEST) == ()
    assert len(unmet_requirements(site, [small, replace(large, nodes=1)], TEST)) == 3


@pytest.mark.parametrize(
    ("site", "texts", "lacks"),
    [
        ({}, ["DATA_PATH=/mnt/artifacts"], ""),  # without an image it is for the nodes to have
        ({"image": "i"}, ["", "ls /tmp/x /mnt /mnt/"], ""),
        ({"image": "i"}, ["{artifacts_dir}/mnt/x ./mnt/x a/b https://a.b/c/d ${HOME}/x $HOME/y /usr/local/x"], ""),
        ({"image": "i"}, ["echo x", "--prompts: Ask the /admin and/or me"], ""),
        ({"image": "i", "mounts": (("/d", "/mnt/artifacts"),)}, ["DATA=/mnt/artifacts/", "/mnt/artifacts/a"], ""),
        ({"image": "i", "mounts": (("/d", "/mnt/artifacts", "ro"),)}, ["DATA=/mnt/artifacts/"], ""),
        ({"image": "i", "mounts": (("/d", "/mnt/"),)}, ["DATA=/mnt/artifacts/"], ""),
        ({"image": "i", "mounts": (("/d", "/mnt/artifacts/text"),)}, ["DATA=/mnt/artifacts/"], ""),
        ({"image": "i", "in_image": ("/mnt/artifacts",)}, ["DATA=/mnt/artifacts/"], ""),
        ({"image": "i", "mounts": (("/d", "/mnt/art"),)}, ["DATA=/mnt/artifacts/x"], "/mnt/artifacts,"),
        ({"image": "i"}, ["--load /mnt/artifacts/x", "a: /mnt/models/b/c"], "/mnt/artifacts and /mnt/models,"),
        ({"image": "i"}, ["DATA_PATH=/data"], "/data,"),
        ({"image": "i"}, ["", "  --vocab-file: '/scratch/v/x.json'"], "/scratch/v,"),
        ({"images": {"dgx_h100": "i"}}, ["DATA_PATH=/data"], "/data,"),
        ({"images": {"dgx_gb200": "i"}}, ["DATA_PATH=/data"], ""),
        # Two nodes must share even a folder that is only written.
        ({"image": "i"}, ['"DATA_CACHE_PATH=/lustre/fsw/a/cache/"\nrm -rf /lustre/fsw/a'], "/lustre/fsw,"),
        ({"image": "i", "mounts": (("/l", "/lustre"),)}, ['"DATA_CACHE_PATH=/lustre/fsw/a/cache/"'], ""),
    ],
)
def test_folders_missing_from_a_container_are_named(site: dict[str, Any], texts: list[str], lacks: str) -> None:
    test = replace(TEST, script=texts[0])
    sentence = unmounted(replace(Site("/c", "/r"), **site), test, "\n".join(texts[1:]))
    assert sentence.startswith(f"The test uses {lacks} and nothing is mounted there.") if lacks else sentence == ""


def test_a_folder_that_one_node_only_writes_needs_no_mount() -> None:
    script = 'DATA_CACHE_PATH=/lustre/fsw/a/cache/\nrm -rf "/lustre/fsw/a"\nmkdir -p /scratch/a/b'
    assert unmounted(Site("/c", "/r", "i"), replace(TEST, nodes=1, script=script), "") == ""
    assert "/lustre/fsw" in unmounted(
        Site("/c", "/r", "i"), replace(TEST, nodes=1, script=f"{script}\nls /lustre/fsw"), ""
    )


def test_images_and_gpus_by_platform_and_type() -> None:
    images = "image: {dgx_h100: /a.sqsh, dgx_gb200: 'nvcr.io/nvidia/nemo:26.06'}"
    site = parse(
        f"{images}\noptions: [--gpus-per-node=h100:8, '--constraint=a&b']\nleast-gpus: 4\nresults: /r\n", "s", "/c"
    )
    assert [site.image_for(name) for name in ("dgx_h100", "dgx_ gb200", "dgx_a100")] == [
        "/a.sqsh", "nvcr.io#nvidia/nemo:26.06", "",
    ]  # fmt: skip
    assert (site.gpu_type, site.least_gpus, site.options) == ("h100", 8, ("--constraint=a&b",))


def test_a_cluster_without_gpus_has_a_hint() -> None:
    told = unmet_requirements(Site("/c", "/r"), [Partition("batch", None, 4, 0, True)], TEST)
    assert "gpus: false" in told[0]


def test_the_guides_file_is_valid() -> None:
    docs = Path(__file__).resolve().parents[3] / "docs"
    guides = [(docs / name).read_text() for name in ("build-and-verify.md", "bisect.md")]
    parts = [part.partition("```")[0] for guide in guides for part in guide.split("```yaml\n")[1:]]
    values = {key: value for part in parts for key, value in yaml.safe_load(part).items() if key != "overlays"}
    text = yaml.safe_dump(values)
    assert parse(text, "s", "/c").results
    assert set(values) == set(load_schema("runbook_lib.compute.slurm", SCHEMA)["properties"])
