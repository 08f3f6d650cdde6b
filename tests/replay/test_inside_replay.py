"""Work inside the image on the real repositories: every pyproject.toml of their history, judged by uv itself."""

import itertools
import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from runbook_lib.compute.tasks import LOCK, PYPROJECT, PythonProject
from runbook_lib.errors import CannotTell
from runbook_lib.world.git.checkout import Checkout

pytestmark = pytest.mark.replay
#: One in so many revisions is given to uv as well.
_SAMPLE = 12


def uv(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    here = {"PATH": os.environ["PATH"], "UV_CACHE_DIR": str(folder / "cache"), "HOME": str(folder)}
    command = ["uv", "export", "--frozen", "--offline", "--quiet", "--no-emit-project", *words]
    return subprocess.run(command, cwd=folder, env=here, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("repository", ["megatron_lm", "megatron_bridge"])
def test_installed_parts_are_defined_in_each_revision(
    repository: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    checkout = Checkout.open(request.getfixturevalue(repository))
    read = taken = 0
    for i, commit in enumerate(checkout.git("log", "--format=%H", "--diff-filter=AM", "HEAD", "--", PYPROJECT).split()):
        texts = checkout.read([PYPROJECT, LOCK], commit)
        text, lock = texts[PYPROJECT] or "", texts[LOCK]
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
