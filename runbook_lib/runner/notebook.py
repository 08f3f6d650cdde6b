"""The executed notebook: the stored one with injected parameters, and with outputs free of secrets."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runbook_lib.system.files import write
from runbook_lib.text.notebook_file import NotebookSource
from runbook_lib.text.redact import Redactor

if TYPE_CHECKING:
    from nbformat import NotebookNode


def prepared(source: NotebookSource, injected: Mapping[str, Any], *, hide_code: bool = False) -> "NotebookNode":
    """Return the notebook with papermill's cell of injected parameters, and without earlier outputs."""
    from papermill.iorw import load_notebook_node
    from papermill.parameterize import parameterize_notebook

    notebook: NotebookNode = load_notebook_node(str(source.path))
    if injected:
        notebook = parameterize_notebook(notebook, dict(injected), kernel_name="python3", language="python")
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
            if hide_code:
                cell.metadata["jupyter"] = {**cell.metadata.get("jupyter", {}), "source_hidden": True}
    return notebook


def redacted(notebook: "NotebookNode", redactor: Redactor) -> dict[str, Any]:
    """Return the notebook in a form that may be stored: without secrets, and without widgets, which need a kernel."""
    data: dict[str, Any] = redactor.data(notebook)
    for cell in data["cells"]:
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
    return data


def saver(paths: list[Path], redactor: Redactor) -> Callable[["NotebookNode"], None]:
    """Return a function that writes the notebook in its current state to all paths."""

    def save(notebook: "NotebookNode") -> None:
        content = json.dumps(redacted(notebook, redactor), indent=1, ensure_ascii=False, sort_keys=True) + "\n"
        for path in paths:
            write(path, content.encode("utf-8", "backslashreplace"))

    return save
