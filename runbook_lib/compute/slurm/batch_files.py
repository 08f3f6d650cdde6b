"""Batch files for Slurm from the workloads of recipes: one array for all tests that need the same resources.  Pure.

An array's file allocates, makes the first node the master and starts one task per node, in a container of Pyxis if
there is an image.  Each task's commands are in a separate file, so that a test can be read and run alone.
Scripts of recipes edit the files that they read, so in a container each node unpacks the planned commit for itself,
even if the checkout has changed before the job starts.
Source: ``skills/mcore-run-on-slurm`` of Megatron-LM; options of Pyxis as printed by ``srun --help`` on such a cluster.
"""

import hashlib
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources

from runbook_lib.compute.slurm.site import Site
from runbook_lib.recipes.parallelism import VARIABLE, Connections
from runbook_lib.recipes.workloads import Workload

#: Calls of ``sbatch`` for a matrix.  With more groups, tests that differ only in their time limit share an array.
CALLS = 5
#: Elements of an array, below the 1001 that Slurm allows by default (``MaxArraySize``).
LARGEST = 1000
#: The folder in which the scripts of the recipes expect the checkout.
INSIDE = "/opt/megatron-lm"
#: The archive of the tested commit, in the folder for results; containers unpack it.
TREE = "tree.tar"
#: As in CI, models of Hugging Face come only from the folder that is mounted for them.
_UNPACK = f"""\
if [ -d /mnt/hf_home ]; then
    export HF_HOME=/mnt/hf_home TRANSFORMERS_OFFLINE=1
fi
mkdir -p {INSIDE}
tar -C {INSIDE} --no-same-owner -xf {{tree}}
cd {INSIDE}"""
#: Seconds before the time limit, at which each Python process prints its stacks (``task.sh``).
_SIGNAL = "USR1@60"


@dataclass(frozen=True)
class ArrayTask:
    """An element of an array: the file that each of its nodes runs, and the folder of its results.

    ``script`` is the recipe's own, with its values filled in; ``text`` prepares the node for it.
    """

    index: int
    workload: Workload
    folder: str
    path: str
    text: str = field(repr=False)
    script: str = field(repr=False)

    @property
    def files(self) -> Mapping[str, str]:
        """The files to write, by path."""
        return {self.path: self.text, f"{self.folder}/script.sh": self.script}


