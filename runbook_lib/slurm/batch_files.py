"""Batch files for Slurm from the workloads of recipes: an array for all tests that ask for the same.  Pure.

An array's file allocates, names the first node as the master and starts one task a node, in a container of Pyxis where
an image is given; what a task then does stands in a file of its own, so one test can be read and run again alone.
Scripts of recipes edit the files that they read, so in a container each node unpacks the commit for itself; it is the
commit that was planned, wherever the checkout has gone on to when the job begins.
Source: ``skills/mcore-run-on-slurm`` of Megatron-LM; options of Pyxis as ``srun --help`` tells them on such a cluster.
"""

import hashlib
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from runbook_lib.errors import Refused
from runbook_lib.recipes.device_connections import Connections
from runbook_lib.recipes.parallelism import VARIABLE
from runbook_lib.recipes.workloads import Workload

#: Calls of ``sbatch`` for a matrix; tests that differ in their time limit alone share an array rather than exceed it.
CALLS = 5
#: Elements of an array, below the 1001 that Slurm allows unless told otherwise (``MaxArraySize``).
LARGEST = 1000
#: Where the scripts of the recipes expect the checkout.
INSIDE = "/opt/megatron-lm"
#: The archive of the commit that is tested, in the folder for results; containers unpack it.
TREE = "tree.tar"
_WORD = re.compile(r"[\w.+@=/-]+")
_OPTION = re.compile(r"--(?P<name>[a-z][a-z-]{1,40})(=[\w.,:+@%/-]{1,200})?")
#: Options of ``sbatch`` that are chosen here.
_OURS = frozenset({
    "job-name", "nodes", "ntasks-per-node", "gpus-per-node", "time", "partition", "account", "array", "output", "error",
    "export", "wrap", "chdir", "parsable", "wait", "open-mode",
})  # fmt: skip


#: Options by which a person says how a node's processors are shared; else a test that takes all GPUs has all of them.
_SHARES = re.compile(r"--(?:exclusive|oversubscribe|cpus-per-(?:gpu|task)|mincpus|cores-per-socket)(?:=|$)")


@dataclass(frozen=True)
class Site:
    """A cluster, as its user knows it.  Paths are absolute and shared between the nodes.

    ``partitions`` are by platform, "" for all others; ``mounts`` pairs of a path outside and inside of the container.
    Without an ``image`` a task runs in the checkout itself, else on the archive TREE of a commit in ``results``.
    ``at_once`` limits the running elements of an array, 0: no limit.  ``gpus`` is False where the cluster allocates
    whole nodes and knows no GPUs.  ``least_gpus`` a node are given to tests whose recipe names fewer: CI's own
    runners give all that they have.  ``options`` are further options of ``sbatch``.  ``shared``: somebody vouches
    that all nodes see the paths.  ``node_gpus`` are the GPUs that a node has, by partition, "" for the default one.
    ``in_image`` are folders that the image brings itself.
    """

    checkout: str
    results: str
    image: str = ""
    partitions: Mapping[str, str] = field(default_factory=dict)
    account: str = ""
    mounts: tuple[tuple[str, str], ...] = ()
    at_once: int = 0
    gpus: bool = True
    least_gpus: int = 0
    options: tuple[str, ...] = ()
    shared: bool = False
    node_gpus: Mapping[str, int] = field(default_factory=dict)
    in_image: tuple[str, ...] = ()

    def partition(self, platform: str) -> str:
        """The partition for a platform, or several divided by commas, "" for the cluster's own choice."""
        return self.partitions.get("".join(platform.split()), self.partitions.get("", ""))

    def gpus_for(self, workload: Workload) -> int:
        """The GPUs a node that a test gets here."""
        return max(workload.gpus, self.least_gpus if workload.gpus else 0)

    def exclusive(self, partition: str, gpus: int) -> bool:
        """Whether a test with so many GPUs a node has its nodes alone, with all of their processors and memory.

        Slurm gives one processor a task unless asked, which all processes of a node would share.
        """
        if any(_SHARES.match(it) for it in self.options):
            return False
        return not self.gpus or all(0 < self.node_gpus.get(it, 0) <= gpus for it in partition.split(","))

    def problems(self, *, partitions: Collection[str] | None = None, accounts: Collection[str] | None = None) -> tuple[
        str, ...
    ]:  # fmt: skip
        """What cannot work, as sentences; partitions and accounts are compared where the cluster's are given."""
        told = [
            f"{name} is {path!r}; expected an absolute path of letters, digits and any of . _ + @ = / -."
            for name, path in (("The checkout", self.checkout), ("The folder for results", self.results))
            if not (path.startswith("/") and _WORD.fullmatch(path))
        ]
        told += [
            f"The mount {outside}:{inside} cannot be written for Pyxis: paths are absolute, without , : or control."
            for outside, inside in self.mounts
            if not all(re.fullmatch(r"/[^,:\x00-\x1f]*", path) for path in (outside, inside))
        ]
        if re.search(r"[\s\x00]", self.image):
            told.append(f"The image {self.image!r} has blanks in its name.")
        for option in self.options:
            found = _OPTION.fullmatch(option)
            # Slurm takes the beginning of an option's name for the whole.
            ours = sorted(it for it in _OURS if found and it.startswith(found["name"]))
            if found is None or ours:
                why = (
                    f"--{ours[0]} is chosen from the recipe and the other settings" if ours else "expected --name=value"
                )
                told.append(f"The option {option!r} cannot be given to sbatch: {why}.")
        named = sorted({name for it in self.partitions.values() for name in (it.split(",") if it else [])})
        given = [("partition", name, partitions) for name in named]
        for kind, name, known in [*given, ("account", self.account, accounts)]:
            if not _WORD.fullmatch(name) and (name or kind == "partition"):
                told.append(f"{name!r} cannot be the name of {'an' if kind == 'account' else 'a'} {kind}.")
            elif name and known is not None and name not in known:
                told.append(f"The cluster has no {kind} {name} for you. It has: {', '.join(sorted(known)) or 'none'}.")
        return tuple(told)


