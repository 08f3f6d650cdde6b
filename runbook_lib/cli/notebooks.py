"""``runbook run`` and ``runbook lab``: run the notebooks headlessly or in JupyterLab, from any folder."""

import os
import shutil
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import platformdirs

from runbook_lib.cli.command import Answer, command, print_json
from runbook_lib.errors import RunbookError
from runbook_lib.notebook import papermill
from runbook_lib.text.lists import join_first
from runbook_lib.world.machine import provenance

_NOTEBOOKS = "runbooks"


@command("run bump -p tag 26.05-py3 -p wait True", context_settings={"ignore_unknown_options": True})
@click.argument("notebook", default="")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[OPTION OF PAPERMILL]...")
@click.pass_obj
def run(as_json: bool, notebook: str, arguments: tuple[str, ...]) -> Answer | int:
    """Run a notebook headlessly, as papermill does, from any folder.

    NOTEBOOK is a name or a path (default: list the names); the other options and parameters are papermill's.
    Exit status: 0 done, waiting or previewed, 1 failed, 2 wrong usage.
    """
    shipped = provenance.ROOT / _NOTEBOOKS
    names = sorted(path.stem for path in shipped.glob("*.ipynb"))
    if not notebook:
        return Answer(0, {"notebooks": names}, names)
    if os.sep not in notebook and not notebook.endswith(".ipynb"):
        if notebook not in names:
            raise RunbookError(f"There is no notebook {notebook!r}.", f"Choose from {', '.join(names)}.")
        notebook = str(shipped / f"{notebook}.ipynb")
    _prefer_this_environment()
    if as_json:
        from papermill.engines import papermill_engines

        papermill_engines.get_engine("runbook").report = staticmethod(_print_run)
    return papermill.main([notebook, *arguments])


def _print_run(run: Mapping[str, Any] | None, folder: Path | None, message: str) -> None:
    """Print what the record says, or the error of a notebook that opened none."""
    print_json({"error": {"message": message, "fix": ""}} if run is None else {**run, "record": str(folder)})


@command("lab ~/runbooks", context_settings={"ignore_unknown_options": True})
@click.argument("target", default="", metavar="[DIR]")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[OPTION OF JUPYTERLAB]...")
def lab(target: str, arguments: tuple[str, ...]) -> int:
    """Open the notebooks in JupyterLab.

    Those of an installed package are first copied to DIR (default: a folder below the user's data folder).
    """
    import_module("jupyterlab")  # before anything is copied
    folder = provenance.ROOT
    if provenance.IS_INSTALLED or target:
        data = platformdirs.user_data_path("base-image-runbook")
        folder = Path(os.path.expanduser(target or data / provenance.library()["version"]))
        _copy_notebooks(folder)
    _prefer_this_environment()
    os.chdir(folder)
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", *arguments])


def _copy_notebooks(folder: Path) -> None:
    """Copy the notebooks and documents that the folder does not have, and report those that differ."""
    different: list[str] = []
    try:
        for source in sorted(path for name in (_NOTEBOOKS, "docs") for path in (provenance.ROOT / name).rglob("*")):
            target = folder / source.relative_to(provenance.ROOT)
            if source.is_dir() or source.parent.name == ".ipynb_checkpoints":
                continue
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
            elif target.read_bytes() != source.read_bytes():
                different.append(target.name)
    except OSError as error:
        raise RunbookError(
            f"The notebooks could not be copied to {folder} ({error.strerror or error}).",
            "Name another folder: runbook lab DIR",
        ) from error
    if different:
        note = f"{folder} has different versions of {join_first(different, 3)}; they were left as they are."
        print(note, file=sys.stderr, flush=True)  # JupyterLab replaces this process


def _prefer_this_environment() -> None:
    """Make Jupyter use this environment's kernel, and the settings shipped with the notebooks."""
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    os.environ["PYTHONSAFEPATH"] = "1"  # neither JupyterLab nor a kernel imports what lies in the folder
    settings = [str(provenance.ROOT / "environment" / "jupyter"), os.environ.get("JUPYTER_CONFIG_PATH", "")]
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, settings))