@dataclass(frozen=True)
class JobArray:
    """One call of ``sbatch``.  ``name`` is the job's name, unique among the arrays of all folders for results."""

    name: str
    path: str
    text: str = field(repr=False)
    tasks: tuple[ArrayTask, ...]

    @property
    def files(self) -> Mapping[str, str]:
        """The files to write, by path."""
        files = {self.path: self.text}
        for task in self.tasks:
            files |= task.files
        return files

    @property
    def folder(self) -> str:
        """The folder of all results of its tasks."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True)
class _Resources:
    """The resources of an array: an image on nodes with GPUs each, of a partition, for a time in seconds."""

    partition: str
    image: str
    nodes: int
    gpus: int
    seconds: int


_Tests = list[tuple[Workload, Connections]]


def arrays(
    tests: Iterable[tuple[Workload, Connections]], site: Site, *, largest: int = LARGEST
) -> tuple[JobArray, ...]:
    """Return the arrays for these tests, each with its tasks."""
    job_arrays: list[JobArray] = []
    for resource, group in _groups(tests, site).items():
        for start in range(0, len(group), largest):
            job_arrays.append(_array(len(job_arrays), resource, group[start : start + largest], site))
    return tuple(job_arrays)


def _groups(tests: Iterable[tuple[Workload, Connections]], site: Site) -> dict[_Resources, _Tests]:
    groups: dict[_Resources, _Tests] = {}
    for workload, connections in tests:
        partition, image = site.partition(workload.platform), site.image_for(workload.platform)
        needed = _Resources(partition, image, workload.nodes, site.gpus_for(workload), workload.time_limit)
        groups.setdefault(needed, []).append((workload, connections))
    if len(groups) <= CALLS:
        return groups
    merged: dict[_Resources, _Tests] = {}
    for needed, group in groups.items():
        merged.setdefault(replace(needed, seconds=0), []).extend(group)
    longest = {}
    for needed, group in merged.items():
        longest[replace(needed, seconds=max(workload.time_limit for workload, _ in group))] = group
    return longest


def _array(number: int, needed: _Resources, group: _Tests, site: Site) -> JobArray:
    names = [workload.name for workload, _ in group]
    digest = hashlib.sha256(repr([site.results, needed, names]).encode()).hexdigest()[:8]
    name = f"runbook-{number}-{needed.nodes}x{needed.gpus}-{digest}"
    folder = f"{site.results}/{name}"
    limit = f"%{site.at_once}" if site.at_once else ""
    gpus = f"{site.gpu_type}:{needed.gpus}".removeprefix(":") if site.gpus else ""
    directives = {
        "job-name": name, "nodes": str(needed.nodes), "ntasks-per-node": "1", "gpus-per-node": gpus,
        "time": _time(needed.seconds), "partition": needed.partition, "account": site.account,
        "array": f"0-{len(group) - 1}{limit}", "output": f"{folder}/%a/job.log",
        "signal": _SIGNAL,
    }  # fmt: skip
    options = [f"--{option}={value}" for option, value in directives.items() if value]
    if site.exclusive(needed.partition, needed.gpus):
        options.append("--exclusive")
    options.append("--no-requeue")  # a test that Slurm ended is submitted again by name
    listed = "\n".join(f"#SBATCH {option}" for option in (*options, *site.options))
    port = str(site.master_port or "$((20000 + SLURM_JOB_ID % 10000))")
    srun = shlex.join(_task_command(site, needed.image))
    text = _fill("array.sh", DIRECTIVES=listed, GPUS=str(needed.gpus), PORT=port, FOLDER=shlex.quote(folder), SRUN=srun)
    tasks = (_task(index, workload, connections, folder, site) for index, (workload, connections) in enumerate(group))
    return JobArray(name, f"{folder}/array.sbatch", text, tuple(tasks))


def _task_command(site: Site, image: str) -> list[str]:
    """Return the options and the command of ``srun``, to which the path of the task's file is added.

    Recipes' scripts delete files of the home, so it is not mounted.
    """
    if not image:
        return ["bash"]
    mounts = ",".join(":".join(mount) for mount in ((site.results, site.results), *site.mounts))
    return [
        f"--container-image={image}", f"--container-mounts={mounts}", "--container-writable",
        "--no-container-mount-home", "bash",
    ]  # fmt: skip


def _task(index: int, workload: Workload, connections: Connections, array_folder: str, site: Site) -> ArrayTask:
    folder = f"{array_folder}/{index}"
    command = workload.command(assets_dir=f"{folder}/assets", artifacts_dir=f"{folder}/artifacts", name=workload.name)
    enter = f"cd {shlex.quote(site.checkout)}"
    if site.image_for(workload.platform):
        enter = _UNPACK.format(tree=shlex.quote(f"{site.results}/{TREE}"))
    variable = f"unset {VARIABLE}"
    if connections.value is not None:
        variable = f"export {VARIABLE}={connections.value}"
    test, reason = " ".join(f"{workload}, from {workload.recipe}".split()), " ".join(connections.reason.split())
    text = _fill("task.sh", TEST=test, REASON=reason, CONNECTIONS=variable, FOLDER=shlex.quote(folder), ENTER=enter)
    return ArrayTask(index, workload, folder, f"{folder}/task.sh", text, f"{command.rstrip()}\n")


def _fill(name: str, **values: str) -> str:
    """Return a shell template of this package with its placeholders ``@NAME@`` replaced."""
    template = resources.files("runbook_lib.compute.slurm").joinpath(name).read_text("utf-8")
    return re.sub("@([A-Z]+)@", lambda match: values[match[1]], template)


def _time(seconds: int) -> str:
    """Return a duration in the format of ``--time``, rounded up to full minutes, at least one."""
    minutes = max(1, -(-seconds // 60))
    return f"{minutes // 60:02d}:{minutes % 60:02d}:00"
