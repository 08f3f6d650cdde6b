"""Slurm's commands, batch files, job states, and following."""
