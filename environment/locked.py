"""The locked packages, read from uv.txt and requirements.txt with ``packaging``, for the commands in this folder."""

import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ENVIRONMENT = Path(__file__).resolve().parent
FILES = (ENVIRONMENT / "uv.txt", ENVIRONMENT / "requirements.txt")
PROJECT = "base-image-runbook"


@dataclass(frozen=True)
class Locked:
    """A package in one version, with the SHA-256 hashes of its files and the names of the packages that need it.

    ``here``: this Python on this system installs it.
    """

    name: str
    version: str
    here: bool
    hashes: tuple[str, ...]
    needed_by: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def read(*files: Path) -> tuple[Locked, ...]:
    """Return the entries of the files (default: both).  Raises ValueError for an inexact version or a missing hash."""
    return tuple(_entry(text) for file in files or FILES for text in re.split(r"\n(?=[a-z0-9])", file.read_text())[1:])


def installed() -> dict[str, metadata.Distribution]:
    """Return this environment's packages by canonical name, without the project itself."""
    packages: dict[str, metadata.Distribution] = {}
    for package in metadata.distributions():
        packages[canonicalize_name(package.metadata["Name"])] = package
    packages.pop(PROJECT, None)
    return packages


def _entry(text: str) -> Locked:
    requirement = Requirement(text.partition(" \\\n")[0])
    exact = [part for part in requirement.specifier if part.operator == "==" and "*" not in part.version]
    hashes = tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})\b", text))
    if requirement.url or len(exact) != 1 or len(requirement.specifier) != 1 or not hashes:
        raise ValueError(f"{requirement} is not an exact version with a hash. Run environment/lock.")
    comments = re.sub(r"(?m)^ *# *(via)?", "", "\n".join(re.findall(r"(?m)^ *#.*$", text)))
    needed_by = {name.partition(" ")[0] for name in map(str.strip, comments.splitlines()) if name}
    here = requirement.marker is None or requirement.marker.evaluate()
    return Locked(canonicalize_name(requirement.name), exact[0].version, here, hashes, tuple(sorted(needed_by)))
