"""The lock: exact versions and hashes for everything that pyproject.toml names, and nothing else is installed."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / "environment"


def locked(name: str) -> Iterator[tuple[Requirement, int]]:
    """Yield each entry of a lock file, with the number of its hashes."""
    text = (ENVIRONMENT / name).read_text()
    for entry in re.split(r"\n(?=[a-z0-9])", re.sub(r"(?m)^ *#.*\n", "", text)):
        requirement, *hashes = re.split(r" \\\n +", entry.strip())
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", hash_) for hash_ in hashes)
        yield Requirement(requirement), len(hashes)


@pytest.mark.parametrize("name", ["requirements.txt", "uv.txt"])
def test_lock_files_have_exact_versions_and_hashes_but_no_host(name: str) -> None:
    for requirement, hashes in locked(name):
        assert [specifier.operator for specifier in requirement.specifier] == ["=="], requirement
        assert hashes > 0, requirement
        assert requirement.url is None
    assert "://" not in (ENVIRONMENT / name).read_text()


def test_the_lock_satisfies_pyproject() -> None:
    versions: dict[str, list[Version]] = {}
    for requirement, _ in locked("requirements.txt"):
        (specifier,) = requirement.specifier
        versions.setdefault(requirement.name, []).append(Version(specifier.version))
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = pyproject["project"]
    wanted = (
        project["dependencies"] + project["optional-dependencies"]["runbooks"] + pyproject["dependency-groups"]["dev"]
    )
    for requirement in map(Requirement, wanted):
        of_package = versions.get(re.sub(r"[._]", "-", requirement.name), [])
        assert of_package, f"{requirement} is not locked: run environment/lock"
        assert all(version in requirement.specifier for version in of_package), f"{requirement}, locked: {of_package}"


def test_the_environment_is_exactly_the_lock() -> None:
    expected = {}
    for name in ("requirements.txt", "uv.txt"):
        for requirement, _ in locked(name):
            if requirement.marker is None or requirement.marker.evaluate():
                expected[canonicalize_name(requirement.name)] = str(requirement.specifier).removeprefix("==")
    installed = {canonicalize_name(package.metadata["Name"]): package.version for package in metadata.distributions()}
    del installed["base-image-runbook"]
    assert installed == expected


def test_no_committed_file_names_a_package_index() -> None:
    # Written so that this file does not name them.
    hosts = r"py[p]i\.(org|io)|pythonh[o]sted\.|npmj[s]\.(org|com)|deb[.]debian[.]or[g]"
    options = r"(?m)^\s*(--(extra-)?index-url|--find-links|--trusted-host)\b|^\[\[tool\.uv\.index\]\]"
    command = ("git", "grep", "-l", "-I", "-i", "-P", f"{hosts}|{options}")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 1), done.stderr
