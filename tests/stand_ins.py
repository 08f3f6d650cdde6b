"""Programs that stand in for others."""

from pathlib import Path


def stand_in(folder: Path, name: str, script: str) -> None:
    """Write a program of the shell."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