@dataclass(frozen=True)
class Task:
    """An element of an array: the file that each of its nodes runs, and the folder of its results.

    ``script`` is the recipe's own, with its values in it; ``text`` prepares the node for it.
    """

    index: int
    workload: Workload
    folder: str
    path: str
    text: str = field(repr=False)
    script: str = field(repr=False)

    @property
    def files(self) -> Mapping[str, str]:
        """Its files to be written, by path."""
        return {self.path: self.text, f"{self.folder}/script.sh": self.script}


@dataclass(frozen=True)
class Array:
    """One call of ``sbatch``.  ``name`` is the job's, and no other array's in any other folder for results."""

    name: str
    path: str
    text: str = field(repr=False)
    tasks: tuple[Task, ...]

    @property
    def files(self) -> Mapping[str, str]:
        """All files to be written, by path."""
        return {self.path: self.text} | {path: text for task in self.tasks for path, text in task.files.items()}

    @property
    def folder(self) -> str:
        """The folder of all of its tasks' results."""
        return self.path.rpartition("/")[0]


def launch(script: str, arguments: Sequence[str] = (), *, synced: bool = True) -> str:
    """The command that trains on all nodes of a task, for what no recipe's script starts; quoted for the shell.

    ``synced`` says that the environment is complete, so that no node changes it while others read it.
    """
    sync = ["--no-sync"] if synced else []
    words = ["uv", "run", *sync, "python", "-m", "torch.distributed.run"]
    places = [("nnodes", "NNODES"), ("nproc-per-node", "GPUS_PER_NODE"), ("node-rank", "SLURM_NODEID")]
    places += [("master-addr", "MASTER_ADDR"), ("master-port", "MASTER_PORT")]
    options = " ".join(f'--{option}="${name}"' for option, name in places)
    # Every rank's output by itself: the one that failed first is rarely rank 0.
    return f'{shlex.join(words)} {options} --redirects=3 --log-dir="$LOGS" {shlex.join([script, *arguments])}'


