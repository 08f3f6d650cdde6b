"""``runbook run`` and ``runbook lab``: run the notebooks headlessly or in JupyterLab, from any folder."""

import filecmp
import json
import os
import shutil
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import platformdirs

from runbook_lib.cli.command import command, json_option
from runbook_lib.errors import RunbookError
from runbook_lib.notebook import papermill
from runbook_lib.record.status import with_steps
from runbook_lib.system import provenance
from runbook_lib.text.lists import join_first

_NOTEBOOKS = "runbooks"


@command("run", "runbook run bump -p tag 26.05-py3 -p wait True", context_settings={"ignore_unknown_options": True})
@click.argument("notebook", default="")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[OPTION OF PAPERMILL]...")
@json_option
def run(notebook: str, arguments: tuple[str, ...], as_json: bool) -> int:
    """Run a notebook headlessly, as papermill does, from any folder.

    NOTEBOOK is a name or a path (default: list the names); the other options and parameters are papermill's.
    Exit status: 0 done, waiting or previewed, 1 failed, 2 wrong usage.
    """
    shipped = provenance.ROOT / _NOTEBOOKS
    if not notebook:
        print("\n".join(sorted(path.stem for path in shipped.glob("*.ipynb"))))
        return 0
    if os.sep not in notebook and not notebook.endswith(".ipynb"):
        notebook = str(shipped / f"{notebook}.ipynb")
    _prefer_this_environment()
    os.environ["PYTHONSAFEPATH"] = "1"  # neither JupyterLab nor a kernel imports what lies in the folder
    if as_json:
        from papermill.engines import papermill_engines

        papermill_engines.get_engine("runbook").report = staticmethod(_print_json)
    return papermill.main([notebook, *arguments])


def _print_json(run: Mapping[str, Any] | None, folder: Path | None, message: str) -> None:
    """Print what the record of the run says, with its steps, or the error of a notebook that opened none."""
    document: dict[str, object] = {"version": 1, "error": {"message": message}}
    if run is not None:
        steps = [_as_json(step) for step in with_steps([run])[1:]]
        document = {"version": 1, **_as_json(run), "record": str(folder)}
        document |= {"steps": steps} if steps else {}
    print(json.dumps(document, indent=2))


def _as_json(run: Mapping[str, Any]) -> dict[str, object]:
    """Return a run for ``--json``: its outcome, and each condition of its plan with what became of it."""
    names = ("conditions", "planned", "decisions", "checks", "warnings", "links")
    found = run["inputs"].get("requirements", [])
    return {
        "notebook": run["notebook"]["name"], "state": run["state"], **run["outcome"], "requirements": found,
        **{name: run[name] for name in names},
    }  # fmt: skip


@command("lab", "runbook lab ~/runbooks", context_settings={"ignore_unknown_options": True})
@click.argument("target", default="", metavar="[DIR]")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[OPTION OF JUPYTERLAB]...")
def lab(target: str, arguments: tuple[str, ...]) -> int:
    """Open the notebooks in JupyterLab.

    Those of an installed package are first copied to DIR (default: a folder below the user's data folder).
    """
    import_module("jupyterlab")  # before anything is copied
    if not provenance.IS_INSTALLED and not target:
        folder = provenance.ROOT
    else:
        data = platformdirs.user_data_path("base-image-runbook")
        folder = Path(target or data / provenance.library()["version"]).expanduser()
        _copy_notebooks(folder)
    _prefer_this_environment()
    os.environ["PYTHONSAFEPATH"] = "1"  # neither JupyterLab nor a kernel imports what lies in the folder
    os.chdir(folder)
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", *arguments])


def _copy_notebooks(folder: Path) -> None:
    """Copy the notebooks and documents that the folder does not have, and report those that differ."""
    different: list[str] = []

    def copy(source: str, target: str) -> None:
        if not os.path.exists(target):
            shutil.copyfile(source, target)
        elif not filecmp.cmp(source, target, shallow=False):
            different.append(Path(target).name)

    try:
        for name in (_NOTEBOOKS, "docs"):
            ignored = shutil.ignore_patterns(".ipynb_checkpoints")
            shutil.copytree(
                provenance.ROOT / name, folder / name, ignore=ignored, copy_function=copy, dirs_exist_ok=True
            )
    except OSError as error:
        raise RunbookError(
            f"The notebooks could not be copied to {folder} ({error.strerror or error}). Name another folder: "
            "runbook lab DIR"
        ) from error
    if different:
        note = f"{folder} has different versions of {join_first(different, 3)}; they were left as they are."
        print(note, file=sys.stderr, flush=True)  # JupyterLab replaces this process


def _prefer_this_environment() -> None:
    """Make Jupyter use this environment's kernel, and the settings shipped with the notebooks."""
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    settings = [str(provenance.ROOT / "environment" / "jupyter"), os.environ.get("JUPYTER_CONFIG_PATH", "")]
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, settings))
