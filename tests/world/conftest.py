"""A repository with a clone of it."""

from pathlib import Path

import pytest
from clones import commit, git

from runbook_lib.world.git.checkout import Checkout


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    source = commit(tmp_path / "source", {"pin": "old\r\n", "odd\xa0name": "\udcff\udcfe no utf-8"})
    git(source, "branch", "core_r1")
    git(source, "clone", "-q", "--bare", ".", str(tmp_path / "remote.git"))
    return tmp_path / "remote.git"


@pytest.fixture
def checkout(tmp_path: Path, remote: Path) -> Checkout:
    git(remote, "clone", "-q", ".", str(tmp_path / "clone"))
    return Checkout.open(tmp_path / "clone")