def arrays(
    chosen: Iterable[tuple[Workload, Connections]], site: Site, *, calls: int = CALLS, largest: int = LARGEST
) -> tuple[Array, ...]:
    """The arrays for these tests, each with its tasks.

    Raises Refused for a site with problems, a test without GPUs or script, one twice, and one that needs a container
    where the site has no image.
    """
    if told := site.problems():
        raise Refused(" ".join(told))
    groups = _grouped(list(chosen), site, calls)
    parts = [(key, group[at : at + largest]) for key, group in groups.items() for at in range(0, len(group), largest)]
    return tuple(_array(number, *part, site) for number, part in enumerate(parts))


#: What must be equal within an array: partition, nodes, GPUs a node, seconds.
_Key = tuple[str, int, int, int]


def _grouped(
    chosen: Sequence[tuple[Workload, Connections]], site: Site, calls: int
) -> dict[_Key, list[tuple[Workload, Connections]]]:
    seen: set[str] = set()
    groups: dict[_Key, list[tuple[Workload, Connections]]] = {}
    for workload, connections in chosen:
        _check(workload, site, seen)
        key = (site.partition(workload.platform), workload.nodes, site.gpus_for(workload), workload.time_limit)
        groups.setdefault(key, []).append((workload, connections))
    if len(groups) <= calls:
        return groups
    merged: dict[_Key, list[tuple[Workload, Connections]]] = {}
    longest = {key[:3]: max(it[3] for it in groups if it[:3] == key[:3]) for key in groups}
    for key, group in groups.items():
        merged.setdefault((*key[:3], longest[key[:3]]), []).extend(group)
    return merged


def _check(workload: Workload, site: Site, seen: set[str]) -> None:
    if not workload.gpus or not workload.nodes or not workload.script.strip():
        raise Refused(f"{workload} of {workload.recipe} asks for no GPU, no node or runs no script: it is no test.")
    if not site.image and INSIDE in workload.script:
        raise Refused(
            f"The script of {workload} works in {INSIDE}, which is in a container alone. Name the image that was built."
        )
    if workload.name in seen:
        raise Refused(f"{workload} is chosen twice. Choose its recipe's row once.")
    seen.add(workload.name)


def _array(number: int, key: _Key, group: Sequence[tuple[Workload, Connections]], site: Site) -> Array:
    partition, nodes, gpus, seconds = key
    digest = hashlib.sha256(repr([site.results, key, [it.name for it, _ in group]]).encode()).hexdigest()[:8]
    name = f"runbook-{number}-{nodes}x{gpus}-{digest}"
    folder = f"{site.results}/{name}"
    tasks = tuple(_task(index, *member, folder, site) for index, member in enumerate(group))
    limit = f"%{site.at_once}" if site.at_once else ""
    directives = {
        "job-name": name, "nodes": str(nodes), "ntasks-per-node": "1", "gpus-per-node": str(gpus) if site.gpus else "",
        "time": _time(seconds), "partition": partition, "account": site.account,
        "array": f"0-{len(group) - 1}{limit}", "output": f"{folder}/%a/job.log", "open-mode": "append",
    }  # fmt: skip
    lines = [f"#SBATCH --{option}={value}" for option, value in directives.items() if value]
    lines += ["#SBATCH --exclusive"] if site.exclusive(partition, gpus) else []
    lines += [f"#SBATCH {option}" for option in site.options]
    text = _FILE.format(
        directives="\n".join(lines), gpus=gpus, folder=shlex.quote(folder), srun=shlex.join(_container(site))
    )
    return Array(name, f"{folder}/array.sbatch", text, tasks)


