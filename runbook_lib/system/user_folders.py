"""The user's folders: the cache, which only saves time, and the data."""

from collections.abc import Mapping
from pathlib import Path


def cache_folder(env: Mapping[str, str], name: str) -> Path | None:
    """Return a folder of RUNBOOK_CACHE, else below XDG_CACHE_HOME or HOME; None for ``off``."""
    folder = env.get("RUNBOOK_CACHE", "").strip()
    if folder.lower() == "off":
        return None
    if folder:
        return Path(folder, name)
    home = env.get("HOME", "")
    parent = env.get("XDG_CACHE_HOME") or (home and str(Path(home, ".cache")))
    if not parent or not Path(parent).is_absolute():
        return None
    return Path(parent, "base-image-runbook", name)


def data_folder(env: Mapping[str, str]) -> Path:
    """Return the folder below XDG_DATA_HOME, or below the user's home."""
    data = Path(env.get("XDG_DATA_HOME", ""))
    if not data.is_absolute():  # the specification requires ignoring it
        data = Path.home() / ".local/share"
    return data / "base-image-runbook"
