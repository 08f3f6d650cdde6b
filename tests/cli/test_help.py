"""The help of the command, and completion in shells."""

import argparse
import shlex
import shutil
import subprocess

import pytest

from runbook_lib.cli.__main__ import main
from runbook_lib.cli.parser import parser


def _commands(of: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


@pytest.mark.parametrize("name", _commands(parser()))
def test_an_example_in_the_help_is_a_valid_command(name: str) -> None:
    command = _commands(parser())[name]
    examples = [each.epilog or "" for each in (command, *_commands(command).values())]
    examples = [example.removeprefix("Example: runbook ") for example in examples if "Example: runbook " in example]
    assert examples or "Example" in (command.epilog or "")
    for example in examples:
        assert parser().parse_args(shlex.split(example.partition(" > ")[0])).command == name


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    ask = "COMP_WORDS=(runbook che); COMP_CWORD=1; _shtab_runbook; echo ${COMPREPLY[@]}"
    asked = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=False)
    assert asked.stdout.split() == ["check"]
