"""The environment's ``papermill`` command: papermill's own, with ``runner.execute`` for the notebooks of this runbook.

papermill parses options and parameters; only its ``execute_notebook`` is replaced.
"""

import difflib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, TextIO

from runbook_lib.errors import RunbookError
from runbook_lib.record.run_file import EXECUTED
from runbook_lib.runner import execute
from runbook_lib.system import startup
from runbook_lib.system.files import make_folder
from runbook_lib.system.output import visible_output
from runbook_lib.system.progress_lines import ProgressLines
from runbook_lib.text.notebook_file import BadParameter, NotebookSource, is_ours, resolve
from runbook_lib.text.redact import Redactor

_DONE, _FAILED, _USAGE, _INTERRUPTED, _TERMINATED = 0, 1, 2, 130, 143
#: Replaces an omitted output path while papermill parses the options.
_NO_OUTPUT = "<the record's folder>"

_PRACTICE = (
    "PRACTICE: without the parameter repo, this run uses the practice environment. Nothing leaves this machine. "
    "For a real bump, name your clone: -r repo PATH"
)


class _Terminated(KeyboardInterrupt):
    """SIGTERM, handled like Ctrl-C but with its own exit status."""


class Report(Protocol):
    """What is printed at the end: the result with the path of the executed notebook, if one was given, or an error."""

    def result(self, result: execute.StepResult, output: Path | None) -> None:
        """Print a result."""

    def error(self, message: str) -> None:
        """Print the message of a RunbookError, which has no secrets any more."""


class _Text:
    """The report in lines, an error on standard error."""

    def result(self, result: execute.StepResult, output: Path | None) -> None:
        _print_result(result, output)

    def error(self, message: str) -> None:
        print(f"papermill: {message}", file=sys.stderr)


def main(argv: list[str], report: Report | None = None) -> int:
    """Run the command and return its exit status: 0 done, waiting or previewed; 1 failed; 2 incorrect usage."""
    shown = report or _Text()
    return _exit_status(lambda: _main(argv, shown), shown)


def run_request(notebook: Path, parameters: Mapping[str, Any], *, shown: str) -> int:
    """Run a notebook for a form, and return the exit status; ``shown`` is as in ``execute.execute``."""

    def run() -> int:
        echo = _Echo(False, {})
        with _cancelling_signals():
            result = execute.execute(notebook, parameters, on_output=echo, shown=shown)
        echo.finish()
        return _DONE if result.ok else _FAILED

    return _exit_status(run, _Text())


def _exit_status(run: Callable[[], int], report: Report) -> int:
    """Call ``run`` and return its exit status; report an error."""
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    startup.restore()
    with visible_output():
        try:
            return run()
        except RunbookError as error:
            report.error(Redactor(os.environ).text(str(error)))
            return _USAGE if isinstance(error, BadParameter) else _FAILED
        except _Terminated:
            return _TERMINATED
        except KeyboardInterrupt:
            return _INTERRUPTED


def _main(argv: list[str], report: Report) -> int:
    import click
    from papermill import cli

    try:
        context = cli.papermill.make_context("papermill", list(argv))
        notebook = context.params.get("notebook_path")
        _require_existing(notebook)
        if not notebook or context.params["help_notebook"] or not is_ours(Path(notebook)):
            status = cli.papermill.main(list(argv), "papermill", standalone_mode=True)
            return status if isinstance(status, int) else _DONE
        return _run_ours(_parsed_call(cli, context), report)
    except click.exceptions.Exit as end:
        return int(end.exit_code)
    except click.ClickException as error:
        error.show()
        return int(error.exit_code)


def _require_existing(notebook: str | None) -> None:
    """Raise BadParameter for a missing notebook; papermill itself would print a traceback."""
    if not notebook or not notebook.endswith(".ipynb") or "://" in notebook or "{" in notebook:
        return
    path = Path(notebook)
    if not path.exists():
        names = sorted(sibling.name for sibling in path.parent.glob("*.ipynb"))
        near = difflib.get_close_matches(path.name, names, n=1)
        hint = f" Did you mean {path.with_name(near[0])}?" if near else ""
        raise BadParameter(f"The notebook {notebook} does not exist.{hint} Nothing was run.")


def _parsed_call(cli: Any, context: Any) -> dict[str, Any]:
    """Return papermill's arguments for ``execute_notebook``, with parameters converted and files read."""
    import yaml

    if not context.params["output_path"]:
        # With only one path, papermill would write to it, or refuse to run in a terminal.
        context.params["output_path"] = _NO_OUTPUT
    call: dict[str, Any] = {}
    original, cli.execute_notebook = cli.execute_notebook, lambda **arguments: call.update(arguments)
    try:
        context.command.invoke(context)
    except yaml.YAMLError as error:
        raise BadParameter(f"The parameters are not valid YAML: {error}. Nothing was run.") from error
    except OSError as error:
        raise BadParameter(f"The parameters file cannot be read: {error}. Nothing was run.") from error
    except (TypeError, ValueError) as error:  # a list instead of a mapping, or invalid base64
        raise BadParameter(
            "The parameters of -f, -y or -b must be YAML with names and values, such as 'tag: 26.04-py3' "
            f"(for -b in base64): {error}. Nothing was run."
        ) from error
    finally:
        cli.execute_notebook = original
    return call


