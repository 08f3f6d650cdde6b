"""The beginning of a notebook's run: check the parameters, open the checkout and the record."""

import ast
import atexit
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from IPython.display import display as show

from runbook_lib import display, notebooks
from runbook_lib.bump.run import Run
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.notebook import outputs, place, recording, session
from runbook_lib.notebook.place import RunTarget
from runbook_lib.pins.bump import Bump
from runbook_lib.practice.world import PracticeWorld
from runbook_lib.record import archive, decisions, run_file
from runbook_lib.record.recorder import Recorder
from runbook_lib.record.run_file import Identity
from runbook_lib.text import notebook_file
from runbook_lib.text.notebook_file import BadParameter
from runbook_lib.text.redact import Redactor
from runbook_lib.world.machine import provenance

_CHANGED = (
    "The plan has changed since it was shown, because the checkout, its remote or CI has changed. Nothing was done. "
    "Preview again."
)

_MODES = {
    "preview": "preview: nothing is changed",
    "local": "local: the bump's branch is changed in the checkout, and nothing leaves this machine",
    "publish": "publish: the bump's branch is changed, pushed and published",
}
#: The first line of the cell that papermill inserts behind the one with the parameters.
_INJECTED = "# Parameters\n"
#: Parameters that are paths: the next command may be pasted in another folder.
_PATHS = ("repo", "decisions", "site")


def begin(notebook: str, parameters: dict[str, Any]) -> Run:
    """Start a run of ``notebook`` (a file name); ``parameters`` are the notebook's ``globals()``.

    Without ``repo`` the run uses the practice environment, which is created if necessary.  Without ``mode``
    it publishes there, and is a preview elsewhere.  In JupyterLab it shows the form, which starts headless runs,
    and is a preview itself.
    Under nbval it is a preview, too, whatever ``mode`` says.
    Raises RunbookError for an invalid parameter, checkout or record.
    """
    outputs.redact(os.environ)
    if session.interactive():
        _show_form(notebook, parameters)
    given = passed(notebook, session.inputs(), parameters)
    parameters.update(given)  # a number that papermill made of an ID is text again
    target = RunTarget(parameters)
    if target.world and not session.interactive():
        target.world.begin_command()
    mode = parameters.get("mode") or ("publish" if target.practice else "preview")
    if session.interactive() or session.checked():
        mode = "preview"
    bump = target.bump(mode=mode, given=given)
    if not bump.tag and not _changes_without_tag(notebook, parameters):
        bump = replace(bump, mode="preview")
    if bump.apply:
        place.lock(target.checkout)
    record = open_record(notebook, bump, target.identity(bump), given, target.world)
    named = parameters.get("decisions", "")  # without a tag only these count
    file = decisions.path_of(named, record.records if bump.tag else None)
    bump = record.bump = replace(bump, decisions=decisions.read(file, must_exist=bool(named)))
    show(_inputs(bump, target))

    def end() -> None:
        if target.world:
            target.world.write_pages(record.folder)
        end_run(record)

    return Run(bump, target.checkout, record, target.services, end)


