"""What is installed is what was locked: the installation by environment/run, attacked, and what stands beside the lock.

Everything is installed for real, offline, from a folder of small wheels made here.
"""

import base64
import hashlib
import importlib.metadata
import io
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / "environment"
UV = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv") or "uv"
#: What the library itself is built with.
BUILD = ("hatchling", "packaging", "pathspec", "pluggy", "tomlkit", "trove_classifiers")


def wheel(folder: Path, name: str, version: str, files: Mapping[str, str], needs: str = "") -> str:
    """Write a wheel of these files, and return its hash as a locked entry has it."""
    about = f"{name}-{version}.dist-info"
    requires = f"Requires-Dist: {needs}\n" if needs else ""
    content = {
        **files,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    return packed(folder / f"{name}-{version}-py3-none-any.whl", f"{about}/RECORD", content)


def packed(path: Path, record: str, content: Mapping[str, str]) -> str:
    lines = []
    for name, text in content.items():
        sha256 = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={sha256},{len(text.encode())}\n")
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**content, record: "".join(lines) + f"{record},,\n"}.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (stat.S_IFREG | 0o755) << 16
            archive.writestr(entry, text)
    return f"--hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


@dataclass(frozen=True)
class Place:
    """A checkout with its environment, and the folder that its packages come from; ``hashes`` by package."""

    checkout: Path
    folder: Path
    hashes: dict[str, str]

    @property
    def requirements(self) -> Path:
        return self.checkout / "environment/requirements.txt"

    @property
    def installed(self) -> set[str]:
        """The packages of the environment, with their versions."""
        (packages,) = (self.checkout / "environment/.venv/lib").glob("python*/site-packages")
        return {it.name.removesuffix(".dist-info") for it in packages.glob("*.dist-info")}

    def lock(self, *entries: str) -> None:
        """Lock these, and what the library itself is built with."""
        build = [f"{name}=={importlib.metadata.version(name)} {self.hashes[name]}" for name in BUILD]
        self.requirements.write_text("\n".join((*build, *entries)) + "\n")

    def run(self, cwd: Path | None = None, **env: str) -> "subprocess.CompletedProcess[str]":
        """A command in the environment, which is built or brought up to date for it."""
        offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.folder), "PIP_CONFIG_FILE": os.devnull}
        offline |= {"UV_OFFLINE": "1", "UV_FIND_LINKS": str(self.folder), "UV_NO_CACHE": "1"}
        command = (self.checkout / "environment/run", "echo", "started")
        path = f"{self.checkout.parent / 'python'}:/usr/bin:/bin"
        seen = {**os.environ, **offline, "PATH": path, **env}
        return subprocess.run(
            command, cwd=cwd, env=seen, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A checkout without an environment, and the packages that are to be had."""
    home = tmp_path_factory.mktemp("supply")
    place = Place(home / "a checkout", home / "packages", {})
    shutil.copytree(ENVIRONMENT, place.checkout / "environment", ignore=shutil.ignore_patterns(".*"))
    (place.checkout / "runbook_lib").mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "runbook_lib/__init__.py"):
        shutil.copy(ROOT / name, place.checkout / name)
    (home / "python").mkdir()
    (home / "python/python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (home / "python/python3").chmod(0o755)
    place.folder.mkdir()
    for name in BUILD:
        distribution = importlib.metadata.distribution(name)
        about = f"{name}-{distribution.version}.dist-info"
        content = {}
        for file in distribution.files or ():
            if file.name in ("METADATA", "WHEEL") or (file.suffix != ".pyc" and str(file).startswith(f"{name}/")):
                content[str(file)] = file.read_text()
        place.hashes[name] = packed(
            place.folder / f"{name}-{distribution.version}-py3-none-any.whl", f"{about}/RECORD", content
        )
    uv = {"uv-1.data/scripts/uv": f'#!/bin/sh\nexec "{UV}" "$@"\n'}
    place.hashes["uv"] = wheel(place.folder, "uv", "1", uv)
    (place.checkout / "environment/uv.txt").write_text(f"uv==1 {place.hashes['uv']}\n")
    place.hashes["snowdrop"] = wheel(place.folder, "snowdrop", "1.0", {"snowdrop.py": "X = 1\n"}, needs="thistle")
    place.hashes["thistle"] = wheel(place.folder, "thistle", "1.0", {"thistle.py": ""})
    return place


@pytest.fixture
def place(shipped: Place, tmp_path: Path) -> Place:
    """A copy."""
    shutil.copytree(shipped.checkout.parent, tmp_path / "supply")
    return Place(tmp_path / "supply/a checkout", tmp_path / "supply/packages", shipped.hashes)


def test_exactly_the_locked_packages_are_installed(place: Place, tmp_path: Path) -> None:
    """No setting diverts them."""
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "more.txt").write_text("thistle==1.0\n")
    env = {f"{tool}_{name}": str(elsewhere) for tool in ("PIP", "UV") for name in ("TARGET", "PREFIX", "ROOT")}
    env |= {"PIP_REQUIREMENT": str(tmp_path / "more.txt"), "UV_OVERRIDE": str(tmp_path / "more.txt")}
    env |= {"PIP_PYTHON": "/bin/false", "UV_PYTHON": "/bin/false"}
    # In a folder that people share, others may write beside the checkout.
    (place.checkout.parent / "uv.toml").write_text(f"[pip]\ntarget = '{elsewhere}'\n")
    place.lock(f"snowdrop==1.0 {place.hashes['snowdrop']}")
    done = place.run(**env)
    assert (done.returncode, done.stdout) == (0, "started\n"), done.stderr
    # What it asks for is not locked, although it is to be had.
    installed = {it.rpartition("-")[0] for it in place.installed}
    assert installed == {*BUILD, "pip", "uv", "base_image_runbook", "snowdrop"}
    assert not elsewhere.exists()


def another_wheel(place: Place) -> None:
    """Somebody else's under the name of the locked one."""
    wheel(place.folder, "snowdrop", "1.0", {"snowdrop.py": "X = 2\n"}, needs="thistle")


def a_source_distribution(place: Place) -> None:
    """Building it would run its code, which may fetch what nothing has locked."""
    (place.folder / "snowdrop-1.0-py3-none-any.whl").unlink()
    path = place.folder / "snowdrop-1.0.tar.gz"
    content = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["."]\n',
        "own.py": f"open({str(place.checkout / 'ran')!r}, 'w').close()\n",
        "PKG-INFO": "Metadata-Version: 2.1\nName: snowdrop\nVersion: 1.0\n",
    }
    with tarfile.open(path, "w:gz") as archive:
        for name, text in content.items():
            entry = tarfile.TarInfo(f"snowdrop-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    place.lock(f"snowdrop==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}")