def _run_ours(call: Mapping[str, Any], report: Report) -> int:
    notebook = Path(call["input_path"])
    _require_supported(call)
    source = NotebookSource.read(notebook)
    values = {each.name: each.default for each in source.parameters}
    values |= resolve(source.name, source.parameters, call["parameters"])
    output = _output(call, notebook)
    if call["prepare_only"]:
        return _prepare(call, notebook, output)
    quiet = call["progress_bar"] is False and not call["log_output"]
    if values.get("repo") == "" and not os.environ.get("RUNBOOK_PRACTICE"):
        print(_PRACTICE, file=sys.stderr, flush=True)
    echo = _Echo(quiet, {"stdout": call["stdout_file"], "stderr": call["stderr_file"]})
    with _cancelling_signals():
        result = execute.execute(
            notebook,
            call["parameters"],
            output if output != Path("-") else None,
            cell_timeout=call["execution_timeout"],
            on_output=echo,
            cwd=Path(call["cwd"]).absolute() if call["cwd"] else None,
            start_timeout=call["start_timeout"],
            hide_code=call["report_mode"],
        )
    echo.finish()
    report.result(result, output)
    return _DONE if result.ok else _FAILED


def _require_supported(call: Mapping[str, Any]) -> None:
    """Raise BadParameter for options that this runbook's notebooks do not support."""
    for option, value, usual in (
        ("engine", call["engine_name"], None),
        ("kernel", call["kernel_name"], "python3"),
        ("language", call["language"], "python"),
    ):
        if value not in (None, usual):
            raise BadParameter(
                f"--{option} {value} is not supported: the runbook's notebooks run in their own Python "
                f"environment. Omit --{option}. Nothing was run."
            )
    if call["cwd"] and not Path(call["cwd"]).is_dir():
        raise BadParameter(f"--cwd {call['cwd']} is not a folder. Nothing was run.")


def _output(call: Mapping[str, Any], notebook: Path) -> Path | None:
    """Return the output path with its ``{parameter}`` parts filled in, as papermill does; "-" is standard output."""
    from papermill.exceptions import PapermillMissingParameterException
    from papermill.parameterize import add_builtin_parameters, parameterize_path

    template = call["output_path"]
    if template == _NO_OUTPUT:
        return None
    try:
        text = str(parameterize_path(template, add_builtin_parameters(call["parameters"])))
    except (PapermillMissingParameterException, ValueError, IndexError, KeyError, AttributeError) as error:
        raise BadParameter(f"The output path {template!r} cannot be filled in: {error}. Nothing was run.") from error
    path = Path(text).expanduser()
    if "://" in text:
        raise BadParameter(f"The output {text} is not a path on this machine. Nothing was run.")
    if path.is_dir():
        raise BadParameter(f"The output {path} is a folder: name a file in it. Nothing was run.")
    if path.exists() and (path.is_symlink() or not path.is_file()):
        raise BadParameter(f"The output {path} is a symbolic link or a special file: name another. Nothing was run.")
    if path.exists() and path.samefile(notebook):
        raise BadParameter(f"The output {path} is the notebook itself: name another file. Nothing was run.")
    return path if text == "-" else path.absolute()


def _prepare(call: Mapping[str, Any], notebook: Path, output: Path | None) -> int:
    from papermill.execute import execute_notebook

    if output is None:
        raise BadParameter("--prepare-only requires an output path. Nothing was run.")
    if output != Path("-"):
        make_folder(output.parent)
    execute_notebook(str(notebook), str(output), call["parameters"], prepare_only=True, report_mode=call["report_mode"])
    return _DONE


def _print_result(result: execute.StepResult, output: Path | None) -> None:
    """Print the result, on standard error if standard output is used for the notebook."""
    folder = result.record
    stream = sys.stderr if output == Path("-") else sys.stdout
    print(*result.lines(), sep="\n", file=stream)
    if result.next:
        print(f"Next: {result.next}", file=stream)
    for name, url in result.links.items():
        print(f"{name}: {url}", file=stream)
    if folder is not None:
        if output is None:
            print(f"Executed notebook: {folder / EXECUTED}", file=stream)
        elif output == Path("-"):
            print(json.dumps(json.loads((folder / EXECUTED).read_bytes()), indent=1))
        else:
            print(f"Executed notebook: {output}", file=stream)
        print(f"Record: {folder}", file=stream)
    stream.flush()


class _Echo:
    """Printer of cell output in complete lines, without secrets, on standard error like papermill's progress."""

    def __init__(self, quiet: bool, files: Mapping[str, TextIO | None]) -> None:
        self._quiet, self._files = quiet, files
        self._redactor, self._lines = Redactor(os.environ), ProgressLines()
        #: The incomplete last line.
        self._pending = {"stdout": "", "stderr": ""}
        self._lock = threading.Lock()

    def __call__(self, name: str, text: str) -> None:
        with self._lock:
            lines, newline, rest = (self._pending.get(name, "") + text).rpartition("\n")
            self._pending[name] = rest
            self._show(name, lines + newline)

    def finish(self) -> None:
        """Print the text that is still pending."""
        for name, rest in self._pending.items():
            self._show(name, rest and rest + "\n")

    def _show(self, name: str, text: str) -> None:
        clean = self._redactor.text(text)
        if clean and not self._quiet:
            try:
                self._lines.write(clean)
            except BrokenPipeError:
                self._quiet = True  # nobody is reading; the run continues, and the record has everything
        file = self._files.get(name)
        if clean and file is not None:
            file.write(clean)
            file.flush()


@contextmanager
def _cancelling_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP cancel the run like Ctrl-C.  Under nohup, SIGHUP stays ignored."""
    previous: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if number == signal.SIGTERM or signal.getsignal(number) != signal.SIG_IGN:
                previous[number] = signal.signal(number, _terminate)
    try:
        yield
    finally:
        for changed, handler in previous.items():
            signal.signal(changed, handler)


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise _Terminated
