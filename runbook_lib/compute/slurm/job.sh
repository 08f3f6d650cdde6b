#!/bin/bash
@DIRECTIVES@
set -euo pipefail
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
# Jobs can share a node, so each has its own port.
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
NNODES=$SLURM_NNODES
GPUS_PER_NODE=@GPUS@
WORLD_SIZE=$((NNODES * GPUS_PER_NODE))
export MASTER_ADDR MASTER_PORT NNODES GPUS_PER_NODE WORLD_SIZE
folder=@FOLDER@
# For clusters without accounting: the job's id, and below how it ended.
echo "$SLURM_JOB_ID" >"$folder/started"
code=0
# `bash` reads the task's file on each node; each node's output goes into a file of its own.
srun --ntasks="$NNODES" --ntasks-per-node=1 --kill-on-bad-exit=1 --output="$folder/node-%n.out.log" \
    --error="$folder/node-%n.err.log" @SRUN@ "$folder/task.sh" || code=$?
if [[ $code != 0 && $(scontrol show job "$SLURM_JOB_ID" || :) == *" PreemptTime="[0-9]* ]]; then
    # The job is being preempted: Slurm ends it, and says so in its log.
    sleep 3600
fi
echo "$code" >"$folder/ended.tmp"
mv "$folder/ended.tmp" "$folder/ended"
exit "$code"
