"""Notebook 05-golden-values."""
