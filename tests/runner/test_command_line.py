"""The command line that messages show."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from runbook_lib.pins.bump import Bump
from runbook_lib.records.statement import statement, to_bytes
from runbook_lib.runner import command_line
from runbook_lib.system import provenance

PREVIEW = Bump.parse(tag="26.04-py3")
LAUNCHED = {"id": "x", "state": "running", "bump": {}, "notebook": {}, "started": "", "launcher": {"folder": ""}}


def write_record(folder: Path, given: Mapping[str, object], resolved: Mapping[str, object]) -> None:
    place = {"folder": str(provenance.ROOT / "runbooks")}
    run = {**LAUNCHED, "launcher": place, "parameters": {"given": given, "resolved": resolved}}
    (folder / "run.json").write_bytes(to_bytes(statement(run, {})))


@pytest.mark.parametrize(
    ("arguments", "notebook", "changes", "words"),
    [
        (None, "bump", {}, "bump.ipynb -r tag 26.04-py3"),
        ({}, "00-preflight", {}, "00-preflight.ipynb -r tag 26.04-py3"),
        (
            {"repo": "/a clone", "mode": "preview", "tag": "26.10", "wait": True},
            "01-github-pin",
            {"mode": "local"},
            "01-github-pin.ipynb -r tag 26.10 -r repo '/a clone' -r mode local",
        ),
        ({"repo": "", "mode": "preview"}, "bump", {"mode": "publish"},
         "bump.ipynb -r tag 26.04-py3 -r mode publish"),
    ],
)  # fmt: skip
def test_repeats_the_arguments_of_the_current_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: dict[str, object] | None,
    notebook: str,
    changes: dict[str, object],
    words: str,
) -> None:
    monkeypatch.setenv("RUNBOOK_RECORD", str(tmp_path))
    if arguments is not None:
        write_record(tmp_path, arguments, arguments)
    assert command_line.command(notebook, PREVIEW, **changes) == f"environment/run papermill runbooks/{words}"


def test_the_review_names_the_tag() -> None:
    assert command_line.review(PREVIEW) == "environment/run runbook review 26.04-py3"
