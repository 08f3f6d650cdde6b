"""What a form shows of a run, as HTML: the plan of a preview, the progress, and the result."""

import html
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from runbook_lib import display
from runbook_lib.checks import Next
from runbook_lib.display import View
from runbook_lib.notebook.fields import in_form
from runbook_lib.record import report
from runbook_lib.record.run_file import EXECUTED, REPORT

#: Tags of the cells that are no part of a plan.
_OTHER_CELLS = {"inputs", "parameters", "injected-parameters"}


def plan(run: Mapping[str, Any], *, publish: bool, practice: bool, open_cards: int) -> str:
    """Return what *Apply* will do, here and outside, and the warnings."""
    local, public = ([each["sentence"] for each in run["planned"] if each["publish"] is it] for it in (False, True))
    outside = "Apply will also, outside this machine:"
    if not publish:
        outside = "Not done, because publish is not chosen:"
    elif practice:
        outside = "Apply will also, in the practice forge (nothing leaves this machine):"
    shown = View("", "")
    if open_cards:
        count = display.count(open_cards, "decision")
        shown += display.note(f"{count} open. Apply leaves that open; to include it, decide first and preview again.")
    shown += display.notes(local, title="Apply will, in the checkout on this machine:")
    shown += display.notes(public, title=outside)
    if not run["planned"]:
        shown += display.note("Apply will change nothing now.")
    shown += display.note(run["outcome"]["sentence"])  # how the run ends, such as with “do not merge”
    return (shown + display.notes(run["warnings"], title="Warnings:")).html


def cells(folder: Path, *, unfold: bool) -> str:
    """Return the outputs of an executed notebook's cells as harmless HTML, each below its heading, to be unfolded."""
    markup, state = "", " open" if unfold else ""
    for heading, shown in _outputs(folder):
        name = html.escape(heading)
        box = f'<div class="runbook-box" role="group" aria-label="{name}" tabindex="0">{shown}</div>'
        markup += f"<details{state}><summary>{name}</summary>{box}</details>\n"
    return markup


def _outputs(folder: Path) -> Iterator[tuple[str, str]]:
    heading = ""
    for cell in json.loads((folder / EXECUTED).read_bytes())["cells"]:
        lines = "".join(cell["source"]).splitlines()
        if cell["cell_type"] == "markdown":
            heading = next((line.lstrip("# ") for line in lines if line.startswith("#")), heading)
        elif cell.get("outputs") and not _OTHER_CELLS.intersection(cell["metadata"].get("tags", ())):
            yield heading, "\n".join(map(report.shown, cell["outputs"]))


def steps(run: Mapping[str, Any]) -> View:
    """Return the steps so far, each once although it runs in each round of CI."""
    newest = {step["name"]: step for step in run["steps"]}
    return display.notes(
        f"{display.mark(step['state'], step['warnings'])} {name}: {step['outcome']['sentence']}"
        for name, step in newest.items()
    )  # fmt: skip


def progress(run: Mapping[str, Any] | None, output: str, seconds: float) -> str:
    """Return the time, the CI jobs that have ended while a run follows CI, and the last line that it printed."""
    minutes, rest = divmod(int(seconds), 60)
    shown = display.note(f"{minutes} min {rest} s".removeprefix("0 min "))
    if run and (jobs := run.get("progress")):
        done, total = jobs["done"], jobs["total"]
        bar = f'<progress max="{total}" value="{done}" aria-label="jobs done"></progress>'
        shown += View(f"<p>{bar} {done} of {total} jobs</p>", "")
    lines = output.split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return (shown + display.code(last)).html if last else shown.html


def result(run: Mapping[str, Any], folder: Path, values: Mapping[str, object], *, open_cards: int) -> str:
    """Return the outcome of a run: its sentence, what comes next, links, steps, warnings, and its record."""
    outcome = run["outcome"]
    state = html.escape(display.mark(run["state"], run["warnings"]))
    shown = View(f"<p><strong>{state}:</strong> {display.linked(outcome['sentence'])}</p>", "")
    following = in_form(Next.from_json(outcome["next"]), run["notebook"]["name"], values)
    if open_cards and run["state"] != "done":
        following = "Decide on the cards above, then preview again."
    if following:
        shown += display.note(f"Next: {following}")
    shown += display.notes(f"{name}: {url}" for name, url in run["links"].items()) + steps(run)
    shown += display.notes(run["warnings"], title="Warnings:")
    address = _raw_address(folder / REPORT)
    link = f' <a href="{html.escape(address)}" target="_blank">Its report</a>' if address else ""
    return f"{shown.html}<p>Record: <code>{html.escape(str(folder))}</code>{link}</p>"


def _raw_address(file: Path) -> str:
    """Return the URL at which this kernel's Jupyter server serves a file unchanged; empty if there is none.

    A relative URL would open the file in JupyterLab's editor.
    """
    from jupyter_core.paths import jupyter_runtime_dir

    server_file = Path(jupyter_runtime_dir(), f"jpserver-{os.environ.get('JPY_PARENT_PID')}.json")
    try:
        server = json.loads(server_file.read_bytes())
        path = file.absolute().relative_to(server["root_dir"])
        return quote(f"{server['base_url']}files/{path.as_posix()}")
    except (OSError, ValueError, KeyError, TypeError):  # no Jupyter server, or a file outside its folder
        return ""
