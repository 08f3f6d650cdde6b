"""The views of a form: the labels of its fields, and as HTML the progress, the outcome and the cells of a run."""

import html
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from runbook_lib import display, notebooks
from runbook_lib.model import Next
from runbook_lib.record import report
from runbook_lib.record.run_file import EXECUTED, REPORT

#: Labels of parameters whose name says too little.
_LABELS = {
    "repo": "Checkout", "base": "Base branch", "remote": "Push to", "decisions": "File of decisions", "mode": "Apply",
    "wait": "Wait for CI", "run_id": "CI run", "place": "Where", "where": "Runs", "site": "Site file",
    "good": "Last good tag", "budget": "Runs at most",
}  # fmt: skip
_CHOICES: Mapping[str, Mapping[str, str]] = {
    "image_type": {
        "dev": "dev: what CI runs in by default",
        "lts": "lts: the long-term image, whose pins rarely move; a maintainer decides when",
    },
    "mode": {"": "here only: nothing leaves this machine", "publish": "publish: push, pull request, labels, comments"},
    "source": {"github": "GitHub, then GitLab", "gitlab": "GitLab only"},
    "how": {
        "build": "build: the image of this checkout",
        "pull": "pull: the image that internal CI built",
    },
}
#: Tags of the cells that show nothing of the run.
_OTHER_CELLS = {"inputs", "parameters", "injected-parameters"}


def label(name: str) -> str:
    """Return the label of a parameter."""
    return _LABELS.get(name) or name.replace("_", " ").capitalize()


def choices(name: str) -> Mapping[str, str]:
    """Return the labels of a field's values; none for a field that takes any text."""
    if name not in ("task", "where"):
        return _CHOICES.get(name, {})
    # Imported for these fields only: every form waits for what is imported above.
    from runbook_lib.compute.tasks import TABLE, TASKS

    if name == "task":
        return {task: f"{task}: {text}" for task, text in TASKS.items()}
    return {"": "(what this machine has)"} | {target: f"{target}: {text}" for target, text in TABLE["where"].items()}


def in_form(following: Next, notebook: str, values: Mapping[str, object]) -> str:
    """Return what comes next in the form of ``notebook``, which has these values: what to press instead of commands."""
    name = following.notebook
    changes = {each: value for each, value in following.parameters.items() if values.get(each) != value}
    if not following.parameters.get("repo"):  # in practice the form has no such field
        changes.pop("mode", None)
    filled_in = ", ".join(f"{label(each)}: {value}" for each, value in changes.items())
    action = ""
    if name == notebooks.REVIEW:
        action = "Decide on the cards, then press Preview and Apply."
    elif name == notebook:
        action = f"{f'Choose {filled_in}. ' if filled_in else ''}Press Preview, then Apply."
    elif name:
        action = f"Open {name}{' with ' if filled_in else ''}{filled_in}."
    return f"{following.because} {action}".strip()


def about_apply(plan: Mapping[str, Any] | None, *, publish: bool, practice: bool, open_cards: int, word: str) -> str:
    """Return what a person should know before they press *Apply*; ``word`` is what they have to type first."""
    if plan is None:
        return display.note("Preview first: Apply does exactly what was shown.").html
    sentences = [] if plan["planned"] else ["Apply will change nothing now."]
    if not publish:
        sentences.append("Apply will not do what leaves this machine, because publish is not chosen.")
    if open_cards:
        sentences.append(
            f"{display.count(open_cards, 'decision')} open. Apply leaves that open; to include it, decide first and "
            "preview again."
        )
    if word:
        danger = "In practice nothing leaves this machine." if practice else "Published changes cannot be undone."
        sentences.append(f"{danger} Type {word} to confirm.")
    return display.notes(sentences).html


def steps(run: Mapping[str, Any] | None) -> str:
    """Return the steps so far, each once although it runs in each round of CI."""
    newest = {step["name"]: step for step in run["steps"]} if run else {}
    return display.notes(
        f"{display.mark(step['state'], step['warnings'])} {name}: {step['outcome']['sentence']}".removesuffix(": ")
        for name, step in newest.items()
    ).html  # fmt: skip


def progress(line: str, seconds: float) -> str:
    """Return the time, and the line that was printed last."""
    minutes, rest = divmod(int(seconds), 60)
    shown = display.note(f"{minutes} min {rest} s".removeprefix("0 min "))
    return (shown + display.code(line)).html if line else shown.html


def result(run: Mapping[str, Any], folder: Path, values: Mapping[str, object], *, open_cards: int) -> str:
    """Return the outcome of a run: its sentence, what comes next, its warnings, links and record."""
    following = in_form(Next(**run["outcome"]["next"]), run["notebook"]["name"], values)
    if open_cards and run["state"] != "done":
        following = "Decide on the cards above, then preview again."
    label = f"{display.mark(run['state'], run['warnings'])}: "
    shown = linked(report.outcome(run, f"Record: {folder}", label, following).html, folder)
    address = _raw_address(folder / REPORT)
    return f'{shown}<p><a href="{html.escape(address)}" target="_blank">Its report</a></p>' if address else shown


def cells(folder: Path, *, unfold: bool) -> str:
    """Return the outputs of an executed notebook's cells as harmless HTML, each below its heading, to be unfolded."""
    markup, state = "", " open" if unfold else ""
    for heading, shown in _outputs(folder / EXECUTED):
        name = html.escape(heading)
        box = f'<div class="runbook-box" role="group" aria-label="{name}" tabindex="0">{shown}</div>'
        markup += f"<details{state}><summary>{name}</summary>{box}</details>\n"
    return linked(markup, folder)


def _outputs(file: Path) -> Iterator[tuple[str, str]]:
    heading = ""
    for cell in report.cells(file):
        if cell["cell_type"] == "markdown":
            lines = cell["source"].splitlines()
            heading = next((line.lstrip("# ") for line in lines if line.startswith("#")), heading)
        elif cell.get("outputs") and not _OTHER_CELLS.intersection(cell["metadata"].get("tags", ())):
            yield heading, "\n".join(map(report.shown, cell["outputs"]))


def linked(markup: str, folder: Path) -> str:
    """Link the pages of the practice environment, which a page of a server may not open from the disk."""
    return report.link_pages(markup, folder, lambda page: _raw_address(folder / page))


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