_FILE = """\
#!/bin/bash
{directives}
set -euo pipefail
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
# Elements of an array can share a node: each has a port of its own.
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
NNODES=$SLURM_NNODES
GPUS_PER_NODE={gpus}
WORLD_SIZE=$((NNODES * GPUS_PER_NODE))
export MASTER_ADDR MASTER_PORT NNODES GPUS_PER_NODE WORLD_SIZE
folder={folder}/$SLURM_ARRAY_TASK_ID
if [ "${{SLURM_RESTART_COUNT:-0}}" -gt 0 ]; then
    # Put back into the queue it begins anew: what the attempt before left is not its own, and is not judged.
    earlier=$folder.attempt-$SLURM_RESTART_COUNT
    mkdir -p "$earlier"
    for old in "$folder"/assets "$folder"/artifacts "$folder"/state.json "$folder"/node-*.log; do
        if [ -e "$old" ]; then mv "$old" "$earlier"; fi
    done
    # This very log, in which Slurm has said why that attempt ended: it stays open, so it is copied and emptied.
    cp "$folder/job.log" "$earlier"
    : >"$folder/job.log"
fi
rm -f "$folder/ended"
# For clusters that keep no accounts: which job this is, and below how it ended.
echo "$SLURM_ARRAY_JOB_ID" >"$folder/started"
code=0
# `bash` reads the task's file on each node; what a node says stands in a file of its own.
srun --ntasks="$NNODES" --ntasks-per-node=1 --kill-on-bad-exit=1 --output="$folder/node-%n.out.log" \\
    --error="$folder/node-%n.err.log" {srun} "$folder/task.sh" || code=$?
if [[ $code != 0 && $(scontrol show job "$SLURM_JOB_ID" || :) == *" PreemptTime="[0-9]* ]]; then
    # Its processes were told to make room: whoever ends by himself now is not put back into the queue.
    sleep 3600
fi
echo "$SLURM_JOB_ID $code" >"$folder/ended.tmp"
mv "$folder/ended.tmp" "$folder/ended"
exit "$code"
"""


def _container(site: Site) -> list[str]:
    """Options of Pyxis for ``srun`` and the shell: never the person's home, which recipes' scripts delete from."""
    if not site.image:
        return ["bash"]
    mounts = [(site.results, site.results), *site.mounts]
    joined = ",".join(f"{outside}:{inside}" for outside, inside in mounts)
    return [
        f"--container-image={site.image}", f"--container-mounts={joined}", "--container-writable",
        "--no-container-mount-home", "bash",
    ]  # fmt: skip


def _task(index: int, workload: Workload, connections: Connections, folder: str, site: Site) -> Task:
    own = f"{folder}/{index}"
    value = connections.value
    variable = f"unset {VARIABLE}" if value is None else f"export {VARIABLE}={value}"
    command = workload.command(assets_dir=f"{own}/assets", artifacts_dir=f"{own}/artifacts", name=workload.name)
    text = _TASK.format(
        test=_comment(f"{workload}, from {workload.recipe}"), why=_comment(connections.reason), variable=variable,
        own=shlex.quote(own), enter=_UNPACK.format(tree=shlex.quote(f"{site.results}/{TREE}")) if site.image
        else f"cd {shlex.quote(site.checkout)}",
    )  # fmt: skip
    return Task(index, workload, own, f"{own}/task.sh", text, f"{command.rstrip()}\n")


_TASK = """\
#!/bin/bash
# {test}
set -euo pipefail
export NODE_RANK=$SLURM_NODEID
# Recipes name folders of their own by it, which they delete in the end; CI gives each run one.
export RUN_ID=runbook-$SLURM_JOB_ID
# {why}
{variable}
# The environment was synced once, before: nodes that sync at the same time would disturb each other.
export UV_NO_SYNC=1
own={own}
export LOGS=$own/assets/logs/1
# Scripts of recipes delete $HOME/.netrc, and nothing of a test belongs in a person's home.
HOME=$(mktemp -d)
export HOME
mkdir -p "$LOGS" "$own/artifacts"
{enter}

bash "$own/script.sh"
"""
_UNPACK = f"""\
if [ -d /mnt/hf_home ]; then
    # As in CI: models of Hugging Face come from there alone.
    export HF_HOME=/mnt/hf_home TRANSFORMERS_OFFLINE=1
fi
mkdir -p {INSIDE}
tar -C {INSIDE} --no-same-owner -xf {{tree}}
cd {INSIDE}"""


def _comment(text: str) -> str:
    return " ".join(text.split())


def _time(seconds: int) -> str:
    """As ``--time`` takes it, in whole minutes, at least one."""
    minutes = max(1, -(-seconds // 60))
    return f"{minutes // 60:02d}:{minutes % 60:02d}:00"
