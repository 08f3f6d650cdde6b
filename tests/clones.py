"""Git in tests: its commands, and repositories with given files."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from runbook_lib.world.git.checkout import Checkout


def git(place: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(place), *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def write(place: Path, texts: Mapping[str, str | None]) -> None:
    """Write these files; those without a text are removed."""
    for path, text in texts.items():
        file = place / path
        if text is None:
            file.unlink(missing_ok=True)
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text.encode("utf-8", "surrogateescape"))


def commit(place: Path, texts: Mapping[str, str | None]) -> Path:
    """Commit these files, in a new repository where there is none yet; return its place."""
    if not (place / ".git").exists():
        place.mkdir(parents=True, exist_ok=True)
        git(place, "init", "-q", "-b", "main")
    write(place, texts)
    git(place, "add", "-A")
    git(place, "commit", "-qm", "x", "--allow-empty")
    return place


def state(checkout: Checkout) -> tuple[str, ...]:
    """Everything that must stay as it was: files, index, branch and refs."""
    files = [f"{path.name}={path.read_bytes()!r}" for path in sorted(checkout.path.iterdir()) if path.is_file()]
    return (*files, checkout.git("status", "--porcelain=v2", "--branch"), checkout.git("for-each-ref"))
