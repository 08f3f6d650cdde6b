"""The help of the command."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from runbook_lib.cli.__main__ import main, runbook

CONTEXT = click.Context(runbook)


def commands(of: click.Command, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(of, click.Group):
        yield names, of
        return
    for name in of.list_commands(CONTEXT):
        found = of.get_command(CONTEXT, name)
        assert found is not None
        yield from commands(found, *names, name)


@pytest.mark.parametrize(("names", "command"), list(commands(runbook)))
def test_the_example_in_the_help_is_a_valid_command(names: tuple[str, ...], command: click.Command) -> None:
    words = shlex.split((command.epilog or "").removeprefix("Example: "))
    words = [word for word in words if not re.match(r"[A-Z_]+=", word)]
    assert words[: len(names) + 1] == ["runbook", *names]
    command.make_context(" ".join(names), words[len(names) + 1 :])


@pytest.mark.parametrize("arguments", [[], ["audit"], ["nosuch"], ["check", "--nosuch"], ["golden", "diff", "one"]])
def test_wrong_usage_is_no_answer(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "Usage: runbook" in capsys.readouterr().err
    assert main([*arguments, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"].keys() == {"message", "fix"}


@pytest.mark.parametrize(
    "words",
    ["check {}", "check . --pins={}/x.yaml", "audit verify {}", "audit add {}", "golden diff {} HEAD", "why {}"],
)  # fmt: skip
def test_the_home_of_an_unknown_user_is_no_traceback(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word.format("~nobody-of-this-name/x") for word in words.split()]) in (1, 2)
    assert "nobody-of-this-name" in "".join(capsys.readouterr())


@pytest.mark.parametrize("arguments", [["--json", "bump"], ["bump", "--json"], ["bump", "-p", "tag", "t", "--json"]])
def test_papermill_gets_the_other_arguments_of_run(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[list[str]] = []
    monkeypatch.setattr("runbook_lib.notebook.papermill.main", lambda given: passed.append(given) or 1)
    assert main(["run", *arguments]) == 1
    assert passed[0][0].endswith("runbooks/bump.ipynb")
    assert passed[0][1:] == (["-p", "tag", "t"] if "tag" in arguments else [])


@pytest.mark.parametrize("text", ["no JSON", '{"cells": 1}', "{}"])
def test_a_file_that_is_no_notebook_is_no_traceback(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.ipynb").write_text(text)
    assert main(["run", str(tmp_path / "x.ipynb"), str(tmp_path / "out.ipynb")]) == 2
    assert capsys.readouterr().err.startswith("papermill: ")


def test_a_deleted_current_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["check", "."]) == 2
    assert "current folder has been deleted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "fix"),
    [("lab /dev/null/x", "Name another folder: runbook lab DIR"), ("run bmp", "Choose from 00-preflight")],
)
def test_an_error_in_json_has_its_fix_apart(words: str, fix: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words.split(), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["fix"].startswith(fix)
    assert error["fix"] not in error["message"]
