"""A small repository with recipes whose tests run on any machine: real processes, one a rank, that end as tests do."""

import sys
from pathlib import Path

from clones import commit, write

from runbook_lib.text.recipes.file_names import FOLDER

_LAUNCH = (
    'uv run --no-sync python -m torch.distributed.run --nnodes="$NNODES" --nproc-per-node="$GPUS_PER_NODE" '
    '--node-rank="$SLURM_NODEID" --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" --redirects=3 '
    '--log-dir="$LOGS"'
)
#: How a test ends, by its name.
CASES = ("good", "drift", "oom", "missing", "nccl", "hang", "silent")
#: Starts the processes of a node as torch.distributed.run does, with a log for each.
_UV = f"""\
#!{sys.executable}
import os, subprocess, sys
options = dict(it[2:].split("=", 1) for it in sys.argv if it.startswith("--") and "=" in it)
script = sys.argv[next(i for i, it in enumerate(sys.argv) if it.endswith(".py")):]
assert sys.argv[1:6] == ["run", "--no-sync", "python", "-m", "torch.distributed.run"], sys.argv
count, node = int(options["nproc-per-node"]), int(options["node-rank"])
ranks = []
for local in range(count):
    folder = os.path.join(options["log-dir"], f"run_{{node}}", "attempt_0", str(local))
    os.makedirs(folder)
    env = {{**os.environ, "RANK": str(node * count + local), "LOCAL_RANK": str(local)}}
    out, err = (open(f"{{folder}}/std{{it}}.log", "w") for it in ("out", "err"))
    ranks.append(subprocess.Popen([{sys.executable!r}, "-u", *script], stdout=out, stderr=err, env=env))
sys.exit(max(it.wait() for it in ranks))
"""
_TRAIN = """\
import json, os, sys, time, traceback

case, out = sys.argv[1:]
rank = int(os.environ["RANK"])


class OutOfMemoryError(RuntimeError):
    pass


OutOfMemoryError.__module__ = "torch"


def told(kind, error, trace):
    for line in "".join(traceback.format_exception(kind, error, trace)).splitlines():
        print(f"[rank{rank}]: {line}", file=sys.stderr)


sys.excepthook = told


def watchdog():
    # What a rank says that waits for one which has died.
    time.sleep(0.4)
    print(f"[rank{rank}]:[E1121 12:00:00.000 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective "
          "operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE) ran for 600000 milliseconds", file=sys.stderr)
    sys.exit(1)


def forward():
    if case == "oom" and rank == 3:
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 1 has a total capacity of 79.11 "
                               "GiB of which 1.12 GiB is free. this process has 77.98 GiB memory in use.")
    if case == "nccl" and rank == 2:
        raise ValueError("the data of rank 2 are not what they should be")
    if case in ("oom", "nccl"):
        watchdog()


if case == "missing":
    import transformer_engine_that_is_not_there
if rank == 0:
    print("[2026-11-21 12:00:00] iteration        1/       4 | lm loss: 1.050000E+01 |")
forward()
if case == "hang":
    print(" [2026-11-21 12:00:01] iteration        2/       4 | lm loss: 1.040000E+01 |")
    time.sleep(600)
if rank == 0 and case != "silent":
    loss = 10.5 if case == "good" else 10.51
    values = {"lm loss": {"start_step": 1, "end_step": 2, "step_interval": 1, "values": {"1": loss, "2": 10.4}}}
    with open(out, "w") as file:
        json.dump(values, file)
"""
_GOLDEN = '{"lm loss": {"start_step": 1, "end_step": 2, "step_interval": 1, "values": {"1": 10.5, "2": 10.4}}}\n'
_CONFIG = """\
ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
TEST_TYPE: regular
MODEL_ARGS:
  --tensor-model-parallel-size: 2
  --num-attention-heads: 16
  --micro-batch-size: 4
  --seq-length: 1024
"""


def create(folder: Path) -> Path:
    """Make the repository, with one commit on main."""
    golden = "{assets_dir}/golden_values_{environment}_{platforms}.json"
    command = f"{_LAUNCH} train.py {{test_case}} {golden}"
    row = "- test_case: [{}]\n  products:\n  - {{environment: [dev], scope: [mr-github]}}\n"
    rows = "".join(row.format(case) for case in (*CASES, "wide"))
    compare = 'echo "AssertionError: The following metrics failed: lm loss" >&2; exit 1'
    texts = {
        "bin/uv": _UV, "train.py": _TRAIN,
        "tests/test_utils/recipes/h100/gpt.yaml": f"""\
type: basic
spec:
  model: gpt
  nodes: 2
  gpus: 2
  platforms: dgx_h100
  time_limit: 60
  n_repeat:
  script: |-
    set -e
    PATH=$PWD/bin:$PATH
    {command}
    if [[ {{test_case}} == drift && $NODE_RANK == 0 ]]; then {compare}; fi
products:
{rows}""",
    }  # fmt: skip
    for case in CASES:
        texts[f"{FOLDER}/gpt/{case}/golden_values_dev_dgx_h100.json"] = _GOLDEN
        texts[f"{FOLDER}/gpt/{case}/model_config.yaml"] = _CONFIG
    texts[f"{FOLDER}/gpt/wide/model_config.yaml"] = _CONFIG.replace("size: 2", "size: 8")
    write(folder, texts)
    (folder / "bin/uv").chmod(0o755)
    return commit(folder, {})
