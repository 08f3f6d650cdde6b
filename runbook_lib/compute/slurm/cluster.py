"""Problems with a site on its cluster: paths, containers, partitions and sizes."""

import itertools
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

from runbook_lib.compute.slurm.batch_files import INSIDE
from runbook_lib.compute.slurm.client import Partition, Slurm
from runbook_lib.compute.slurm.site import Site
from runbook_lib.compute.tasks import TABLE
from runbook_lib.errors import RunbookError, Unreachable
from runbook_lib.recipes.workloads import Workload
from runbook_lib.system.subprocess_lines import output_of

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
#: File systems local to one machine, by their names in the kernel.
_LOCAL = frozenset({"tmpfs", "ramfs", "overlay", "devtmpfs", "squashfs", "zfs", "ext2", "ext3", "ext4", "xfs", "btrfs"})
_DF_SECONDS = 20.0  # a server that is away would keep it waiting


def inspect_cluster(
    slurm: Slurm, site: Site, problems: list[str], warnings: list[str]
) -> tuple[Site, tuple[Partition, ...] | None]:
    """Compare a site with this machine and with Slurm's description of the cluster; add problems and warnings.

    Return the site completed with GPUs, and the partitions, if known.
    """
    (warnings if site.shared else problems).extend(_missing_paths(site))
    if not site.shared:
        problems += _unshared_paths(site)
    if not site.image_names and not (Path(site.checkout) / ".venv").is_dir():
        advice = "Run `uv sync` there once, or set image in the site file."
        problems.append(f"{site.checkout} has no .venv, so all nodes would build one at the same time. {advice}")
    partitions = None
    try:
        partitions = slurm.partitions()
        gpus = {partition.name: partition.gpus for partition in partitions}
        names = {name for value in site.partitions.values() for name in value.split(",")}
        listed = ", ".join(sorted(gpus)) or "none"
        for name in sorted(names - {"", *gpus}):
            problems.append(f"The cluster has no partition {name} that you may use. Available: {listed}.")
        default = [partition.gpus for partition in partitions if partition.default]
        site = replace(site, node_gpus={**gpus, "": sum(default)})
        if site.image_names and not slurm.runs_containers():
            problems.append(f"{site.image_names[0]} cannot be run. {TABLE['missing']['pyxis']}")
    except Unreachable as error:
        warnings.append(f"{error} The partition and sizes were not checked.")
    except RunbookError as error:
        problems.append(str(error))
    return site, partitions


def _missing_paths(site: Site) -> list[str]:
    paths = [image for image in site.image_names if image.startswith("/")]
    paths += [mount[0] for mount in site.mounts]
    advice = "Correct the path, or set shared: true in the site file if it exists on the nodes."
    return [f"{path} does not exist on this machine. {advice}" for path in paths if not Path(path).exists()]


def _unshared_paths(site: Site) -> list[str]:
    paths = [site.results, *([] if site.image_names else [site.checkout])]
    return list(filter(None, map(not_shared, paths)))


def find_obstacle(test: Workload, site: Site, partitions: Sequence[Partition] | None, settings: str) -> str:
    """Return the reasons why a test cannot run on the cluster, as sentences; empty if it can.

    ``partitions`` is None if they are unknown, ``settings`` is the text of the test's settings.
    """
    if not site.image_for(test.platform) and INSIDE in test.script:
        return f"The test's script uses {INSIDE}, which only a container has. Set image in the site file."
    problems: list[str] = []
    if partitions is not None:
        problems += unmet_requirements(site, partitions, test)
    problems.append(unmounted(site, test, settings))
    return " ".join(filter(None, problems))


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


def not_shared(path: str, env: Mapping[str, str] = os.environ) -> str:
    """Return why other nodes cannot see a path on this machine, as a sentence; empty if they may.

    A disk of this machine may be exported to others, which only the user knows.
    """
    existing = next(folder for folder in (Path(path), *Path(path).parents) if folder.exists())
    lines = output_of(["df", "--output=fstype,target", "--", str(existing)], env, _DF_SECONDS).splitlines()
    file_system, _, mount_point = lines[-1].partition(" ") if lines else ("", "", "")
    if file_system not in _LOCAL:
        return ""
    return (
        f"{path} is on {mount_point.strip()} ({file_system}), a file system of this machine, which other nodes do not "
        "see. Name a path on storage that all nodes share, or set shared: true in the site file if they do see it."
    )
