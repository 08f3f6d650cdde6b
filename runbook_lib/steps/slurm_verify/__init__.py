"""Notebook slurm-verify."""
