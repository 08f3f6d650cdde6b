"""Problems with the paths of a site: on this machine, on the nodes, and inside the container."""

import os
from collections.abc import Mapping
from pathlib import Path

from runbook_lib.compute.slurm.batch_files import INSIDE
from runbook_lib.compute.slurm.site import Site
from runbook_lib.recipes.workloads import Workload
from runbook_lib.system.subprocess_lines import output_of

#: The folders of CI's runners that recipes use.  The last two are for caches, which one node can create for itself.
_DATA, _SHARED_BY_NODES = "/mnt/artifacts", ("/lustre/fsw", "/workspace/data")
#: File systems local to one machine, by their names in the kernel.
_LOCAL = frozenset({"tmpfs", "ramfs", "overlay", "devtmpfs", "squashfs", "zfs", "ext2", "ext3", "ext4", "xfs", "btrfs"})
_DF_SECONDS = 20.0  # a server that is away would keep it waiting


def site_problems(site: Site) -> tuple[list[str], list[str]]:
    """Compare a site with this machine; return what prevents a submission, and warnings."""
    problems, warnings = list[str](), list[str]()
    paths = [path for path in (site.image, *(mount[0] for mount in site.mounts)) if path.startswith("/")]
    advice = "Correct the path, or set shared: true in the site file if it exists on the nodes."
    missing = [f"{path} does not exist on this machine. {advice}" for path in paths if not Path(path).exists()]
    (warnings if site.shared else problems).extend(missing)
    if not site.shared:
        problems += filter(None, map(not_shared, [site.results, *([] if site.image else [site.checkout])]))
    if not site.image and not (Path(site.checkout) / ".venv").is_dir():
        advice = "Run `uv sync` there once, or set image in the site file."
        problems.append(f"{site.checkout} has no .venv, so all nodes would build one at the same time. {advice}")
    return problems, warnings


def unmounted(site: Site, test: Workload, settings: str) -> str:
    """Return a sentence on what a test uses and its container lacks; empty if it has all.

    A mount inside a folder of CI counts as the folder: a user who mounts parts of it knows which are read.
    """
    if not site.image and INSIDE in test.script:
        return f"The test's script uses {INSIDE}, which only a container has. Set image in the site file."
    text = f"{test.script}\n{settings}"
    used = [folder for folder in (_DATA, *(_SHARED_BY_NODES if test.nodes > 1 else ())) if folder in text]
    present = [f"{path.rstrip('/')}/" for path in (*(mount[1] for mount in site.mounts), *site.in_image)]
    missing = [it for it in used if not any(f"{it}/".startswith(path) or path.startswith(f"{it}/") for path in present)]
    if not site.image or not missing:
        return ""
    return (
        f"The test uses {' and '.join(missing)}, and nothing is mounted there. Add its data folder to mounts, "
        f"such as /shared/data:{missing[0]}; or to in-image in the site file, if the image contains the folder."
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
