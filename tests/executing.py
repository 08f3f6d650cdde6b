"""Notebooks run by papermill with the runbook's engine, as a person's command runs them, in the process of a test."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from github_server.server import Forge
from papermill.exceptions import PapermillExecutionError
from papermill.execute import execute_notebook
from registry_server import RegistryServer

from runbook_lib.model import Next
from runbook_lib.notebook.engine import RunbookEngine
from runbook_lib.world import commands


@dataclass(frozen=True)
class Ran:
    """What became of a run: its record, what that says, or the message of a notebook that opened none."""

    record: Path | None
    run: Mapping[str, Any]
    message: str = ""

    @property
    def state(self) -> str:
        return str(self.run.get("state", "failed"))

    @property
    def ok(self) -> bool:
        return self.state in ("done", "waiting", "previewed")

    @property
    def summary(self) -> str:
        return str(self.run["outcome"]["sentence"]) if self.run else self.message

    @property
    def next(self) -> str:
        return commands.text(Next(**self.run["outcome"]["next"]))


@contextmanager
def served(bare: Path, home: Path) -> Iterator[None]:
    """Serve a bare repository by the practice forge, and images, as the environment of notebooks names them."""
    name = f"practice/{bare.stem}"
    with (
        Forge(home / "forge.sqlite", bare, listen=True) as forge,
        closing(RegistryServer(listen=True)) as images,
        pytest.MonkeyPatch.context() as patch,
    ):
        forge.hub.repository, forge.hub.name = name, bare.stem
        for variable, value in {
            "GITHUB_API_URL": forge.url, "GITHUB_REPOSITORY": name, "GITHUB_TOKEN": "practice-token",
            "RUNBOOK_REGISTRY": images.url, "RUNBOOK_AUDIT": str(home / "audit"),
        }.items():  # fmt: skip
            patch.setenv(variable, value)
        yield


def execute(notebook: Path, parameters: Mapping[str, Any], output: Path | None = None) -> Ran:
    """Run a notebook; a failed one is a result, too."""
    found: list[Ran] = []

    def report(run: Mapping[str, Any] | None, folder: Path | None, message: str) -> None:
        found.append(Ran(folder, run or {}, message))

    with patch.object(RunbookEngine, "report", staticmethod(report)):
        try:
            execute_notebook(notebook, output, dict(parameters), engine_name="runbook", progress_bar=False)
        except PapermillExecutionError:
            assert not found[0].ok
    return found[0]
