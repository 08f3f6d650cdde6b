"""The help of the command."""

import argparse
import shlex
from pathlib import Path

import pytest

from runbook_lib.cli.__main__ import main
from runbook_lib.cli.parser import leaves, parser


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


def test_every_command_takes_verbose() -> None:
    for name, command in leaves(parser()):
        assert "--verbose" in command.format_help(), name


@pytest.mark.parametrize(("command", "status"), [(["check"], 0), (["image", "driver", "26.04-py3"], 1)])
def test_quiet_prints_what_a_person_must_see(
    command: list[str], status: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runbook_lib.cli.check.command", lambda _: print("shown") or status)
    monkeypatch.setattr("runbook_lib.cli.image.command_driver", lambda _: print("shown") or status)
    assert main([*command, "--quiet"]) == status
    assert capsys.readouterr().out == ("shown\n" if status else "")


@pytest.mark.parametrize("arguments", [["-q", "x.ipynb"], ["x.ipynb", "-q"], ["x.ipynb", "-r", "tag", "t", "--quiet"]])
def test_a_quiet_run_prints_nothing_if_it_succeeds(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[list[str]] = []
    monkeypatch.setattr(
        "runbook_lib.notebook.papermill.main", lambda given: print("shown") or passed.append(given) or 0
    )
    assert main(["run", *arguments]) == 0
    assert capsys.readouterr().out == ""
    assert passed[0][:2] == ["x.ipynb", "--no-progress-bar"]
    assert not {"-q", "--quiet"} & set(passed[0])


def test_verbose_shows_where_an_error_came_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option, has_traceback in ((), False), (("--verbose",), True):
        assert main(["check", str(tmp_path / "missing"), *option]) == 2
        assert ("Traceback" in capsys.readouterr().err) == has_traceback
