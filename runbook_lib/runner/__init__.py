"""Headless execution of notebooks."""
