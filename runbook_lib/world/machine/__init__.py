"""This machine: files, locks, processes and provenance."""
