"""This machine: atomic files, locks, processes and provenance."""
