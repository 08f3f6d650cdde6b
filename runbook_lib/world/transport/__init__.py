"""Bounded HTTP, byte ranges and remote zip files."""
