"""The form in Voila, by the command of the documentation."""

import os
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import ROOT, TAG, until
from playwright.sync_api import Browser, expect

pytestmark = pytest.mark.slow


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The start page in Voila, with a practice environment and an archive of its own."""
    (command,) = re.findall(r"`environment/run (voila [^`]+)`", (ROOT / "docs/troubleshooting.md").read_text())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    (tmp_path / "cwd").mkdir()
    (tmp_path / "cwd/runbooks").symlink_to(ROOT / "runbooks")
    (tmp_path / "cwd/voila.py").write_text(f"open({str(tmp_path / 'was run')!r}, 'w')")
    own = {"RUNBOOK_PRACTICE_HOME": str(tmp_path / "practice"), "RUNBOOK_AUDIT": str(tmp_path / "audit")}
    own |= {f"JUPYTER_{name}_DIR": str(tmp_path / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    options = ["--no-browser", f"--port={url.rpartition(':')[2]}", "--Voila.ip=127.0.0.1"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(ROOT / "environment/run"), *command.split(), *options],
            cwd=tmp_path / "cwd", env=os.environ | own, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            until(lambda: _up(url, process, tmp_path / "log"))
            yield url
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(120)


def _up(url: str, process: "subprocess.Popen[bytes]", log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        urllib.request.urlopen(f"{url}/static/", timeout=5)
    except urllib.error.HTTPError:
        return True
    except (urllib.error.URLError, ConnectionError):
        return False
    return True


def test_the_form_previews_and_applies_in_voila(address: str, browser: Browser, tmp_path: Path) -> None:
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        page = context.new_page()
        page.set_default_timeout(120_000)
        away: list[str] = []
        page.route(
            re.compile(r"^https?://(?!127\.0\.0\.1[:/])"), lambda route: (away.append(route.request.url), route.abort())
        )
        page.goto(address)
        form = page.locator(".runbook-form")
        tag = form.get_by_label("Tag", exact=True)
        tag.locator("option").filter(has_text=TAG).first.wait_for(state="attached")
        assert page.get_by_text("No bump yet").count() == 1
        tag.select_option(label=TAG)
        form.get_by_role("button", name="Preview", exact=True).click()
        form.locator(".runbook-plan").filter(has_text="Apply will").wait_for()
        form.get_by_label("Type to confirm").fill(TAG)
        form.get_by_role("button", name="Apply", exact=True).click()
        result = form.locator(".runbook-result").filter(has_text="not ready to merge")
        result.wait_for()
        expect(result).to_be_in_viewport()
        assert away == []
        if folder := os.environ.get("SHOTS"):
            page.screenshot(path=Path(folder) / "voila.png")
    assert list((tmp_path / "audit").rglob("run.json"))
    assert not (tmp_path / "was run").exists()
