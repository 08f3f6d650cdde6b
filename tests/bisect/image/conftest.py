"""The registry and the checkout of each search."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from bisect_world import World
from registry_server import RegistryServer


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    server = RegistryServer()
    monkeypatch.setenv("RUNBOOK_REGISTRY", server.url)
    yield
    server.close()


@pytest.fixture
def world(registry: None, tmp_path: Path) -> World:
    return World(tmp_path)
