"""Notebook 03-open-pr."""
