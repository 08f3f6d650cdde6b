"""Runs by the papermill of the package index: their records are closed, and nothing secret leaves the kernel."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import seeded
from seeded import Search
from small_runbooks import environ, notebook, outputs, records

from runbook_lib.record import run_file
from runbook_lib.record.store import verify
from runbook_lib.world.machine import provenance

RUNBOOKS = provenance.ROOT / "runbooks"
END = "recording.end(step)"
#: papermill without what takes it two seconds to import.
_PAPERMILL = (
    "from runbook_lib.world.machine import startup; startup.skip_notebook_formats(); "
    "from papermill.cli import papermill; papermill()"
)
slow = partial(pytest.param, marks=pytest.mark.slow)
#: The engine closes the record; without it, the run itself does, or what the kernel does at its end.
ENGINE, STOCK = ["--engine", "runbook"], list[str]()


def papermill(path: Path, output: Path, *arguments: str, cwd: Path, **more: str) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-c", _PAPERMILL, str(path), str(output), "--no-progress-bar", *arguments]
    env = environ(**more)
    # With the first ipykernel does not capture what other programs print; the second is the clone.
    env = {name: value for name, value in env.items() if name not in ("PYTEST_CURRENT_TEST", "PYTHONPATH")}
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "engine"), [("the clone", ENGINE), ("runbooks", STOCK), ("elsewhere", ENGINE)])
def test_a_step_leaves_a_closed_record(tmp_path: Path, archive: Path, folder: str, engine: list[str]) -> None:
    cwd = {"the clone": provenance.ROOT, "runbooks": RUNBOOKS}.get(folder, tmp_path)
    path = RUNBOOKS / "03-open-pr.ipynb"
    named = path.relative_to(cwd) if path.is_relative_to(cwd) else path
    done = papermill(
        named,
        tmp_path / "out.ipynb",
        "-p",
        "tag",
        "26.05-py3",
        *engine,
        cwd=cwd,
        RUNBOOK_PRACTICE_HOME=f"{tmp_path}/world",
    )
    assert done.returncode == 0, done.stderr
    (record,) = records(archive)
    run = run_file.read(record)
    assert (run["state"], run["parameters"]) == ("done", {"tag": "26.05-py3"})
    assert f"Record: {record.name}" in "".join(outputs(tmp_path / "out.ipynb"))
    assert (record / "executed.ipynb").is_file() is bool(engine)
    if engine:
        assert outputs(record / "executed.ipynb") == outputs(tmp_path / "out.ipynb")
    assert verify(archive)[0] == []


@pytest.mark.parametrize(
    ("engine", "cells", "state", "words"),
    [
        (STOCK, ["step.conclude('waiting', Outcome('For CI.'))", END], "waiting", "For CI."),
        (ENGINE, ["raise RunbookError('No such tag.')", END], "failed", "No such tag. (01-a, cell 4)"),
        slow(STOCK, ["1 / 0", END], "failed", "01-a, cell 4 raised ZeroDivisionError: division by zero."),
        slow(STOCK, ["step.check(Check('pins', 'failed', 'differ'))", END, "step.raise_if_failed()"], "failed", "pins"),
        slow(STOCK, ["step.conclude('done', Outcome('Fine.'))"], "interrupted", "interrupted"),
        slow(ENGINE, ["step.conclude('done', Outcome('Fine.'))"], "interrupted", "interrupted"),
        slow(ENGINE, ["os.kill(os.getpid(), 2)", END], "interrupted", "interrupted"),
    ],
)
def test_how_a_run_ends(
    tmp_path: Path, archive: Path, engine: list[str], cells: list[str], state: str, words: str
) -> None:
    path = notebook(tmp_path / "01-a.ipynb", *cells)
    done = papermill(path, tmp_path / "out.ipynb", "-p", "tag", "26.04-py3", *engine, cwd=tmp_path)
    assert (done.returncode == 0) is (state == "waiting" or len(cells) == 1), done.stderr
    (record,) = records(archive)
    assert run_file.read(record)["state"] == state
    assert words in run_file.read(record)["outcome"]["sentence"]
    assert verify(archive)[0] == []


@pytest.mark.slow
def test_no_secret_leaves_the_kernel(tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    monkeypatch.setenv("SEED_TOKEN", held := seeded.secrets("held")["NVIDIA"])
    cell, by_form = seeded.let_out(tmp_path / "in" / "told.json", "stock")
    raising = "raise ValueError(os.environ['SEED_TOKEN'])"
    path = notebook(tmp_path / "in" / "01-a.ipynb", cell, raising)
    done = papermill(path, tmp_path / "out.ipynb", "--log-output", cwd=tmp_path, HOME=str(tmp_path))
    assert done.returncode == 1
    assert "raise ValueError" in done.stderr, done.stderr
    assert len(by_form) >= 40
    for form, secret in {**by_form, "the environment": held}.items():
        search = Search([secret])
        assert not search.found((done.stdout + done.stderr).encode()), form
        assert not search.below(tmp_path, [tmp_path / "in"]), form
    assert "***" in (tmp_path / "out.ipynb").read_text()
