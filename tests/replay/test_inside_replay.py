"""Work inside the image on the real repositories: every pyproject.toml of their history, judged by uv itself."""

import itertools
import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from runbook_lib.compute.project import LOCK, PYPROJECT, PythonProject
from runbook_lib.errors import CannotTell
from runbook_lib.world.git.checkout import Checkout

pytestmark = pytest.mark.replay
#: One in so many revisions is given to uv as well.
_SAMPLE = 12


@pytest.fixture(params=["megatron_lm", "megatron_bridge"])
def clone(request: pytest.FixtureRequest) -> Checkout:
    return Checkout.open(request.getfixturevalue(request.param))


def projects_of(checkout: Checkout) -> list[tuple[str, str, str | None]]:
    """Commit, pyproject.toml and uv.lock, of each commit that changed the first, the newest first."""
    commits = checkout.git("log", "--format=%H", "--diff-filter=AM", "HEAD", "--", PYPROJECT).split()
    found = []
    for commit in commits:
        texts = checkout.read([PYPROJECT, LOCK], commit)
        text = texts[PYPROJECT]
        assert text is not None
        found.append((commit, text, texts[LOCK]))
    return found


def uv(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    here = {"PATH": os.environ["PATH"], "UV_CACHE_DIR": str(folder / "cache"), "HOME": str(folder)}
    command = ["uv", "export", "--frozen", "--offline", "--quiet", "--no-emit-project", *words]
    return subprocess.run(command, cwd=folder, env=here, capture_output=True, text=True, check=False)


def test_installed_parts_are_defined_in_each_revision(clone: Checkout, tmp_path: Path) -> None:
    read = taken = 0
    for i, (commit, text, lock) in enumerate(projects_of(clone)):
        data = tomllib.loads(text)
        try:
            project = PythonProject.parse(text)
        except CannotTell:
            assert "project" not in data, commit
            continue
        options = project.options(())
        extras = set(data["project"].get("optional-dependencies", {}))
        groups = set(data.get("dependency-groups", {})) | ({"dev"} & set(project.groups))
        for option, name in itertools.pairwise(options):
            assert option != "--extra" or name in extras, commit
            assert option != "--group" or name in groups, commit
        read += 1
        if lock is not None and i % _SAMPLE == 0:
            (tmp_path / PYPROJECT).write_text(text)
            (tmp_path / LOCK).write_text(lock)
            done = uv(tmp_path, *options)
            assert done.returncode == 0, f"{commit}: {done.stderr}"
            taken += 1
            wrong = "group" if "dev" in project.extras else "extra"
            said = uv(tmp_path, f"--{wrong}", "dev").stderr
            assert f"{wrong.title()} `dev` is not defined" in said, commit
    assert read >= 100
    assert taken >= 5
