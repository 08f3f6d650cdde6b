"""What is locked, for the commands beside this file: the entries of uv.txt and requirements.txt.

Runs in the locked environment, as ``packaging`` reads the entries.
"""

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
    """A package in one version.  ``hashes`` are the SHA-256 of its files, ``needed_by`` names of packages.

    ``here`` is whether this Python on this system installs it.
    """

    name: str
    version: str
    here: bool
    hashes: tuple[str, ...]
    needed_by: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def read(*files: Path) -> tuple[Locked, ...]:
    """The entries of these files, else of both.  Raises ValueError for one that is not exact, or has no hash."""
    return tuple(_entry(text) for file in files or FILES for text in re.split(r"\n(?=[a-z0-9])", file.read_text())[1:])


def installed() -> dict[str, metadata.Distribution]:
    """The packages of this environment by their names as the lock spells them; not the project itself."""
    found: dict[str, metadata.Distribution] = {
        canonicalize_name(it.metadata["Name"]): it for it in metadata.distributions()
    }
    found.pop(canonicalize_name(PROJECT), None)
    return found


def _entry(text: str) -> Locked:
    requirement = Requirement(text.partition(" \\\n")[0])
    versions = [it.version for it in requirement.specifier if it.operator == "==" and "*" not in it.version]
    hashes = tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})\b", text))
    if requirement.url or len(versions) != 1 or len(requirement.specifier) != 1 or not hashes:
        raise ValueError(f"{requirement} is no exact version with a hash. Run environment/lock.")
    comments = re.sub(r"(?m)^ *# *(via)?", "", "\n".join(re.findall(r"(?m)^ *#.*$", text)))
    needed_by = {name.partition(" ")[0] for name in map(str.strip, comments.splitlines()) if name}
    here = requirement.marker is None or requirement.marker.evaluate()
    return Locked(canonicalize_name(requirement.name), versions[0], here, hashes, tuple(sorted(needed_by)))
