"""JupyterLab in a browser, as a person uses it: a page object for the notebooks and their forms."""

import io
import json
import os
import re
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Locator, Page, Route
from waiting import wait_until

from runbook_lib.practice.store import CI_SECONDS
from runbook_lib.practice.world import PracticeWorld, open_world

ROOT = Path(__file__).resolve().parents[2]
TAG = "26.04-py3"
#: Themes and widths; the last is that with which all tests begin.
LOOKS = (("Dark", 640), ("Dark", 1280), ("Light", 1280))
#: Milliseconds.  Nothing takes this long unless it is broken.
PATIENCE = 240_000
_IDLE = "text=Python 3 (ipykernel) | Idle"
#: Evaluated in every frame of the page: Playwright's own waiting looks every half second after the first moments.
_SHOWS = """([parts, says]) => {
  const form = document.querySelector(".runbook-form");
  const texts = [...(form?.querySelectorAll(parts) ?? [])].map(it => it.innerText.replace(/\\s+/g, " ").trim());
  return texts.some(it => it && it.includes(says)) && !form.querySelector(".runbook-progress").innerText.trim();
}"""
#: What an earlier press has shown is no answer to the next one, and stays until the kernel has noticed the press.
_FORGET = """parts => document.querySelectorAll(parts).forEach(
  it => it.querySelector(".widget-html-content")?.replaceChildren()
)"""
_AXE = ROOT / "environment/.components/axe/node_modules/axe-core/axe.min.js"


@dataclass(frozen=True)
class Lab:
    """A JupyterLab on copies of the notebooks, with a practice environment and an archive of its own."""

    url: str
    token: str
    folder: Path
    home: Path
    audit: Path

    def ask(self, path: str, method: str = "GET") -> Any:
        """The server's API."""
        request = urllib.request.Request(f"{self.url}/api/{path}?token={self.token}", method=method)
        with urllib.request.urlopen(request) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def restart_kernel(self, name: str) -> None:
        """What the menu does, without its question."""
        (session,) = [it for it in self.ask("sessions") if it["path"].endswith(f"{name}.ipynb")]
        self.ask(f"kernels/{session['kernel']['id']}/restart", "POST")

    def clean(self) -> None:
        """End all kernels."""
        for session in self.ask("sessions"):
            self.ask(f"sessions/{session['id']}", "DELETE")

    def world(self) -> PracticeWorld:
        """Open the practice environment."""
        return open_world(self.home)

    def slow_ci(self, seconds: float) -> None:
        """Let CI runs that start from now on take so long."""
        with self.world().store.transaction() as state:
            state.ci_seconds = seconds

    def end_ci(self) -> None:
        """Let the CI runs that have started end now, and later ones before the next command."""
        self.slow_ci(CI_SECONDS)
        world = self.world()
        while any(run.status != "completed" for run in world.forge().runs()):
            world.store.advance(600)

    def records(self, notebook: str) -> list[dict[str, Any]]:
        """What the records of a notebook tell, oldest first."""
        found = [json.loads(path.read_bytes()) for path in self.audit.rglob("run.json")]
        return sorted((it for it in found if it["notebook"]["name"] == notebook), key=lambda it: it["started"])


