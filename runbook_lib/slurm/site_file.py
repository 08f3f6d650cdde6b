"""A cluster as its user describes it: a small YAML file, parameters that override it, or both.  Pure.

partition: batch                  # several: batch,large; or by platform: {dgx_h100: batch, dgx_gb200: grace}
account: my-account
image: /shared/images/megatron-lm.sqsh   # or nvcr.io/nvidia/nemo:26.06
mounts: [/shared/data:/mnt/artifacts]    # what the recipes read: data, tokenizers, checkpoints
in-image: []                      # folders that the image has itself, such as /mnt/artifacts
results: /shared/me/results       # seen by all nodes under the same path
at-once: 0                        # so many tests of an array run at a time; 0: no limit
gpus: true                        # false where whole nodes are allocated
least-gpus: 0                     # GPUs a node for tests whose recipe names fewer, such as 8
options: [--qos=high]             # further options of sbatch
shared: false                     # true: you vouch that all nodes see the paths

A test that takes all GPUs of its nodes, and every test with ``gpus: false``, has its nodes alone (``--exclusive``).
Options such as ``--cpus-per-gpu=16`` or ``--oversubscribe`` override that.  ``site.schema.json`` declares the format.
"""

import itertools
import json
import re
from collections.abc import Collection, Sequence
from functools import cache
from importlib.resources import files

from runbook_lib.containers.work.image import WorkImage
from runbook_lib.errors import RunbookError
from runbook_lib.recipes.workloads import Workload
from runbook_lib.slurm.batch_files import Site
from runbook_lib.slurm.states import Partition
from runbook_lib.text import user_file
from runbook_lib.text.user_file import Schema

#: Where recipes and settings of tests expect what no image holds.
_DATA = re.compile(r"(?<![\w./}-])/mnt/[\w.-]{1,100}")
#: File systems that live in one machine alone, by their names in ``/proc/self/mountinfo``.
_LOCAL = frozenset({"tmpfs", "ramfs", "overlay", "devtmpfs", "squashfs", "zfs", "ext2", "ext3", "ext4", "xfs", "btrfs"})


def parse(
    text: str, origin: str, checkout: str, *, partition: str = "", account: str = "", image: str = "", mounts: str = "",
    results: str = "",
) -> Site:  # fmt: skip
    """Return the site that a file describes (its text may be empty); a parameter that is given replaces its value.

    ``mounts`` are ``outside:inside``, separated by commas or white space.  Raises RunbookError, which names file, line
    and key.
    """
    values = user_file.read(text, schema(), "site file", origin).values
    partitions = partition or values.get("partition") or {}
    if isinstance(partitions, str):
        partitions = {"": partitions}
    listed = values.get("mounts") or []
    if mounts.strip():
        listed = re.split(r"[,\s]+", mounts.strip())
    return Site(
        checkout,
        (results or values.get("results") or "").rstrip("/"),
        image=_image(image or values.get("image") or ""),
        partitions=dict(partitions),
        account=account or values.get("account") or "",
        mounts=tuple(_mount(mount) for mount in listed),
        at_once=values.get("at-once", 0),
        gpus=values.get("gpus", True),
        least_gpus=values.get("least-gpus", 0),
        options=tuple(values.get("options") or ()),
        shared=values.get("shared", False),
        in_image=tuple(values.get("in-image") or ()),
    )


@cache
def schema() -> Schema:
    """Return the declaration of the file's format, a JSON schema."""
    text = (files("runbook_lib.slurm") / "site.schema.json").read_text(encoding="utf-8")
    loaded: Schema = json.loads(text)
    return loaded


def _image(text: str) -> str:
    """As Pyxis takes it: a path, what has its ``#`` already, or an address, which without it were Docker Hub's."""
    if not text or text.startswith("/") or "#" in text or re.search(r"\s", text):
        return text
    return WorkImage.parse(text).enroot_address


def lacking(site: Site, partitions: Collection[Partition], chosen: Sequence[Workload]) -> tuple[str, ...]:
    """Return what these tests need and no partition has, as sentences; Slurm would let them wait forever."""
    known = {it.name: it for it in partitions}
    default = [it for it in partitions if it.default]
    told: dict[str, None] = {}
    for test in chosen:
        name = site.partition(test.platform)
        given = [known[it] for it in name.split(",") if it in known] if name else default
        if not given and not name:
            told["The cluster has no default partition. Name one as partition."] = None
        lacks = [_lacks(site, it, test) for it in given]
        if all(lacks):  # of several partitions one suffices
            told |= dict.fromkeys(itertools.chain.from_iterable(lacks))
    return tuple(told)


def _lacks(site: Site, has: Partition, test: Workload) -> list[str]:
    """Return what a test needs and one partition does not have."""
    told, gpus = [], site.gpus_for(test)
    if test.nodes > has.nodes:
        told.append(f"The partition {has.name} has {has.nodes} nodes, and {test} needs {test.nodes}.")
    if site.gpus and gpus > has.gpus:
        hint = " Where Slurm knows no GPUs, set gpus: false in the site file." if not has.gpus else ""
        told.append(f"The nodes of {has.name} have {has.gpus} GPUs, and {test} needs {gpus}.{hint}")
    if has.seconds is not None and test.time_limit > has.seconds:
        told.append(f"{has.name} lets a job run for {has.seconds} s, and {test} needs {test.time_limit} s.")
    return told


def unmounted(site: Site, *texts: str) -> str:
    """Return the folders that these texts of a test name and its container will not have, as a sentence, or nothing.

    A mount inside of such a folder counts as the folder: whoever mounts parts knows which are read.
    """
    if not site.image:
        return ""
    have = [it.rstrip("/") for it in (*(inside for _, inside in site.mounts), *site.in_image)]
    named = dict.fromkeys(it for text in texts for it in _DATA.findall(text))
    lacks = [it for it in named if not any(f"{it}/".startswith(f"{has}/") or has.startswith(f"{it}/") for has in have)]
    if not lacks:
        return ""
    return (
        f"The test reads {' and '.join(lacks)}, and nothing is mounted there. Give the folder of its data as mounts, "
        f"such as /shared/data:{lacks[0]}; or name it as in-image in the site file if the image has it."
    )


def not_shared(path: str, mountinfo: str) -> str:
    """Return why nodes cannot see a path of this machine, as a sentence; empty where they may.

    ``mountinfo`` is the text of ``/proc/self/mountinfo``.  A disk of this machine may be exported to others: only
    somebody who knows can say so.
    """
    best, kind = "", ""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        words = before.split()
        if len(words) < 5 or not after:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda it: chr(int(it[1], 8)), words[4])
        if (path == point or path.startswith(f"{point.rstrip('/')}/")) and len(point) >= len(best):
            best, kind = point, after.split()[0]
    if kind not in _LOCAL:
        return ""
    return (
        f"{path} lies on {best} ({kind}), a file system of this machine, which other nodes do not see. Give a path on "
        "storage that all nodes share, or set shared: true in the site file if they do see it."
    )


def _mount(text: str) -> tuple[str, str]:
    outside, colon, inside = text.partition(":")
    if not colon:
        raise RunbookError(
            f"mounts={text!r} is no mount; expected outside:inside, such as /shared/data:/mnt/artifacts."
        )
    return outside, inside
