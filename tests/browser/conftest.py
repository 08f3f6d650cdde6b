"""A real JupyterLab in a real browser, for each test a practice environment of its own."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import ROOT, Lab, Tab
from playwright.sync_api import Browser, sync_playwright
from waiting import wait_until


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever stands here needs the browser."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.component("browser"))


@pytest.fixture(scope="session")
def server() -> Iterator[Lab]:
    """JupyterLab as `environment/run jupyter lab` starts it, on copies, so that saving changes nothing here."""
    with tempfile.TemporaryDirectory(prefix="lab-", ignore_cleanup_errors=True) as short:  # it is seen in pictures
        yield from _served(Path(short))


def _served(folder: Path) -> Iterator[Lab]:
    shutil.copytree(ROOT / "runbooks", folder / "site/runbooks", ignore=shutil.ignore_patterns("out", ".*"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    lab = Lab(f"http://127.0.0.1:{port}", token, folder / "site", folder / "practice", folder / "audit")
    own = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    own |= {"XDG_STATE_HOME": str(folder / "state"), "IPYTHONDIR": str(folder / "ipython")}
    own |= {"RUNBOOK_PRACTICE_HOME": str(lab.home), "RUNBOOK_AUDIT": str(lab.audit)}
    command = [
        str(ROOT / "environment/run"), "jupyter", "lab", "--allow-root", "--no-browser", "--ip=127.0.0.1",
        f"--port={port}", f"--IdentityProvider.token={token}", "--LabApp.expose_app_in_browser=True",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=lab.folder, env=os.environ | own, stdout=log, stderr=log, start_new_session=True
        )
        try:
            wait_until(lambda: _up(lab, process))
            yield lab
            lab.clean()
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(120)


def _up(lab: Lab, process: "subprocess.Popen[bytes]") -> bool:
    assert process.poll() is None, (lab.folder.parent / "log").read_text()
    try:
        lab.ask("status")
    except (urllib.error.URLError, ConnectionError):
        return False
    return True


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, which asks nobody for anything."""
    arguments = [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--no-first-run",
        "--no-proxy-server",
    ]
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        yield started
        started.close()


@pytest.fixture
def lab(server: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """The server, with nothing left of an earlier test, such as the commits of its archive that this machine saw."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    server.clean()
    for folder in (server.home, server.audit):
        shutil.rmtree(folder, ignore_errors=True)
    yield server
    server.clean()


@pytest.fixture
def tab(lab: Lab, browser: Browser) -> Iterator[Tab]:
    """A new window, that asks nobody but the server for anything."""
    context = browser.new_context(viewport={"width": 1280, "height": 2000})
    opened = Tab(lab, context.new_page())
    yield opened
    context.close()
    assert opened.away == []
