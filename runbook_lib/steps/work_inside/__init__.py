"""Notebook work-inside."""
