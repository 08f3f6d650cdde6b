"""Small runbooks for the tests of what runs them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

PARAMETERS = """\
tag: str = ""  # monthly tag
repo: str = "."
run_id: str = ""
wait: bool = False
mode: str = "local"
"""
BEGIN = """\
import os, time
from runbook_lib.pins.bump import Bump
from runbook_lib.model import Check
from runbook_lib.model import Effect, Outcome
from runbook_lib.errors import RunbookError
from runbook_lib.notebook import begin, outputs, recording, session
from runbook_lib.record.run_file import Identity
outputs.redact(os.environ)
given = begin.passed({step!r}, session.inputs(), globals())
bump = Bump.parse(tag=tag, mode=mode)
identity = Identity("o/r", bump.base, bump.image_type, bump.target, practice=False)
step = begin.open_record({step!r}, bump, identity, given)"""


def notebook(path: Path, *cells: str, parameters: str = PARAMETERS, step: str | None = "") -> Path:
    """Write a notebook of these code cells; ``step`` None makes it one that is not of the runbook."""
    name = path.name.removesuffix(".ipynb")
    code = [(parameters, ["parameters"]), *((cell, []) for cell in ([] if step is None else [BEGIN.format(step=name)]))]
    listed: list[dict[str, Any]] = [{"cell_type": "markdown", "id": "title", "metadata": {}, "source": f"# {name}"}]
    for number, (source, tags) in enumerate([*code, *((cell, re.findall(r"# tag: (.+)", cell)) for cell in cells)]):
        cell = {"cell_type": "code", "id": f"cell-{number}", "metadata": {"tags": tags}, "source": source}
        listed.append({**cell, "outputs": [], "execution_count": None})
    metadata: dict[str, Any] = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
    }
    if step is not None:
        metadata["runbook"] = {"step": step or name}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"cells": listed, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}))
    return path


def command(*arguments: object) -> list[str]:
    """The environment's papermill, as environment/bin/papermill runs it."""
    return [sys.executable, "-P", "-m", "runbook_lib.notebook.papermill", *map(str, arguments)]


def environ(**more: str) -> dict[str, str]:
    """The environment for it."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "GITHUB_REPOSITORY": "o/r", **more}


def papermill(*arguments: object, cwd: Path, stdin: Any = subprocess.DEVNULL, **more: str) -> tuple[int, str, str]:
    """Run it; exit status, standard output and standard error."""
    done = subprocess.run(
        command(*arguments), cwd=cwd, env=environ(**more), stdin=stdin, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def records(audit: Path) -> list[Path]:
    """All records below a folder, oldest first; names alone do not tell the order of two from the same second."""
    started = {path.parent: json.loads(path.read_bytes())["started"] for path in audit.rglob("run.json")}
    return sorted(started, key=lambda folder: started[folder])


def outputs(executed: Path) -> list[str]:
    """The text of all outputs of an executed notebook."""
    cells: list[dict[str, Any]] = json.loads(executed.read_bytes())["cells"]
    return [
        "".join(output.get("text") or output.get("data", {}).get("text/plain") or output.get("traceback") or "")
        for cell in cells
        for output in cell.get("outputs", ())
    ]
