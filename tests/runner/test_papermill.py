"""The environment's papermill command, as people and scripts type it."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from small_runbooks import command, environ, notebook, outputs, papermill, records, shared_kernel, warm  # noqa: F401

from runbook_lib.record import run_file
from runbook_lib.runner import execute
from runbook_lib.runner import papermill as papermill_command


@pytest.fixture
def runbooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout's ``runbooks`` with one notebook; the archive is beside it."""
    notebook(
        tmp_path / "runbooks" / "01-pin.ipynb",
        "print('hello', tag, mode, run_id)\nstep.warn(*['The tag was not\\nverified.'] * bool(tag))",
        "step.done('4 lines changed.')",
    )
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/r")
    return tmp_path / "runbooks"


def on_a_terminal(*arguments: object, cwd: Path) -> tuple[int, str]:
    """Run it on a terminal of its own; exit status and all that the terminal showed."""
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        command(*arguments), cwd=cwd, env=environ(), stdin=terminal, stdout=terminal, stderr=terminal
    ) as process:
        os.close(terminal)
        shown = b""
        while True:
            try:
                piece = os.read(controller, 65536)
            except OSError:  # how Linux says that the other side is closed
                break
            if not piece:
                break
            shown += piece
    os.close(controller)
    return process.returncode, shown.decode().replace("\r\n", "\n")


def unpiped(*arguments: object, cwd: Path) -> tuple[int, str]:
    code, out, err = papermill(*arguments, cwd=cwd)
    return code, err + out


@pytest.mark.parametrize("way", [on_a_terminal, unpiped])
def test_runs_without_an_output_path(runbooks: Path, way: Callable[..., tuple[int, str]]) -> None:
    before = (runbooks / "01-pin.ipynb").read_bytes()
    code, shown = way("01-pin.ipynb", "-p", "tag", "26.04-py3", cwd=runbooks)
    assert code == 0, shown
    (folder,) = records(runbooks.parent / "audit")
    assert ("\x1b[33m⚠ done\x1b[0m" in shown) == (way is on_a_terminal)
    assert re.sub(r"\x1b\[[0-9]+m", "", shown).splitlines() == [
        "hello 26.04-py3 local ",
        "⚠ done  01-pin: 4 lines changed.",
        "    ⚠ The tag was not verified.",
        f"Executed notebook: {folder / 'executed.ipynb'}",
        f"Record: {folder}",
    ]
    assert outputs(folder / "executed.ipynb") == ["hello 26.04-py3 local \n"]
    assert [path.name for path in runbooks.iterdir()] == ["01-pin.ipynb"]
    assert (runbooks / "01-pin.ipynb").read_bytes() == before


def test_an_output_with_parameters_in_its_name_in_a_new_folder(runbooks: Path, tmp_path: Path) -> None:
    code, out, err = papermill(
        "runbooks/01-pin.ipynb", "out of it/{tag}/a.ipynb", "-r", "tag", "26.04-py3", "-p", "run_id", "0123",
        "--no-progress-bar", "--stdout-file", "printed", cwd=tmp_path,
    )  # fmt: skip
    assert (code, err) == (0, "")
    output = tmp_path / "out of it" / "26.04-py3" / "a.ipynb"
    assert f"Executed notebook: {output}" in out
    assert outputs(output) == ["hello 26.04-py3 local 123\n"]
    assert (tmp_path / "printed").read_text() == "hello 26.04-py3 local 123\n"
    assert [run_file.read(folder)["parameters"]["given"] for folder in records(tmp_path / "audit")] == [
        {"tag": "26.04-py3", "run_id": 123}
    ]


