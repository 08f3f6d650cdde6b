"""The checkout of each search."""

from pathlib import Path

import pytest
from bisect_world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
