"""Notebook 08-after-merge."""
