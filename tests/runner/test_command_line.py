"""The command line that messages show."""

from pathlib import Path

import pytest

from runbook_lib.bump import Bump
from runbook_lib.records.statement import statement, to_bytes
from runbook_lib.runner import command_line
from runbook_lib.system import provenance

PREVIEW = Bump.parse(tag="26.04-py3")
LAUNCHED = {"id": "x", "state": "running", "bump": {}, "notebook": {}, "started": "", "launcher": {"folder": ""}}


@pytest.mark.parametrize(
    ("arguments", "notebook", "changes", "words"),
    [
        (None, "bump", {}, "bump.ipynb -r tag 26.04-py3"),
        ({}, "00-preflight", {}, "00-preflight.ipynb -r tag 26.04-py3"),
        (
            {"repo": "/a clone", "apply": False, "tag": "26.10", "wait": True},
            "01-github-pin",
            {"apply": True},
            "01-github-pin.ipynb -r tag 26.10 -r repo '/a clone' -p apply True",
        ),
        ({"repo": "", "apply": False, "publish": True}, "bump", {"apply": True},
         "bump.ipynb -r tag 26.04-py3 -p publish True"),
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
        place = {"folder": str(provenance.ROOT / "runbooks")}
        run = {**LAUNCHED, "launcher": place, "parameters": {"given": arguments, "resolved": arguments}}
        (tmp_path / "run.json").write_bytes(to_bytes(statement(run, {})))
    assert command_line.command(notebook, PREVIEW, **changes) == f"environment/run papermill runbooks/{words}"
