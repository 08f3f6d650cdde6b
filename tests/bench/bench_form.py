"""How long from opening a notebook to a form that can be used, against an empty notebook with one text field.

    environment/run python tests/bench/bench_form.py [REPEATS]

or ``environment/run pytest -n0 tests/bench/bench_form.py``: at most 1.2 times.  Both are opened in turns in one
JupyterLab and one browser, each with a kernel of its own: the page, the kernel, "Run all", the field that takes text.
"""

import json
import runpy
import statistics
import sys
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "browser"), str(Path(__file__).resolve().parents[1])]

from lab import Lab, Tab  # noqa: E402 - of the browser's tests

# Under pytest the name conftest stands for another file.
_fixtures = runpy.run_path(str(Path(__file__).resolve().parents[1] / "browser/conftest.py"))
server, browser = _fixtures["server"], _fixtures["browser"]

LIMIT = 1.2
# Evaluated in every frame of the page: Playwright's own waiting looks every half second after the first moments.
_READY = """name => {
  const shown = window.jupyterapp?.shell.currentWidget;
  return shown?.context?.path?.endsWith(name + ".ipynb") && shown.context.isReady
    && shown.sessionContext?.session?.kernel?.status === "idle";
}"""
_USABLE = """label => [...document.querySelectorAll(".widget-label")].some(
  it => it.innerText.trim() === label && it.parentElement.querySelector("input")?.offsetParent)"""
_FIELD = "import ipywidgets\nipywidgets.Text(description='Field')"
_CELL = {"cell_type": "code", "id": "field", "metadata": {}, "source": _FIELD, "outputs": [], "execution_count": None}


def measure(repeats: int = 8) -> float:
    """Print the medians, and return the ratio of the whole bump's form."""
    with contextmanager(server.__wrapped__)() as lab, contextmanager(browser.__wrapped__)() as chromium:
        shipped = json.loads((lab.folder / "runbooks/bump.ipynb").read_text())
        empty = {**shipped, "cells": [_CELL], "metadata": {"kernelspec": shipped["metadata"]["kernelspec"]}}
        (lab.folder / "runbooks/empty.ipynb").write_text(json.dumps(empty))
        times: dict[str, list[float]] = {"empty": [], "bump": [], "00-start": []}
        for _ in range(repeats + 1):
            for name, found in times.items():
                lab.clean()
                found.append(_opened(lab, chromium, name))
        for name, found in times.items():
            del found[0]  # it makes the practice environment, and fills the caches of all
            print(f"{name:10} median {statistics.median(found):5.2f} s   ({min(found):.2f} to {max(found):.2f})")
        return statistics.median(times["bump"]) / statistics.median(times["empty"])


def _opened(lab: Lab, chromium: Any, name: str) -> float:
    """Seconds until text can be typed into the first field of the form."""
    label = "Field" if name == "empty" else "Base branch"
    with chromium.new_context() as context:
        page, start = Tab(lab, context.new_page()).page, time.perf_counter()
        # In a workspace of its own: JupyterLab opens again what was open in the last one.
        page.goto(f"{lab.url}/lab/workspaces/{uuid.uuid4()}/tree/runbooks/{name}.ipynb?token={lab.token}")
        if name != "00-start":  # it runs by itself
            page.wait_for_function(_READY, arg=name)
            page.evaluate("void window.jupyterapp.commands.execute('notebook:run-all-cells')")
        page.wait_for_function(_USABLE, arg=label)
        page.get_by_label(label, exact=True).fill("main")
        return time.perf_counter() - start


def test_the_form_is_quick() -> None:
    assert measure() <= LIMIT


if __name__ == "__main__":
    measured = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
    print(f"{'PASS' if measured <= LIMIT else 'FAIL'}  form / empty notebook {measured:.2f}  (at most {LIMIT:g})")
    sys.exit(measured > LIMIT)
