"""The environment's ``papermill``: papermill's own command line, through run.py for the notebooks of this runbook.

papermill parses its options and types the parameters; only its ``execute_notebook`` is replaced, and only for ours.
"""

import difflib
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from runbook_lib.errors import RunbookError
from runbook_lib.records.statement import EXECUTED
from runbook_lib.runner import execute
from runbook_lib.runner.parameters import BadParameter, Source, is_ours, resolve
from runbook_lib.system import startup
from runbook_lib.system.atomic_files import make_folder
from runbook_lib.text.redact import Redactor
from runbook_lib.text.sanitize import terminal

_DONE, _FAILED, _USAGE, _INTERRUPTED, _TERMINATED = 0, 1, 2, 130, 143
#: Stands for an output path that was not given, until papermill hands it back.
_NO_OUTPUT = "<the record's folder>"

_PRACTICE = (
    "PRACTICE: no repo was given, so this run works in the practice world. Nothing leaves this machine. "
    "For a real bump give your clone: -r repo PATH"
)


class _Terminated(KeyboardInterrupt):
    """SIGTERM: as Ctrl-C, with the exit status that belongs to it."""


def main(argv: list[str]) -> int:
    """Run the command and return its exit status: 0 done, waiting or previewed; 1 failed; 2 wrong usage."""
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    startup.restore()
    with terminal():
        return _told(argv)


def _told(argv: list[str]) -> int:
    try:
        return _main(argv)
    except BadParameter as error:
        print(f"papermill: {Redactor(os.environ).text(str(error))}", file=sys.stderr)
        return _USAGE
    except RunbookError as error:
        print(f"papermill: {Redactor(os.environ).text(str(error))}", file=sys.stderr)
        return _FAILED
    except _Terminated:
        return _TERMINATED
    except KeyboardInterrupt:
        return _INTERRUPTED


def _main(argv: list[str]) -> int:
    import click
    from papermill import cli

    try:
        context = cli.papermill.make_context("papermill", list(argv))
        named = context.params.get("notebook_path")
        _refuse_missing(named)
        if not named or context.params["help_notebook"] or not is_ours(Path(named)):
            return _status(cli.papermill.main(list(argv), "papermill", standalone_mode=True))
        return _run_ours(_typed(cli, context))
    except click.exceptions.Exit as end:
        return int(end.exit_code)
    except click.ClickException as error:
        error.show()
        return int(error.exit_code)


def _status(result: object) -> int:
    return result if isinstance(result, int) else _DONE


def _refuse_missing(named: str | None) -> None:
    """papermill meets a notebook that does not exist with a traceback."""
    if named and named.endswith(".ipynb") and "://" not in named and "{" not in named and not Path(named).exists():
        there = sorted(path.name for path in Path(named).parent.glob("*.ipynb"))
        near = difflib.get_close_matches(Path(named).name, there, n=1)
        hint = f" Did you mean {Path(named).with_name(near[0])}?" if near else ""
        raise BadParameter(f"There is no notebook {named}.{hint} Nothing was run.")


def _typed(cli: Any, context: Any) -> dict[str, Any]:
    """What papermill would call ``execute_notebook`` with: parameters typed, files read."""
    import yaml

    if not context.params["output_path"]:
        # Else papermill takes the one path for the output, or refuses to run on a terminal.
        context.params["output_path"] = _NO_OUTPUT
    call: dict[str, Any] = {}
    original, cli.execute_notebook = cli.execute_notebook, lambda **arguments: call.update(arguments)
    try:
        context.command.invoke(context)
    except yaml.YAMLError as error:
        raise BadParameter(f"The parameters given as YAML cannot be read: {error}. Nothing was run.") from error
    except OSError as error:
        raise BadParameter(f"The parameters file cannot be read: {error}. Nothing was run.") from error
    except (TypeError, ValueError) as error:  # a list where names and values belong; base64 that is none
        raise BadParameter(
            "The parameters given with -f, -y or -b must be YAML of names and values, such as 'tag: 26.04-py3' "
            f"(with -b in base64): {error}. Nothing was run."
        ) from error
    finally:
        cli.execute_notebook = original
    return call


def _run_ours(call: Mapping[str, Any]) -> int:
    notebook = Path(call["input_path"])
    _refuse(call, notebook)
    output = _output(call, notebook)
    if call["prepare_only"]:
        return _prepare(call, notebook, output)
    quiet = call["progress_bar"] is False and not call["log_output"]
    if (call["parameters"].get("repo") or _default(notebook, "repo")) == "" and not os.environ.get("RUNBOOK_PRACTICE"):
        print(_PRACTICE, file=sys.stderr, flush=True)
    echo = _Echo(quiet, {"stdout": call["stdout_file"], "stderr": call["stderr_file"]})
    with _signals():
        result = execute.execute(
            notebook,
            call["parameters"],
            output if output != Path("-") else None,
            cell_timeout=call["execution_timeout"],
            heard=echo,
            cwd=Path(call["cwd"]).absolute() if call["cwd"] else None,
            start_timeout=call["start_timeout"],
            hide_code=call["report_mode"],
            # A form's: it must not reach the notebooks that this run starts.
            shown=os.environ.pop("RUNBOOK_SHOWN", ""),
        )
    echo.finish()
    _tell(result, output)
    return _DONE if result.ok else _FAILED