def another_installer(place: Place) -> None:
    wheel(place.folder, "uv", "1", {"uv-1.data/scripts/uv": f"#!/bin/sh\ntouch '{place.checkout}/ran'\n"})


UNCHECKED = {"UV_NO_VERIFY_HASHES": "1", "UV_REQUIRE_HASHES": "0", "PIP_REQUIRE_HASHES": "0"}
#: What is locked, what somebody does then, and the variables that are set.
ATTACKS: dict[str, tuple[str, Callable[[Place], object], dict[str, str]]] = {
    "without a hash": ("snowdrop==1.0", lambda _: None, {}),
    "not pinned": ("snowdrop>=1.0 {hash}", lambda _: None, {}),
    "a source distribution": ("", a_source_distribution, {}),
    "the installer changed": ("snowdrop==1.0 {hash}", another_installer, {}),
    "changed, and the check switched off by variables": ("snowdrop==1.0 {hash}", another_wheel, UNCHECKED),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_else_is_installed(place: Place, attack: str) -> None:
    locked, act, env = ATTACKS[attack]
    place.lock(locked.format(hash=place.hashes["snowdrop"]))
    act(place)
    done = place.run(**env)
    assert (done.returncode, done.stdout) == (125, ""), done.stderr
    assert "could not be installed." in done.stderr
    assert "HTTPS_PROXY" in done.stderr
    assert "Traceback" not in done.stderr
    environment = place.checkout / "environment/.venv"
    assert not (environment / "installed").exists()
    assert not [it for it in place.installed if it.startswith(("snowdrop", "thistle"))]
    assert not (place.checkout / "ran").exists()


def test_the_base_of_the_image_is_pinned_by_digest() -> None:
    lines = (ENVIRONMENT / "Containerfile").read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.upper().startswith("FROM ")]
    given = dict(line.split()[1].split("=", 1) for line in lines if line.upper().startswith("ARG "))
    assert bases
    for base in bases:
        name = re.sub(r"\$\{(\w+)\}", lambda it: given[it[1]], base)
        assert re.fullmatch(r"[a-z0-9./-]+:[\w.-]+@sha256:[0-9a-f]{64}", name), name
    copied = [line for line in lines if line.upper().startswith(("COPY --FROM", "ADD "))]
    assert copied == [], "another image or an address brings what nothing has pinned"
