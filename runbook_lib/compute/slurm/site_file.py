"""A cluster's description in a small YAML file.

``site.schema.json`` declares the format, and ``docs/build-and-verify.md`` has an example.
"""

import itertools
import os
import re
from collections.abc import Collection, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

from runbook_lib.compute.slurm.site import Session, Site
from runbook_lib.compute.slurm.states import Partition
from runbook_lib.compute.work.allocation import Allocation
from runbook_lib.compute.work.image import WorkImage
from runbook_lib.errors import RunbookError
from runbook_lib.recipes.workloads import Workload
from runbook_lib.system.files import read_named
from runbook_lib.text import user_file

#: The JSON schema that declares the format, beside this module.
SCHEMA = "site.schema.json"

#: Absolute paths in scripts and settings: the first two folders, or also a single one as the value of a name.
_PATH = re.compile(
    r"(?:(?P<name>[\w-]{1,80})[\"']?[=:] {0,9}[\"']?|(?P<command>rm -rf|mkdir -p) [\"']?)?(?<![\w./}-])"
    r"(?P<folder>/(?P<top>[A-Za-z][\w.-]{0,100})(?:/[\w.-]{1,100})?)"
)
#: Folders of every image, in which recipes expect only files from the image or the test itself.
_SYSTEM = frozenset({
    "bin", "boot", "dev", "etc", "home", "lib", "lib64", "opt", "proc", "root", "run", "sbin", "srv", "sys", "tmp",
    "usr", "var",
})  # fmt: skip
#: Names of folders that a test writes to; missing ones are created.
_WRITTEN = re.compile(r"CACHE|OUTPUT|SAVE|TENSORBOARD|LOG", re.IGNORECASE)
#: File systems local to one machine, by their names in ``/proc/self/mountinfo``.
_LOCAL = frozenset({"tmpfs", "ramfs", "overlay", "devtmpfs", "squashfs", "zfs", "ext2", "ext3", "ext4", "xfs", "btrfs"})


def read(named: str, checkout: Path, env: Mapping[str, str] = os.environ) -> Site:
    """Return the site in a file, else in the one that ``RUNBOOK_SITE`` names; without either an empty one.

    Raises RunbookError for a file that cannot be read.
    """
    named = named or env.get("RUNBOOK_SITE", "")
    if not named:
        return parse("", "(none)", str(checkout))
    try:
        text = read_named(Path(named).expanduser()).decode("utf-8", "replace")
    except (OSError, ValueError) as error:  # ValueError: an impossible file name
        raise RunbookError(
            f"The site file {named!r} cannot be read: {error}. Correct site, or RUNBOOK_SITE."
        ) from error
    return parse(text, named, str(checkout))


def parse(text: str, origin: str, checkout: str) -> Site:
    """Return the site that a file's text describes, which may be empty.

    Raises RunbookError, which names file, line and key.
    """
    schema = user_file.load_schema("runbook_lib.compute.slurm", SCHEMA)
    values = user_file.read(text, schema, "site file", origin).values
    images = {platform: _image(name) for platform, name in _by_platform(values.get("image")).items()}
    partitions, options = _by_platform(values.get("partition")), list(values.get("options") or ())
    gpu_type, least_gpus = "", values.get("least-gpus", 0)
    for option in options.copy():
        typed = re.fullmatch(r"--gpus-per-node=([\w.-]{1,60}):([1-9][0-9]{0,3})", option)
        if typed:  # Slurm needs the type, and the number is at least the recipe's
            options.remove(option)
            gpu_type, least_gpus = typed[1], max(least_gpus, int(typed[2]))
    return Site(
        checkout, _folder(values, "results"), image=images.pop("", ""), images=images,
        partitions=partitions, account=values.get("account") or "",
        mounts=tuple(tuple(mount.split(":")) for mount in values.get("mounts") or ()), at_once=values.get("at-once", 0),
        gpus=values.get("gpus", True), gpu_type=gpu_type, least_gpus=least_gpus,
        options=tuple(options), shared=values.get("shared", False), in_image=tuple(values.get("in-image") or ()),
        runtime=values.get("container") or "", master_port=values.get("master-port", 0),
        platform=values.get("platform", Site.platform), early=values.get("early", False),
        session=_session(values, partitions), engine=values.get("engine", ""),
        search_image=values.get("search-image", ""), components=dict(values.get("components") or {}),
    )  # fmt: skip


