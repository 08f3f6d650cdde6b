"""Notebook bisect-image."""
