"""A user's command inside the image, possibly with one worker per GPU through ``torch.distributed.run``.  Pure.

Source: Megatron-LM's ``skills/mcore-run-on-slurm``: one launcher per node, one worker group across all nodes, and never
plain ``torchrun``, which may use a Python outside the environment.
"""

import shlex

from runbook_lib.compute.work.target import WorkTarget
from runbook_lib.compute.work.tasks import WorkStep, make_step
from runbook_lib.errors import RunbookError

_LAUNCHER = "torch.distributed.run"
#: srun sets the nodes of a step for each task, such as ``node[01-03,7],gpu2``; the first one is the master.  $1 is the
#: number of the launcher's words, which follow; the rest is the program.
_ON_ALL_NODES = (
    "set -e; first=${SLURM_STEP_NODELIST%%,*}; case $first in *[[]*) range=${first#*[}; end=; "
    "case $range in *]*) end=${range#*]};; esac; first=${first%%[[]*}${range%%[]-]*}$end;; esac; "
    'exec "${@:2:$1}" --nnodes="$SLURM_NNODES" --node-rank="$SLURM_NODEID" --master-addr="$first" '
    '--master-port="$((29500 + SLURM_JOB_ID % 1000))" "${@:$1+2}"'
)


def plan_command(text: str, target: WorkTarget) -> WorkStep:
    """Return the step that runs a command, split into words like in a shell.

    ``torch.distributed.run SCRIPT …`` starts a worker on each GPU of each requested node.  Raises RunbookError for an
    empty command, an unclosed quotation mark, plain torchrun, and several nodes outside Slurm.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise RunbookError(f"arguments={text!r} cannot be read: {error}.") from error
    nodes, gpus = target.allocation.nodes, target.allocation.gpus
    if not words:
        raise RunbookError(f'The task run needs a command, such as -r arguments "{_LAUNCHER} pretrain_gpt.py --help".')
    if words[0].rpartition("/")[2] == "torchrun":
        raise RunbookError(f"torchrun may start a Python outside the environment. Use {_LAUNCHER} instead.")
    if nodes > 1 and target.name != "slurm":
        raise RunbookError(f"{nodes} nodes need Slurm: choose where=slurm, or one node.")
    launch, container = "", target.container
    if words[0] == _LAUNCHER:
        if not gpus:
            raise RunbookError(f"{_LAUNCHER} starts one worker per GPU: set gpus-per-node in the site file.")
        python = () if container.image.uv_refusal() else ("uv", "run", "--no-sync")
        launcher = (*python, "python", "-m", _LAUNCHER, f"--nproc-per-node={gpus}")
        launch = f"The environment's {_LAUNCHER} starts {gpus} workers on each of {nodes} nodes."
        words = (*launcher, *words[1:])
        if nodes > 1:
            words = ("bash", "-c", _ON_ALL_NODES, "run", str(len(launcher)), *words)
    return make_step("run", words=words, checkout=container.checkout, inside=container.inside, launch=launch)