def _session(values: Mapping[str, Any], partitions: Mapping[str, str]) -> Session:
    platform = values.get("platform", Site.platform)
    allocation = Allocation(
        values.get("nodes", Allocation.nodes), values.get("gpus-per-node", Allocation.gpus),
        values.get("account") or "", partitions.get(platform, partitions.get("", "")), values.get("time", ""),
    )  # fmt: skip
    variables = tuple((values.get("env") or {}).items())
    for name, value in variables:
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or not value.isprintable():
            raise RunbookError(
                f"env in the site file has {name!r}, which is no name of a variable or has no plain value."
            )
    return Session(allocation, _folder(values, "cache"), variables, values.get("region", ""))


def _folder(values: Mapping[str, Any], key: str) -> str:
    return os.path.expanduser((values.get(key) or "").rstrip("/"))


def _by_platform(value: str | Mapping[str, str] | None) -> dict[str, str]:
    """Return a setting by platform; a single value is for all platforms."""
    return {"": value} if isinstance(value, str) else dict(value or {})


def _image(text: str) -> str:
    """Return an image in Pyxis's notation: a path, or a reference with ``#``, without which Docker Hub is used."""
    if not text or text.startswith("/") or "#" in text or re.search(r"\s", text):
        return text
    return WorkImage.parse(text).enroot_address


def unmet_requirements(site: Site, partitions: Collection[Partition], test: Workload) -> tuple[str, ...]:
    """Return the resources of a test that the cluster's partitions lack, as sentences; it would wait forever.

    A test that may run in several partitions needs one with sufficient resources.
    """
    names = site.partition(test.platform).split(",")
    if names == [""]:
        names = [partition.name for partition in partitions if partition.default]
        if not names:
            return ("The cluster has no default partition. Name one as partition.",)
    unmet = [_unmet(site, partition, test) for partition in partitions if partition.name in names]
    return tuple(itertools.chain.from_iterable(unmet)) if all(unmet) else ()


def _unmet(site: Site, partition: Partition, test: Workload) -> list[str]:
    problems = []
    gpus = site.gpus_for(test)
    if test.nodes > partition.nodes:
        problems.append(f"The partition {partition.name} has {partition.nodes} nodes, and {test} needs {test.nodes}.")
    if site.gpus and gpus > partition.gpus:
        hint = "" if partition.gpus else " If Slurm knows no GPUs, set gpus: false in the site file."
        problems.append(f"The nodes of {partition.name} have {partition.gpus} GPUs, and {test} needs {gpus}.{hint}")
    if partition.seconds is not None and test.time_limit > partition.seconds:
        limit = f"a time limit of {partition.seconds} s"
        problems.append(f"{partition.name} has {limit}, and {test} needs {test.time_limit} s.")
    return problems


def unmounted(site: Site, test: Workload, settings: str) -> str:
    """Return a sentence on the folders that a test uses and its container lacks; empty if it has all.

    A mount inside such a folder counts as the folder: a user who mounts parts of it knows which are read.  A folder
    that the test only writes is created in the container, which suffices on one node; several nodes must share it.
    """
    if not site.image_for(test.platform):
        return ""
    mounted = map(itemgetter(1), site.mounts)
    present = [path.rstrip("/") for path in (*mounted, site.results, *site.in_image) if path]
    missing: dict[str, None] = {}
    for match in _PATH.finditer(f"{test.script}\n{settings}"):
        folder, name = match["folder"], match["name"] or ""
        if match["top"] in _SYSTEM or not (name or "/" in folder[1:]):
            continue
        is_written = match["command"] or _WRITTEN.search(name)
        is_present = any(f"{folder}/".startswith(f"{path}/") or path.startswith(f"{folder}/") for path in present)
        if not is_present and not (is_written and test.nodes == 1):
            missing[folder] = None
    if not missing:
        return ""
    folders = list(missing)
    return (
        f"The test uses {' and '.join(folders)}, and nothing is mounted there. Add its data folder to mounts, "
        f"such as /shared/data:{folders[0]}; or to in-image in the site file, if the image contains the folder."
    )


def not_shared(path: str, mountinfo: str) -> str:
    """Return why other nodes cannot see a path on this machine, as a sentence; empty if they may.

    ``mountinfo`` is the text of ``/proc/self/mountinfo``.  A disk of this machine may be exported to others, which only
    the user knows.
    """
    mount_point, file_system = "", ""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        words = before.split()
        if len(words) < 5 or not after:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), words[4])
        contains = path == point or path.startswith(f"{point.rstrip('/')}/")
        if contains and len(point) >= len(mount_point):
            mount_point, file_system = point, after.split()[0]
    if file_system not in _LOCAL:
        return ""
    return (
        f"{path} is on {mount_point} ({file_system}), a file system of this machine, which other nodes do not see. "
        "Name a path on storage that all nodes share, or set shared: true in the site file if they do see it."
    )
