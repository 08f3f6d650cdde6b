"""Problems with a site on its cluster: paths, containers, partitions and sizes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runbook_lib.compute.slurm import site_file
from runbook_lib.compute.slurm.batch_files import INSIDE
from runbook_lib.compute.slurm.client import Slurm
from runbook_lib.compute.slurm.site import Site
from runbook_lib.compute.slurm.states import Partition
from runbook_lib.errors import RunbookError, Unreachable
from runbook_lib.recipes.workloads import Workload


@dataclass(frozen=True)
class ClusterReport:
    """The site completed with GPUs and runtime, problems that prevent every submission, and partitions, if known."""

    site: Site
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    partitions: tuple[Partition, ...] | None = None


def inspect_cluster(slurm: Slurm, site: Site) -> ClusterReport:
    """Compare a site with this machine and with Slurm's description of the cluster."""
    problems, warnings, missing = list[str](), list[str](), _missing_paths(site)
    if site.shared:
        warnings += missing
    else:
        problems += [*missing, *_unshared_paths(site)]
    if not site.image_names and not (Path(site.checkout) / ".venv").is_dir():
        advice = "Run `uv sync` there once, or set image in the site file."
        problems.append(f"{site.checkout} has no .venv, so all nodes would build one at the same time. {advice}")
    partitions = None
    try:
        partitions = slurm.partitions()
        gpus = {partition.name: partition.gpus for partition in partitions}
        problems += site.problems(partitions=gpus)
        default = [partition.gpus for partition in partitions if partition.default]
        site = replace(site, node_gpus={**gpus, "": sum(default)})
        lacks_pyxis = site.image_names and site.runtime != "apptainer" and not slurm.runs_containers()
        if lacks_pyxis and site.runtime == "" and slurm.has_program("apptainer"):
            site = replace(site, runtime="apptainer")
        elif lacks_pyxis:
            problems.append(
                f"srun here has no option --container-image, so {site.image_names[0]} cannot be run: Pyxis is not "
                "installed. Ask the cluster's administrators to install it, or set container: apptainer in the site "
                "file if its nodes have apptainer."
            )
    except Unreachable as error:
        warnings.append(f"{error} The partition and sizes were not checked.")
    except RunbookError as error:
        problems.append(str(error))
    return ClusterReport(site, tuple(problems), tuple(warnings), partitions)


def _missing_paths(site: Site) -> list[str]:
    paths = [image for image in site.image_names if image.startswith("/")]
    paths += [mount[0] for mount in site.mounts]
    advice = "Correct the path, or set shared: true in the site file if it exists on the nodes."
    return [f"{path} does not exist on this machine. {advice}" for path in paths if not Path(path).exists()]


def _unshared_paths(site: Site) -> list[str]:
    try:
        mounts = Path("/proc/self/mountinfo").read_text(errors="replace")
    except OSError:
        return []
    paths = [site.results]
    if not site.image_names:
        paths.append(site.checkout)
    return list(filter(None, [site_file.not_shared(path, mounts) for path in paths]))


def find_obstacle(test: Workload, site: Site, partitions: Sequence[Partition] | None, settings: str) -> str:
    """Return the reasons why a test cannot run on the cluster, as sentences; empty if it can.

    ``partitions`` is None if they are unknown, ``settings`` is the text of the test's settings.
    """
    if not site.image_for(test.platform) and INSIDE in test.script:
        return f"The test's script uses {INSIDE}, which only a container has. Set image in the site file."
    problems: list[str] = []
    if partitions is not None:
        problems += site_file.unmet_requirements(site, partitions, test)
    problems.append(site_file.unmounted(site, test, settings))
    return " ".join(filter(None, problems))