class Tab:
    """A notebook that is open in a browser."""

    def __init__(self, lab: Lab, page: Page) -> None:
        self.lab, self.page = lab, page
        page.set_default_timeout(PATIENCE)
        #: Addresses that the page asked for and must not.
        self.away: list[str] = []
        self._frames: list[bytes] = []
        page.route(re.compile(r"^https?://(?!127\.0\.0\.1[:/])"), self._refuse)

    def _refuse(self, route: Route) -> None:
        self.away.append(route.request.url)
        route.abort()

    def open(self, name: str) -> "Tab":
        """Open a notebook and wait for its kernel; the start page runs by itself."""
        self.page.goto(f"{self.lab.url}/lab/tree/runbooks/{name}.ipynb?token={self.lab.token}")
        self.page.wait_for_function(
            "name => window.jupyterapp?.shell.currentWidget?.context?.path?.endsWith(name + '.ipynb')"
            " && window.jupyterapp.shell.currentWidget.context.isReady",
            arg=name,
        )
        # JupyterLab opens again what was open before; a person would close it.
        self.page.evaluate(
            "() => { const shell = window.jupyterapp.shell; for (const it of [...shell.widgets('main')])"
            " if (it !== shell.currentWidget) { if (it.context) it.context.model.dirty = false; it.close(); } }"
        )
        self.page.wait_for_selector(_IDLE)
        if name == "00-start":  # it runs by itself
            self.form.wait_for()
            self.page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")
        return self

    def look(self, theme: str, width: int) -> None:
        """Change the theme and the width; half of 1280 is what a zoom of 200 % leaves."""
        self.page.set_viewport_size({"width": width, "height": 800})
        execute = "name => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})"
        self.page.evaluate(execute, f"JupyterLab {theme}")

    @property
    def text(self) -> str:
        """All that the notebook shows."""
        return self.page.locator(".jp-Notebook").inner_text()

    def command(self, name: str) -> None:
        """Run a command of JupyterLab."""
        self.page.evaluate("name => window.jupyterapp.commands.execute(name)", name)

    def run_all(self) -> "Tab":
        """Run all cells, and wait until all have run."""
        self.page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")  # ends with the last cell
        self.page.wait_for_selector(_IDLE)
        return self

    @property
    def form(self) -> Locator:
        """The form."""
        return self.page.locator(".runbook-form")

    def part(self, name: str) -> Locator:
        """A part of the form: progress, error, result, warning, cells; or ``end``, an error or else a result."""
        return self.form.locator(self.parts(name))

    @staticmethod
    def parts(name: str) -> str:
        """The CSS selector of a part of the form."""
        names = "error,result" if name == "end" else name
        return ",".join(f".runbook-{it}" for it in names.split(","))

    def choose(self, tag: str) -> None:
        """Type a tag as soon as it is suggested."""
        self.form.locator(f"datalist option[value='{tag}']").wait_for(state="attached")
        field = self.form.get_by_label("Tag", exact=True)
        field.fill(tag)
        field.press("Enter")

    def card(self, name: str) -> Locator:
        """The card of a decision, by a part of its title."""
        return self.form.locator(".runbook-card").filter(has=self.page.locator("h4", has_text=name)).first

    def button(self, name: str) -> Locator:
        """A button of the form."""
        return self.form.get_by_role("button", name=name, exact=True)

    def press(self, name: str, shows: str, *, says: str = "") -> str:
        """Press a button, wait until a part of the form shows something, and return that."""
        button = self.enabled(name)
        self.page.evaluate(_FORGET, self.parts(shows))
        button.click()
        return self.wait(shows, says)

    def wait(self, shows: str, says: str = "") -> str:
        """Wait until a part of the form has text, and return it."""
        self.page.wait_for_function(_SHOWS, arg=[self.parts(shows), says])
        return self.part(shows).filter(has_text=re.compile(re.escape(says) or r"\S")).first.inner_text()

    def enabled(self, name: str) -> Locator:
        """A button, as soon as it can be pressed."""
        self.page.wait_for_function(
            "name => [...document.querySelectorAll('.runbook-form button')]"
            ".some(it => it.innerText.trim() == name && !it.disabled)",
            arg=name,
        )
        return self.button(name)

    def confirm(self, tag: str = TAG) -> None:
        """Type the tag."""
        self.form.get_by_label("Type to confirm").fill(tag)

    def shot(self, name: str, of: Locator | None = None) -> None:
        """Keep a picture, if SHOTS names a folder for them."""
        if folder := os.environ.get("SHOTS"):
            path = Path(folder).absolute() / f"{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            (of or self.page).screenshot(path=path)
            self._frames.append(self.page.screenshot())

    def film(self, name: str) -> None:
        """Keep what the page looked like at each picture as one that moves, if SHOTS names a folder."""
        if folder := os.environ.get("SHOTS"):
            first, *others = (Image.open(io.BytesIO(frame)).convert("RGB") for frame in self._frames)
            first.save(Path(folder, f"{name}.webp"), save_all=True, append_images=others, duration=2500, loop=0)

    def violations(self, selector: str) -> list[str]:
        """What axe-core finds wrong within these elements once JupyterLab has laid them out."""
        deadline = time.monotonic() + 60  # on a busy machine a single check takes seconds
        while (problems := violations(self.page, selector)) and time.monotonic() < deadline:
            time.sleep(0.2)
        return problems

    def saved(self, name: str) -> str:
        """Save the notebook, and return what stands in its file."""
        file = self.lab.folder / f"runbooks/{name}.ipynb"
        before = file.stat().st_mtime_ns
        self.command("docmanager:save")
        wait_until(lambda: file.stat().st_mtime_ns != before)
        return file.read_text()


def violations(page: Page, selector: str) -> list[str]:
    """What axe-core finds wrong within these elements of a page: contrast, labels, names, roles."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(_AXE.read_text())
    options = {"resultTypes": ["violations"], "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
    found = page.evaluate("([it, options]) => axe.run({include: [[it]]}, options)", [selector, options])
    return [
        f"{it['id']}: {node['html'][:160]} {node['failureSummary']}"
        for it in found["violations"]
        for node in it["nodes"]
    ]
