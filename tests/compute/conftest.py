"""What tests of the work inside an image share."""

import os
import shutil
import sys
from pathlib import Path

import pytest


@pytest.fixture
def offline_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment as inside of an image: its own uv and Python, and here no network."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/uv").symlink_to(shutil.which("uv") or Path(sys.executable).with_name("uv"))
    for name, value in {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "UV_CACHE_DIR": str(tmp_path / "cache"), "UV_OFFLINE": "1",
        "UV_PYTHON": sys.executable, "UV_PYTHON_DOWNLOADS": "never", "UV_LINK_MODE": "copy",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