def _refuse(call: Mapping[str, Any], notebook: Path) -> None:
    """Refuse the options that mean nothing here."""
    for option, value, usual in (
        ("engine", call["engine_name"], None),
        ("kernel", call["kernel_name"], "python3"),
        ("language", call["language"], "python"),
    ):
        if value not in (None, usual):
            raise BadParameter(
                f"--{option} {value} was given, but the runbook's notebooks run in their own environment's Python. "
                f"Leave --{option} out. Nothing was run."
            )
    if call["cwd"] and not Path(call["cwd"]).is_dir():
        raise BadParameter(f"--cwd {call['cwd']} is no folder. Nothing was run.")
    resolve(Source.read(notebook), call["parameters"])


def _output(call: Mapping[str, Any], notebook: Path) -> Path | None:
    """The output path that was given, with its ``{parameter}`` parts filled in as papermill does; "-" is stdout."""
    from papermill.exceptions import PapermillMissingParameterException
    from papermill.parameterize import add_builtin_parameters, parameterize_path

    given = call["output_path"]
    if given == _NO_OUTPUT:
        return None
    try:
        text = str(parameterize_path(given, add_builtin_parameters(call["parameters"])))
    except (PapermillMissingParameterException, ValueError, IndexError, KeyError, AttributeError) as error:
        raise BadParameter(f"The output path {given!r} cannot be filled in: {error}. Nothing was run.") from error
    path = Path(text).expanduser()
    if "://" in text:
        raise BadParameter(f"The output {text} is no path on this machine. Nothing was run.")
    if path.exists() and not path.is_dir() and not (path.is_file() and not path.is_symlink()):
        raise BadParameter(f"The output {path} is a link or no regular file: name another. Nothing was run.")
    if path.is_dir():
        raise BadParameter(f"The output {path} is a folder: name a file in it. Nothing was run.")
    if path.exists() and path.samefile(notebook):
        raise BadParameter(f"The output {path} is the notebook itself: name another file. Nothing was run.")
    return path if text == "-" else path.absolute()


def _prepare(call: Mapping[str, Any], notebook: Path, output: Path | None) -> int:
    from papermill.execute import execute_notebook

    if output is None:
        raise BadParameter("--prepare-only needs an output path. Nothing was run.")
    if output != Path("-"):
        make_folder(output.parent)
    execute_notebook(str(notebook), str(output), call["parameters"], prepare_only=True, report_mode=call["report_mode"])
    return _DONE


def _default(notebook: Path, name: str) -> Any:
    return next((p.default for p in Source.read(notebook).parameters if p.name == name), None)


def _tell(result: execute.StepResult, output: Path | None) -> None:
    """The outcome, on standard output unless that is for the notebook."""
    folder = result.record
    stream = sys.stderr if output == Path("-") else sys.stdout
    print(result.line, file=stream)
    if result.next:
        print(f"Next: {result.next}", file=stream)
    for name, url in result.links.items():
        print(f"{name}: {url}", file=stream)
    if folder is not None:
        if output is None:
            print(f"No output path was given: the executed notebook is {folder / EXECUTED}", file=stream)
        elif output == Path("-"):
            print(json.dumps(json.loads((folder / EXECUTED).read_bytes()), indent=1))
        else:
            print(f"Executed notebook: {output}", file=stream)
        print(f"Record: {folder}", file=stream)
    stream.flush()


_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]{0,60}PRIVATE KEY(?: BLOCK)?-----")
_LONGEST_KEY = 20_000


class _Echo:
    """Shows what cells print as whole lines, without secrets, on standard error as papermill's own progress is."""

    def __init__(self, quiet: bool, files: Mapping[str, TextIO | None]) -> None:
        self._quiet, self._files = quiet, files
        self._redactor = Redactor(os.environ)
        self._begun = {"stdout": "", "stderr": ""}
        self._lock = threading.Lock()

    def __call__(self, name: str, text: str) -> None:
        with self._lock:
            lines, newline, rest = (self._begun.get(name, "") + text).rpartition("\n")
            whole = lines + newline
            # The lines of a private key are known by its first and last: it is shown at once, or as far as it may go.
            end = len(whole)
            if key := _KEY.search(whole, whole.rfind("-----END ") + 1):
                line = whole.rfind("\n", 0, key.start()) + 1
                end = line if len(whole) - line < _LONGEST_KEY else end
            self._begun[name] = whole[end:] + rest
            self._show(name, whole[:end])

    def finish(self) -> None:
        """Show what no newline has ended."""
        for name, rest in self._begun.items():
            self._show(name, rest and rest + "\n")

    def _show(self, name: str, text: str) -> None:
        clean = self._redactor.text(text)
        if clean and not self._quiet:
            try:
                sys.stderr.write(clean)
                sys.stderr.flush()
            except BrokenPipeError:
                self._quiet = True  # whoever read has gone; the run goes on, and the record keeps all
        file = self._files.get(name)
        if clean and file is not None:
            file.write(clean)
            file.flush()


class _signals:  # noqa: N801  (used as a function)
    """While a notebook runs, SIGTERM and a hang-up end it as Ctrl-C does: the record says cancelled.

    A hang-up that is ignored, as under nohup, stays ignored.
    """

    def __enter__(self) -> None:
        self._before: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP):
                if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                    continue
                self._before[number] = signal.signal(number, self._terminate)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @staticmethod
    def _terminate(number: int, frame: FrameType | None) -> None:
        raise _Terminated
