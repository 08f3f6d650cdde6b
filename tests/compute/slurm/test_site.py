"""A cluster as its user describes it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from runbook_lib.compute.slurm.selection import prepare
from runbook_lib.compute.slurm.site import SCHEMA, Resources, Session, Site, parse, read_site
from runbook_lib.compute.workloads import Workload
from runbook_lib.errors import RunbookError
from runbook_lib.text.user_file import load_schema

FILE = """\
partition: batch
account: me
image: /images/mcore.sqsh
mounts: [/data:/mnt/artifacts, /models:/models:ro]
results: /lustre/me/
gpus: false
platform: dgx_gb200
early: true
least-gpus: 8
options: [--qos=high, '--gpus-per-node=h100:8']
"""
TEST = Workload("r", "gpt", "a", "dev", "dgx_h100", (), Resources(2, 8, 60), "true")


def test_an_empty_file_is_an_empty_site_and_a_complete_one_is_read() -> None:
    assert parse("", "s") == parse("# nothing\n", "s") == Site()
    assert parse(FILE, "s") == Site(
        "/lustre/me", "/images/mcore.sqsh", ["/data:/mnt/artifacts", "/models:/models:ro"],
        ["--qos=high", "--gpus-per-node=h100:8"], True, session=Session(1, 8, "me", "batch"),
        platform="dgx_gb200",
        gpus=False,
        least_gpus=8,
    )  # fmt: skip
    assert parse("image: 'nvcr.io/nvidia/nemo:26.06'", "s").image == "nvcr.io#nvidia/nemo:26.06"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("image: megatron-lm:local", "Import it into a .sqsh file on shared storage first"),
        ("partitions: x", r"s:1: .*unknown key 'partitions'.*did you mean partition\?"),
        ("partition: 3", "s:1: partition is 3; expected a name"),
        ("image: [a]", r"image is \['a'\]; expected a text"),
        ("mounts: [/a]", "mounts is '/a'; expected outside:inside"),
        ("mounts: ['/a,/etc:/b']", "expected outside:inside"),
        ("results: Megatron-LM", "expected an absolute path"),
        ("results: /a$(id)", "expected an absolute path"),
        ("image: a b", "without white space"),
        ('options: ["--qos=a\\nb"]', "expected --name=value"),
        ("options: [--nodes=3]", "'--nodes=3'; expected --name=value.*follow from the recipe"),
        ("partition: 'a,,b'", "expected a name"),
        ("account: $(id)", "expected the name of an account"),
        ("components: {apex: 25.04; id}", "such as '25.04'"),
        ("search-image: registry.example/mcore:latest", r"name with \{tag\}"),
        ("least-gpus: -1", "expected a whole number from 0 to 10000"),
    ],
)
def test_an_invalid_file_is_explained(text: str, says: str) -> None:
    with pytest.raises(RunbookError, match=says):
        parse(text, "s")


@pytest.mark.parametrize(
    ("site", "script", "settings", "nodes", "lacks"),
    [
        ({}, "cd /opt/megatron-lm", "--load: /mnt/artifacts/x", 1, "/mnt/artifacts,"),
        ({"mounts": ["/d:/mnt/artifacts"]}, "DATA=/mnt/artifacts/", "", 1, ""),
        ({"mounts": ["/d:/mnt/:ro"]}, "DATA=/mnt/artifacts/", "", 1, ""),
        ({"mounts": ["/d:/mnt/artifacts/text"]}, "DATA=/mnt/artifacts/", "", 1, ""),
        ({"mounts": ["/d:/mnt/art"]}, "DATA=/mnt/artifacts/x", "", 1, "/mnt/artifacts,"),
        # A node creates the folder of a cache for itself; two nodes must share it.
        ({}, "DATA_CACHE_PATH=/lustre/fsw/a/cache/", "", 1, ""),
        ({}, "DATA_CACHE_PATH=/lustre/fsw/a/cache/", "", 2, "/lustre/fsw,"),
        ({"mounts": ["/l:/lustre"]}, "DATA_CACHE_PATH=/lustre/fsw/a/cache/", "", 2, ""),
    ],
)
def test_folders_missing_from_a_container_are_named(
    site: dict[str, Any], script: str, settings: str, nodes: int, lacks: str
) -> None:
    sentence = prepare(
        replace(TEST, script=script, needs=Resources(nodes, 8, 60)), settings or None, replace(Site("/r"), **site)
    ).obstacle
    assert lacks in sentence
    assert bool(lacks) == bool(sentence)


@pytest.mark.parametrize(("time", "minutes"), [("", 0), ("1:30:00", 90), ("0:00:30", 1), ("0:01:01", 2)])
def test_a_time_limit_in_minutes_is_rounded_up(time: str, minutes: int) -> None:
    assert Session(time=time).minutes == minutes


@pytest.mark.parametrize("named", ["~nobody-here/site.yaml", "/no/site.yaml", "a\0b"])
def test_a_file_that_cannot_be_read_is_named(named: str) -> None:
    with pytest.raises(RunbookError, match="cannot be read"):
        read_site(named)


def test_the_guides_file_is_valid() -> None:
    docs = Path(__file__).resolve().parents[3] / "docs"
    guides = [(docs / name).read_text() for name in ("build-and-verify.md", "bisect.md")]
    parts = [part.partition("```")[0] for guide in guides for part in guide.split("```yaml\n")[1:]]
    values = {key: value for part in parts for key, value in yaml.safe_load(part).items()}
    text = yaml.safe_dump(values)
    assert parse(text, "s").results
    assert set(values) == set(load_schema("runbook_lib.compute.slurm", SCHEMA)["properties"])
