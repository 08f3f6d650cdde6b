#!/bin/bash
@DIRECTIVES@
#SBATCH --no-requeue
# Runs the batch files of a search, one after another on the same nodes.  A claim stays for ever, so none runs twice.
cd @RUNS@ || exit 1
# The limit of each step.
export SLURM_TIMELIMIT=@MINUTES@
folder=@FOLDER@
echo "$SLURM_ARRAY_JOB_ID" >"$folder/0/started"
idle=0 before=0
while [ ! -e "$folder/stop" ] && [ "$idle" -lt @IDLE@ ] && [ $((SECONDS + @MINUTES@ * 60)) -le @SECONDS@ ]; do
    for batch in */batch; do
        run=${batch%/batch}
        { [ -e "$batch" ] && mkdir "$run/claim" 2>/dev/null; } || continue
        code=0
        bash "$batch" || code=$?
        echo "$code $((SECONDS - before)) $SLURM_JOB_NODELIST" >"$run/ended.tmp"
        mv "$run/ended.tmp" "$run/ended"
        idle=0 before=$SECONDS
        continue 2
    done
    idle=$((idle + 1))
    sleep 1
done
echo "$SLURM_JOB_ID 0" >"$folder/0/ended.tmp"
mv "$folder/0/ended.tmp" "$folder/0/ended"
