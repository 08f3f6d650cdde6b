"""The form of a notebook in JupyterLab.  Headlessly nothing of it exists: no widget is made."""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runbook_lib import practice
from runbook_lib.parameters import Source


def headless() -> bool:
    """Whether no person sits before this notebook.  JupyterLab names the session of its kernels; papermill does not."""
    return "JPY_SESSION_NAME" not in os.environ


def permitted(**asked: bool) -> dict[str, bool]:
    """What a run may do: headlessly what was asked, in JupyterLab nothing, so that "Run all" only ever previews."""
    return {name: value and headless() for name, value in asked.items()}


def offer(notebook: str, namespace: Mapping[str, object]) -> None:
    """Show the notebook's parameters, with their values in ``namespace``, as a form; headlessly, do nothing.

    *Preview* and *Apply* run this same notebook headlessly in a process of its own, so that what a person starts here
    leaves the same record as a command, and no cell is ever run out of order.
    """
    if headless():
        return
    from IPython.display import display

    path = Path(os.environ["JPY_SESSION_NAME"]).with_name(f"{notebook}.ipynb")
    display(_form(path, {it.name: namespace[it.name] for it in Source.read(path).parameters}))


def _form(notebook: Path, parameters: dict[str, object]) -> Any:
    import ipywidgets as widgets

    fields = {
        name: widgets.Checkbox(value=value, description=name)
        if isinstance(value, bool)
        else widgets.Text(value=str(value), description=name, continuous_update=False)
        for name, value in parameters.items()
        if name != "apply"
    }
    preview = widgets.Button(description="Preview")
    apply = widgets.Button(description="Apply", button_style="warning")
    output = widgets.Output()

    def start(apply_now: bool) -> None:
        if "repo" in fields and fields["repo"].value:
            practice.enter(fields["repo"].value)  # takes back the addresses of a practice world, if one was entered
        preview.disabled = apply.disabled = True
        output.clear_output()
        command = command_line(notebook, {name: field.value for name, field in fields.items()}, apply=apply_now)
        threading.Thread(target=run, args=(command,), daemon=True).start()

    def run(command: list[str]) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "JPY_SESSION_NAME"}
        with subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            for line in process.stdout or ():
                output.append_stdout(line)
        preview.disabled = apply.disabled = False

    preview.on_click(lambda _: start(False))
    apply.on_click(lambda _: start(True))
    return widgets.VBox([*fields.values(), widgets.HBox([preview, apply]), output])


def command_line(notebook: Path, parameters: dict[str, object], *, apply: bool) -> list[str]:
    """The command that runs a notebook headlessly with these values; text stays text (papermill's ``-r``)."""
    given = [
        part
        for name, value in parameters.items()
        for part in (("-p" if isinstance(value, bool) else "-r"), name, str(value))
    ]
    return [sys.executable, "-m", "runbook_lib.run", str(notebook), *given, "-p", "apply", str(apply)]
