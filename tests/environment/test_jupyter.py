"""The Jupyter server's settings: viewing or saving in JupyterLab never changes a record."""

import asyncio
import os
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from archives import PIN, record_folder, two_bumps
from tornado.web import HTTPError

from runbook_lib.record.store import verify

CONFIG = Path(__file__).resolve().parents[2] / "environment/jupyter/jupyter_server_config.py"


@pytest.fixture
def manager(tmp_path: Path) -> Any:
    """Return the server's manager of files, on a folder with an archive."""
    two_bumps(tmp_path / "root")
    config = SimpleNamespace(ServerApp=SimpleNamespace())
    runpy.run_path(str(CONFIG), init_globals={"get_config": lambda: config})
    return config.ServerApp.contents_manager_class(root_dir=str(tmp_path / "root"))


def open_in_lab(manager: Any, path: str) -> dict[str, Any]:
    """Read a file as JupyterLab does: with a first checkpoint, if the file can be written."""
    model: dict[str, Any] = asyncio.run(manager.get(path, type="file", format="text"))
    if model["writable"] and not asyncio.run(manager.list_checkpoints(path)):
        asyncio.run(manager.create_checkpoint(path))
    return model


@pytest.mark.parametrize("name", ["report.html", "executed.ipynb", "run.json"])
def test_opening_and_saving_evidence_changes_nothing(manager: Any, name: str) -> None:
    root = Path(manager.root_dir)
    archive = root / "audit"
    file = Path(os.path.normpath(record_folder(archive, PIN) / name))
    path = file.relative_to(root).as_posix()
    assert os.access(file, os.W_OK)  # as for root, whom a file's mode does not stop
    model = open_in_lab(manager, path)
    assert not model["writable"]
    for change in (
        lambda: manager.save(model, path),
        lambda: manager.delete_file(path),
        lambda: manager.rename_file(path, "elsewhere"),
        lambda: manager.save(
            {"type": "file", "format": "text", "content": "x"}, f"{file.parent.relative_to(root)}/new"
        ),
    ):
        with pytest.raises(HTTPError) as refusal:
            asyncio.run(change())
        assert refusal.value.status_code == 403
    assert (verify(archive)[0], [*archive.rglob(".ipynb_checkpoints")]) == ([], [])
    (root / "notes.txt").write_text("old")
    asyncio.run(manager.save({"type": "file", "format": "text", "content": "new"}, "notes.txt"))
    assert (root / "notes.txt").read_text() == "new"


@pytest.mark.parametrize(
    ("notebook", "runs"),
    [("shipped", True), ("a copy", True), ("changed by somebody", False), ("missing", False)],
)
def test_only_the_start_page_that_is_shipped_runs_when_it_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notebook: str, runs: bool
) -> None:
    root = CONFIG.parents[2]
    folder = root if notebook == "shipped" else tmp_path
    text = (root / "runbooks/00-start.ipynb").read_text()
    if notebook == "changed by somebody":
        text = text.replace("run.step(start)", "import os")
    if notebook not in ("shipped", "missing"):
        (tmp_path / "00-start.ipynb").write_text(text)
    monkeypatch.chdir(folder)
    config = SimpleNamespace(ServerApp=SimpleNamespace(), LabApp=SimpleNamespace())
    runpy.run_path(str(CONFIG.with_name("jupyter_lab_config.py")), init_globals={"get_config": lambda: config})
    assert hasattr(config.ServerApp, "tornado_settings") is runs
    (extensions,) = config.LabApp.extra_labextensions_path
    assert list(Path(extensions).glob("*/package.json"))
    if runs:
        page = config.ServerApp.tornado_settings["page_config_data"]["runbookStart"]
        assert config.LabApp.default_url.endswith(page)
