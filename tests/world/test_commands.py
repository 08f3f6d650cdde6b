"""The command line that messages show."""

import pytest

from runbook_lib.pins.bump import Bump
from runbook_lib.world import commands


@pytest.mark.parametrize(
    ("arguments", "notebook", "changes", "words"),
    [
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
    arguments: dict[str, object], notebook: str, changes: dict[str, object], words: str
) -> None:
    bump = Bump.parse(tag="26.04-py3", given=arguments)
    assert commands.command(notebook, bump, **changes) == f"environment/run papermill runbooks/{words}"
