"""The facts about person, machine, process and this installation that a record contains."""

import getpass
import os
import platform
import socket
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from runbook_lib.world.machine.subprocess_lines import output_of

_PACKAGE = Path(__file__).resolve().parents[2]
IS_INSTALLED = not (_PACKAGE.parent / "pyproject.toml").is_file()
#: The folder with the notebooks and documents: a clone of this project, or the copy in a wheel.
ROOT = _PACKAGE / "installed" if IS_INSTALLED else _PACKAGE.parent

#: Two readings of a process's start time may differ by this many seconds, because clocks are adjusted.
_START_TOLERANCE = 2.0
#: The variable in which each CI service provides the person who started a run, and the run's URL by its variables.
_CI = {
    "GITHUB_ACTIONS": ("GITHUB_ACTOR", "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/actions/runs/{GITHUB_RUN_ID}"),
    "GITLAB_CI": ("GITLAB_USER_LOGIN", "{CI_JOB_URL}"),
    "JENKINS_URL": ("BUILD_USER_ID", "{BUILD_URL}"),
    "CI": ("", ""),
}


def who(env: Mapping[str, str]) -> dict[str, Any]:
    """Return the person as the operating system, git and a CI service know them, and the host."""
    return {
        "user": user(),
        "host": socket.gethostname(),
        "git": _git_identity(Path.cwd()),
        "ci": _ci(env),
    }


def user() -> str:
    """Return the person as the operating system knows them."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may run under a user ID without a name
        return str(os.getuid())


def _ci(env: Mapping[str, str]) -> dict[str, str] | None:
    for flag, (actor, url) in _CI.items():
        if env.get(flag):
            return {"service": flag, "actor": env.get(actor, ""), "url": url.format_map(defaultdict(str, env))}
    return None


@cache
def library() -> dict[str, Any]:
    """Return the version of this installation, with commit and dirty flag if it is a git checkout."""
    try:
        version = metadata.version("base-image-runbook")
    except metadata.PackageNotFoundError:
        version = "unknown"
    commit, dirty = None, None
    if (ROOT / ".git").exists() and (commit := _git(ROOT, "rev-parse", "--verify", "HEAD") or None):
        dirty = bool(_git(ROOT, "status", "--porcelain", "--untracked-files=no"))
    return {"version": version, "commit": commit, "dirty": dirty, "python": platform.python_version()}


def process(pid: int | None = None) -> dict[str, Any]:
    """Describe a process of this machine, by default this one, so that ``is_alive`` recognizes it later."""
    import psutil  # type: ignore[import-untyped]

    found = psutil.Process(pid)
    return {"pid": found.pid, "started": found.create_time(), "host": socket.gethostname()}


def is_same(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return True if two descriptions refer to the same process: the system reuses process IDs."""
    if (first["host"], first["pid"]) != (second["host"], second["pid"]):
        return False
    return bool(abs(first["started"] - second["started"]) < _START_TOLERANCE)


def is_here(process: Mapping[str, Any]) -> bool:
    """Return True if it is a process of this machine."""
    return bool(process["host"] == socket.gethostname())


def is_alive(record: Mapping[str, Any]) -> bool:
    """Return True if exactly this process is running; True for a process on another host."""
    import psutil

    if not is_here(record):
        return True
    try:
        is_zombie = psutil.Process(record["pid"]).status() == psutil.STATUS_ZOMBIE
        return not is_zombie and is_same(record, process(record["pid"]))
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


@cache
def _git_identity(folder: Path) -> str | None:
    ident = _git(folder, "var", "GIT_COMMITTER_IDENT")
    return ident.rpartition(">")[0] + ">" if ident else None


def _git(folder: Path, *arguments: str) -> str:
    """Return the output of a git command; empty if it failed."""
    command = ["git", "-C", str(folder), "--no-optional-locks", *arguments]
    return output_of(command, limit=20).strip()