def passed(notebook: str, cells: Sequence[str], variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that were passed to this notebook, with their declared types and absolute paths.

    ``cells`` have run so far, and ``variables`` are what they have left.  papermill only warns about a name that the
    notebook does not declare.
    Raises BadParameter for such a name, a value of another type, or one with a secret in it.
    """
    for parameters, cell in pairwise(cells):
        if cell.startswith(_INJECTED):
            names = [node.id for node in ast.walk(ast.parse(cell)) if isinstance(node, ast.Name)]
            given = {name: variables[name] for name in names if name in variables}
            values = notebook_file.resolve(notebook, notebook_file.declared(parameters), given)
            _require_no_secrets(values)
            paths = {name: os.path.abspath(os.path.expanduser(values[name])) for name in _PATHS if values.get(name)}
            return values | paths
    return {}


def _require_no_secrets(values: Mapping[str, Any]) -> None:
    redactor = Redactor(os.environ)
    for name, value in values.items():
        if redactor.data(value) != value:
            raise BadParameter(
                f"The parameter {name} has a secret in it: the value of a variable, a token or a password. papermill "
                "writes parameters into the executed notebook, so remove that file. Secrets come from environment "
                "variables, such as GITHUB_TOKEN. Nothing was run."
            )


def _changes_without_tag(notebook: str, parameters: Mapping[str, Any]) -> bool:
    """Return True for the values of a named run, and for named decisions on tests; all else shows the present state."""
    names = {notebooks.GOLDEN_VALUES: "run_id", notebooks.BROKEN_TESTS: "decisions"}
    return bool(parameters.get(names.get(notebook, "")))


def _show_form(notebook: str, parameters: Mapping[str, object]) -> None:
    """Show the notebook's form; on the start page that of a bump, below the board."""
    from runbook_lib.notebook import form, start  # a headless run does without them

    if notebook == notebooks.START:
        start.show_board()
        form.show(notebooks.BUMP, parameters, start.refresh_board)
    else:
        form.show(notebook, parameters)


def end_run(record: Recorder) -> None:
    """Close the record.  Raises Refused for a plan that was computed again, and is not the one that was shown."""
    planned = run_file.fingerprint(record.run)
    if os.environ.get(session.SHOWN, planned) != planned:
        raise Refused(_CHANGED)
    recording.end(record)
    if record.folder and not os.environ.get(recording.ENGINE):
        print("To add the executed notebook to its record: runbook audit add OUTPUT.ipynb")


def open_record(
    name: str, bump: Bump, identity: Identity, given: Mapping[str, object], practice: PracticeWorld | None = None
) -> Recorder:
    """Open the record of the notebook ``name``, to which the parameters ``given`` were passed.

    In JupyterLab nothing is recorded, and neither is the plan that is computed again before it is applied.
    Raises RunbookError for a record that cannot be written.
    """
    root = archive.default()
    if session.interactive() or session.SHOWN in os.environ:
        return Recorder(name, bump, records=root.joinpath(*identity.parts))
    engine = provenance.process(os.getppid()) if os.environ.get(recording.ENGINE) else None
    folder = archive.begin(root, identity, name, given, engine=engine)
    print(f"Record: {folder.name}")
    atexit.register(recording.end_killed, folder)
    record = Recorder(name, bump, folder, run_file.read(folder))

    def fail(error: BaseException, cell: int) -> None:
        try:
            if practice:
                practice.write_pages(folder)
            recording.end(record, _failure(name, error, cell))
        except RunbookError as unwritten:  # the cell has already shown its own error
            print(unwritten, file=sys.stderr)

    outputs.on_failure(fail)
    return record


def _failure(notebook: str, error: BaseException, cell: int) -> dict[str, object]:
    """Describe a failed cell for the record."""
    name, message = type(error).__name__, str(error)
    if isinstance(error, KeyboardInterrupt):
        sentence = "The run was interrupted."
    elif isinstance(error, RunbookError):
        sentence = f"{message} ({notebook}, cell {cell})"
    else:
        last_line = message.strip().rpartition("\n")[2]
        sentence = f"{notebook}, cell {cell} raised {name}: {last_line}. The executed notebook has the traceback."
    return {"cell": cell, "name": name, "message": message, "sentence": sentence}


def _inputs(bump: Bump, target: RunTarget) -> display.View:
    """Return the checked parameters, preceded by a notice below a form and in the practice environment."""
    facts = display.mapping({
        "tag": bump.tag, "image type": bump.image_type, "base": bump.base, "remote": bump.remote,
        "checkout": target.checkout.path, "repository": target.checkout.repository(),
        "pins of": bump.repository.origin or bump.repository.name, "decisions": bump.decisions.file,
        "mode": _MODES[bump.mode],
    })  # fmt: skip
    if session.interactive():
        return display.note("The cells below preview these values of the notebook, not those of the form:") + facts
    if not target.practice:
        return facts
    notice = "PRACTICE: nothing here is real, and nothing leaves this machine."
    return display.View(f"<p><strong>{notice}</strong></p>", notice) + facts
