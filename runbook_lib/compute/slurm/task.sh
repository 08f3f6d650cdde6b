#!/bin/bash
# @TEST@
set -euo pipefail
export NODE_RANK=$SLURM_NODEID
# Recipes name folders by it, which they delete at the end; CI gives each run its own.
export RUN_ID=runbook-$SLURM_JOB_ID
@CONNECTIONS@
# The environment was synced once before: nodes that sync at the same time would disturb each other.
export UV_NO_SYNC=1
own=@FOLDER@
export LOGS=$own/assets/logs/1
# Scripts of recipes delete $HOME/.netrc, and nothing of a test belongs in the user's home.
HOME=$(mktemp -d)
export HOME
mkdir -p "$LOGS" "$own/artifacts"
# Slurm sends USR1 before the time limit: then each Python process prints where its threads are, and goes on.
trap '' USR1
mkdir "$HOME/stacks"
cat >"$HOME/stacks/sitecustomize.py" <<'END'
import faulthandler
import signal

faulthandler.register(signal.SIGUSR1)
END
export PYTHONPATH=$HOME/stacks${PYTHONPATH:+:$PYTHONPATH}
# As in CI, models of Hugging Face come only from the folder that is mounted for them.
if [ -d /mnt/hf_home ]; then
    export HF_HOME=/mnt/hf_home TRANSFORMERS_OFFLINE=1
fi
mkdir -p @INSIDE@
tar -C @INSIDE@ --no-same-owner -xf @TREE@
cd @INSIDE@

bash "$own/script.sh"
