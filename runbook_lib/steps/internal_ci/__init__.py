"""Notebook internal-ci."""