def test_a_dash_puts_the_notebook_alone_on_standard_output(runbooks: Path) -> None:
    code, out, err = papermill("01-pin.ipynb", "-", cwd=runbooks)
    assert code == 0
    assert json.loads(out)["nbformat"] == 4
    assert "4 lines changed." in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-p", "tga", "26.04-py3"], "'tga'. Did you mean tag?"),
        (["-p", "tag", "26.10"], "-r tag '26.10'"),
        (["-p", "wait", "yes"], "-p wait True"),
        (["-y", "{tag: 26.10}"], "in YAML tag: '26.10'"),
        (["-y", "[1"], "YAML"),
        (["-y", "[1]"], "YAML with names and values"),
        (["-b", "a"], "YAML with names and values"),
        (["-f", "none.yaml"], "none.yaml"),
        (["-k", "julia"], "--kernel julia"),
        (["--engine", "noteable"], "--engine noteable"),
        (["--cwd", "/nowhere"], "--cwd /nowhere"),
        (["--inject-paths"], "'PAPERMILL_INPUT_PATH'"),
        (["--prepare-only"], "--prepare-only"),
        (["01-pin.ipynb"], "is the notebook itself"),
        (["."], "is a folder"),
        (["/dev/null"], "/dev/null is a symbolic link"),
        (["s3://bucket/a.ipynb"], "s3://bucket/a.ipynb"),
        (["{nothing}.ipynb"], "cannot be filled in"),
        (["--no-such-option"], "No such option"),
    ],
)
def test_wrong_usage_runs_nothing(
    runbooks: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(runbooks)
    monkeypatch.setattr(execute, "execute", None)
    assert papermill_command.main(["01-pin.ipynb", *arguments]) == 2
    told = capsys.readouterr()
    assert (words in told.err, told.out) == (True, "")
    assert not (runbooks.parent / "audit").exists()


def test_a_misspelt_notebook_is_reported(
    runbooks: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(runbooks)
    assert papermill_command.main(["01-pins.ipynb", "out.ipynb"]) == 2
    assert "The notebook 01-pins.ipynb does not exist. Did you mean 01-pin.ipynb?" in capsys.readouterr().err


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (
            "raise RunbookError('No such tag. Take another.')",
            "✗ failed  01-pin: No such tag. Take another. (01-pin, cell",
        ),
        ("1 / 0", "raised ZeroDivisionError: division by zero. The traceback is in the record."),
    ],
)
def test_a_failure_is_a_sentence_and_status_1(
    runbooks: Path, capsys: pytest.CaptureFixture[str], cell: str, words: str
) -> None:
    path = notebook(runbooks / "01-pin.ipynb", cell)
    assert papermill_command.main([str(path)]) == 1
    told = capsys.readouterr()
    assert words in told.out
    assert "Record: " in told.out
    assert "Traceback" not in told.out + told.err


@pytest.mark.usefixtures("warm")
def test_an_archive_that_cannot_be_written_is_a_sentence_and_status_1(
    runbooks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (runbooks.parent / "audit").write_text("")
    assert papermill_command.main([str(runbooks / "01-pin.ipynb")]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"papermill: {runbooks.parent / 'audit'}")
    assert "could not be written" in told.err
    assert len(told.err.splitlines()) == 1


@pytest.mark.usefixtures("warm")
def test_options_that_change_how_it_runs(runbooks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = notebook(runbooks / "01-pin.ipynb", "print(os.getcwd(), os.environ['RUNBOOK_CELL_LIMIT'])\nstep.done('x')")
    arguments = ["--cwd", str(tmp_path), "--execution-timeout", "77", "--report-mode", "-k", "python3", "--log-output"]
    assert papermill_command.main([str(path), *arguments]) == 0
    (folder,) = records(tmp_path / "audit")
    assert outputs(folder / "executed.ipynb")[0] == f"{tmp_path} 77\n"
    cells = json.loads((folder / "executed.ipynb").read_bytes())["cells"]
    assert all(cell["metadata"]["jupyter"]["source_hidden"] for cell in cells if cell["cell_type"] == "code")


def test_any_other_notebook_is_papermills_own_affair(tmp_path: Path) -> None:
    notebook(tmp_path / "plain.ipynb", "print(tag)", step=None)
    code, _, err = papermill("plain.ipynb", "out.ipynb", "-p", "tga", "x", cwd=tmp_path)
    assert code == 0
    assert "Passed unknown parameter: tga" in err
    assert outputs(tmp_path / "out.ipynb") == ["\n"]
    assert not (tmp_path.parent / "audit").exists()


def test_a_second_interruption_still_closes_the_record(runbooks: Path, tmp_path: Path) -> None:
    notebook(
        runbooks / "01-pin.ipynb",
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); open('begun', 'w').close(); time.sleep(600)",
    )
    with subprocess.Popen(command("01-pin.ipynb"), cwd=runbooks, env=environ(), stdin=subprocess.DEVNULL) as process:
        while not (runbooks / "begun").exists():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        try:
            process.wait(0.2)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        process.wait(120)
    assert process.returncode == 130
    assert [run_file.read(folder)["state"] for folder in records(tmp_path / "audit")] == ["interrupted"]


def test_the_command_imports_nothing_that_only_its_kernel_needs() -> None:
    code = "import sys, runbook_lib.runner.papermill, papermill.cli\nprint([n for n, m in sys.modules.items() if m])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'papermill.cli'" in loaded
    for module in ("runbook_lib.pins", "runbook_lib.bump", "runbook_lib.forms", "rfc3986_validator", "rfc3987_syntax"):
        assert f"'{module}'" not in loaded
