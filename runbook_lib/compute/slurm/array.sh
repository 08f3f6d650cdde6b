#!/bin/bash
@DIRECTIVES@
set -euo pipefail
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
# Elements of an array can share a node, so each has its own port unless the site fixes it.
MASTER_PORT=@PORT@
NNODES=$SLURM_NNODES
GPUS_PER_NODE=@GPUS@
WORLD_SIZE=$((NNODES * GPUS_PER_NODE))
export MASTER_ADDR MASTER_PORT NNODES GPUS_PER_NODE WORLD_SIZE
folder=@FOLDER@/$SLURM_ARRAY_TASK_ID
if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then
    # A requeued element starts again: the results of the attempt before are moved away and not judged.
    earlier=$folder.attempt-$SLURM_RESTART_COUNT
    mkdir -p "$earlier"
    for old in "$folder"/assets "$folder"/artifacts "$folder"/state.json "$folder"/node-*.log; do
        if [ -e "$old" ]; then mv "$old" "$earlier"; fi
    done
    # Slurm has written into this very log why that attempt ended.  It is open, so it is copied and emptied.
    cp "$folder/job.log" "$earlier"
    : >"$folder/job.log"
fi
rm -f "$folder/ended"
# For clusters without accounting: the job's id, and below how it ended.
echo "$SLURM_ARRAY_JOB_ID" >"$folder/started"
code=0
# `bash` reads the task's file on each node; each node's output goes into a file of its own.
# shellcheck disable=SC2016  # what apptainer needs is expanded on the node
srun --ntasks="$NNODES" --ntasks-per-node=1 --kill-on-bad-exit=1 --output="$folder/node-%n.out.log" \
    --error="$folder/node-%n.err.log" @SRUN@ "$folder/task.sh" || code=$?
if [[ $code != 0 && $(scontrol show job "$SLURM_JOB_ID" || :) == *" PreemptTime="[0-9]* ]]; then
    # The job is being preempted.  If it ended by itself now, Slurm would not requeue it.
    sleep 3600
fi
echo "$SLURM_JOB_ID $code" >"$folder/ended.tmp"
mv "$folder/ended.tmp" "$folder/ended"
exit "$code"
