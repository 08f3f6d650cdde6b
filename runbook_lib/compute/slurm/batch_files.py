"""The batch file of a recipe's test for Slurm, and what runs on each of its nodes.  Pure.

The job makes its first node the master and starts one task per node, in a container of Pyxis.  Scripts of recipes edit
the files that they read, so each node unpacks the planned commit for itself, and the checkout may change before.
Source: ``skills/mcore-run-on-slurm`` of Megatron-LM; options of Pyxis as printed by ``srun --help`` on such a cluster.
"""

import hashlib
import re
import shlex
from importlib import resources
from pathlib import Path

from runbook_lib.compute.slurm.selection import SelectedTest
from runbook_lib.compute.slurm.site import Site
from runbook_lib.compute.workloads import VARIABLE

#: The folder in which the scripts of the recipes expect the checkout.
INSIDE = "/opt/megatron-lm"
#: The batch file's name.
BATCH = "job.sbatch"
#: Options by which a user decides how a node's processors are shared.
_SHARING = re.compile(r"--(?:exclusive|oversubscribe|cpus-per-(?:gpu|task)|mincpus|cores-per-socket)(?:=|$)")


def job_name(folder: Path) -> str:
    """Return the name of the job whose results are in a folder, unique among all folders."""
    return f"runbook-{folder.parent.name[:100]}-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"


def job_files(entry: SelectedTest, site: Site, folder: Path, tree: Path) -> dict[Path, str]:
    """Return the files of a test's job, by path, the batch file first.

    ``folder`` is for its results, ``tree`` the archive of the tested commit.  Raises
    CannotTell for a field of the recipe's script without a value.
    """
    test, session = entry.test, site.session
    directives = {
        "job-name": job_name(folder), "nodes": str(test.nodes), "ntasks-per-node": "1",
        "gpus-per-node": str(test.gpus) if site.gpus else "", "time": _time(test.time_limit),
        "partition": session.partition, "account": session.account, "output": f"{folder}/job.log",
        "signal": "USR1@60",  # each Python process prints its stacks before the time limit (task.sh)
    }  # fmt: skip
    options = [f"--{option}={value}" for option, value in directives.items() if value]
    if not any(_SHARING.match(option) for option in site.options):
        options.append("--exclusive")  # else Slurm gives the processes of a node one processor together
    options.append("--no-requeue")  # a test that Slurm ended is submitted again by name
    lines = "\n".join(f"#SBATCH {option}" for option in (*options, *site.options))
    srun = shlex.join([*_container(site, tree), "bash"])
    batch = _fill("job.sh", DIRECTIVES=lines, GPUS=str(test.gpus), FOLDER=shlex.quote(str(folder)), SRUN=srun)
    variable = f"unset {VARIABLE}" if entry.connections is None else f"export {VARIABLE}={entry.connections}"
    task = _fill(
        "task.sh", TEST=" ".join(f"{test}, from {test.recipe}".split()),
        CONNECTIONS=variable, FOLDER=shlex.quote(str(folder)), TREE=shlex.quote(str(tree)), INSIDE=INSIDE,
    )  # fmt: skip
    script = test.command(assets_dir=f"{folder}/assets", artifacts_dir=f"{folder}/artifacts", name=test.name)
    return {folder / BATCH: batch, folder / "task.sh": task, folder / "script.sh": f"{script.rstrip()}\n"}


def _container(site: Site, tree: Path) -> list[str]:
    """Return the options of Pyxis.  Recipes' scripts delete files of the home, so it is not mounted."""
    mounts = ",".join(":".join(mount) for mount in ((str(tree.parent), str(tree.parent)), *site.mounts))
    return [
        f"--container-image={site.image}", f"--container-mounts={mounts}", "--container-writable",
        "--no-container-mount-home",
    ]  # fmt: skip


def _fill(name: str, **values: str) -> str:
    """Return a shell template of this package with its placeholders ``@NAME@`` replaced."""
    template = resources.files("runbook_lib.compute.slurm").joinpath(name).read_text("utf-8")
    return re.sub("@([A-Z]+)@", lambda match: values[match[1]], template)


def _time(seconds: int) -> str:
    """Return a duration in the format of ``--time``, rounded up to full minutes, at least one."""
    minutes = max(1, -(-seconds // 60))
    return f"{minutes // 60:02d}:{minutes % 60:02d}:00"
