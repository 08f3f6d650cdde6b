"""The wheel, installed beside the locked packages: what a person has who did not clone the project."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def runbook(site: Path, home: Path, *arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run the installed command in an empty folder."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("RUNBOOK_", "XDG_"))}
    environ |= {"PYTHONPATH": str(site), "HOME": str(home), "RUNBOOK_PRACTICE_HOME": str(home / "practice"), **env}
    program = "import sys; from runbook_lib.cli.__main__ import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-P", "-c", program, *arguments], cwd=home, env=environ, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_it_has_every_notebook_document_and_file_of_the_library(site: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "runbook_lib", "runbooks", "docs", "environment/jupyter"], cwd=ROOT, check=True,
        capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    missing = []
    for name in listed:
        place = name if name.startswith("runbook_lib/") else f"runbook_lib/installed/{name}"
        if (ROOT / name).exists() and not (site / place).is_file():
            missing.append(name)
    assert missing == []


def test_records_never_go_into_the_package(site: Path, home: Path) -> None:
    done = runbook(site, home, "status")
    assert done.returncode == 0, done.stderr
    assert str(home / ".local/share/base-image-runbook/audit") in done.stdout
    assert "runbook run bump" in done.stdout
    done = runbook(site, home, "status", XDG_DATA_HOME=str(home / "data"))
    assert str(home / "data/base-image-runbook/audit") in done.stdout


def test_a_bump_runs_from_an_empty_folder(site: Path, home: Path) -> None:
    done = runbook(site, home, "run", "bump", "-p", "tag", "26.04-py3")
    assert done.returncode == 0, done.stderr
    records = list((home / ".local/share/base-image-runbook/audit").rglob("executed.ipynb"))
    assert any("-bump-" in record.parent.name for record in records)
    assert not list(site.rglob("audit"))


def test_jupyterlab_gets_a_copy_that_it_may_change(site: Path, home: Path) -> None:
    done = runbook(site, home, "lab", "work", "--version")
    assert done.returncode == 0, done.stderr
    start = home / "work/runbooks/00-start.ipynb"
    assert start.read_bytes() == (ROOT / "runbooks/00-start.ipynb").read_bytes()
    assert (home / "work/docs/tutorial.md").is_file()
    start.write_text("mine")
    (home / "work/jupyterlab.py").write_text("print('the module in the folder')")
    done = runbook(site, home, "lab", "work", "--version")
    assert "the module in the folder" not in done.stdout
    assert start.read_text() == "mine"
    assert "00-start.ipynb" in done.stderr


@pytest.mark.parametrize(
    "arguments", [("image", "list", "nvcr.io/nvidia/pytorch"), ("run", "bump"), ("lab",), ("why", "x")]
)
def test_without_the_extra_a_command_names_what_to_install(site: Path, home: Path, arguments: tuple[str, ...]) -> None:
    blocker = home / "blocked"
    blocker.mkdir()
    (blocker / "sitecustomize.py").write_text(
        "import sys\nsys.modules |= dict.fromkeys(('httpx', 'papermill', 'jupyterlab', 'ahocorasick_rs'))\n"
    )
    done = runbook(site, home, *arguments, PYTHONPATH=f"{blocker}{os.pathsep}{site}")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "pip install 'base-image-runbook[runbooks]'" in done.stderr


def test_the_same_commit_gives_the_same_bytes(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    built = []
    for place, umask in ((ROOT, 0o022), (clone, 0o077)):
        folder = tmp_path / f"{umask:o}"
        command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
        subprocess.run(command, cwd=place, check=True, capture_output=True, umask=umask)
        built.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert len(built[0]) == 2
    assert built[0] == built[1]
