"""Notebook build-image."""
