"""HTML for a run in a form: the plan, the progress and the result."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from runbook_lib import display
from runbook_lib.forms import next_action
from runbook_lib.records.pages.html import macros
from runbook_lib.records.run_view import RunView

#: The most lines of a diff that is shown unfolded, and the most lines of a diff that are shown.
_SHORT_DIFF, _LONGEST_DIFF = 120, 2000
FAILED = "failed"
#: The number of finished CI jobs in a line of output.
_JOBS = re.compile(r"\b(\d{1,6}) of (\d{1,6}) jobs done")


def error(sentence: str) -> str:
    """Return a prominent error message.  Empty if the sentence is."""
    return _markup("error", sentence)


def problem(sentence: str) -> str:
    """Return a problem with the field above.  Empty if the sentence is."""
    return _markup("problem", sentence)


def hint(sentence: str) -> str:
    """Return a hint about the field above.  Empty if the sentence is."""
    return _markup("hint", sentence)


def folded(summary: str, content: str) -> str:
    """Return long HTML ``content`` folded behind a one-line summary.  Empty if the content is."""
    return _markup("folded", summary, _trusted(content))


def plan(run: RunView, *, publish: bool, practice: bool, open_cards: int = 0) -> str:
    """Return the actions of *Apply*, the diffs of the files, and the results of each step."""
    local = [str(effect["sentence"]) for effect in run.planned if not effect["publish"]]
    public = [str(effect["sentence"]) for effect in run.planned if effect["publish"]]
    diffs = []
    data: list[str] = []
    for text in run.diffs:
        files = _split_files(text)
        data += [_summary(file) for file in files if _is_data(file)]
        if code := "".join(file for file in files if not _is_data(file)):
            diffs.append(_diff(code))
    steps = [(step, _trusted(step.plan_html())) for step in run.steps]
    outputs = "" if run.steps else _trusted(run.plan_html())
    return _markup("plan", run, publish, practice, open_cards, local, public, diffs, data, steps, outputs)


def progress_label(run: RunView | None, total: int) -> str:
    """Return a run's progress for screen readers, in words that change only when a step ends."""
    ended = _ended_steps(run)
    if total and ended <= total:
        return f"{ended} of {total} steps done"
    return "running"


def progress(run: RunView | None, output: str, seconds: float, total: int = 0) -> str:
    """Return the steps so far, one bar, and the last line of the output.

    The bar counts CI jobs while the last line mentions them, otherwise steps if their total is known.
    """
    steps = run.steps if run else ()
    # Lines with the result of a step would repeat the list of steps.
    listed = tuple(f"{mark}  {step.notebook}:" for step in steps for mark in display.MARKS.values())
    lines = [line for line in output.splitlines() if not line.startswith(listed)]
    last = next((line for line in reversed(lines) if line.strip()), "")
    ended, unit = _ended_steps(run), "steps"
    if jobs := _JOBS.search(last):
        ended, total, unit = int(jobs[1]), int(jobs[2]), "jobs"
    minutes, rest = divmod(int(seconds), 60)
    elapsed = f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return _markup("progress", steps, ended, total, unit, elapsed, last)


def result(run: RunView, *, has_cards: bool = False) -> str:
    """Return the outcome of a run: its sentence, the next action, links, each step, and the location of the record.

    The sentence of a failed run is left out: the error above shows it.  ``has_cards``: the form requests decisions.
    """
    following = _next_in_form(run, has_cards=has_cards)
    newest = {step.notebook: step for step in run.steps}  # a step may run once per round of CI
    if run.state == FAILED:
        newest = {name: step for name, step in newest.items() if step.sentence not in run.sentence}
    steps = display.table(
        {"step": step.notebook, "outcome": display.MARKS.get(step.state, step.state), "result": step.sentence}
        for step in newest.values()
    )
    table = _trusted(steps.html) if newest else ""
    return _markup("result", run, following, table, _raw_address(run.report))


def _next_in_form(run: RunView, *, has_cards: bool) -> str:
    """Return the next action, naming the form's buttons instead of the command to run the same notebook again."""
    if has_cards and run.state != "done":
        return "Make the decisions listed above, then preview again."
    return next_action.in_form(run.next, run.notebook)


def _raw_address(file: Path) -> str:
    """Return the URL at which this kernel's Jupyter server serves a file unchanged; empty if there is none.

    A relative URL would open the file in JupyterLab's editor.
    """
    from jupyter_core.paths import jupyter_runtime_dir

    server_file = Path(jupyter_runtime_dir(), f"jpserver-{os.environ.get('JPY_PARENT_PID')}.json")
    try:
        server = json.loads(server_file.read_bytes())
        path = file.absolute().relative_to(server["root_dir"])
        return quote(f"{server['base_url']}files/{path.as_posix()}")
    except (OSError, ValueError, KeyError, TypeError):  # no Jupyter server, or a file outside its folder
        return ""


def _markup(macro: str, *values: object) -> str:
    return str(getattr(macros("form.html", __package__), macro)(*values))


def _trusted(markup: str) -> str:
    from markupsafe import Markup

    return Markup(markup)


def _ended_steps(run: RunView | None) -> int:
    return sum(step.is_closed for step in run.steps) if run else 0


def _split_files(text: str) -> list[str]:
    """Split a diff into the diffs of single files."""
    parts: list[list[str]] = [[]]
    lines = text.splitlines(keepends=True)
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("--- ") and following.startswith("+++ "):
            parts.append([])
        parts[-1].append(line)
    return ["".join(part) for part in parts if part]


def _is_data(file_diff: str) -> bool:
    """Return True for the diff of a golden file: people read its verdict, not thousands of numbers."""
    name = _file_name(file_diff)
    return name.endswith(".json") and Path(name).name.startswith("golden_values")


def _summary(file_diff: str) -> str:
    """Return the name of a diff's file, and the number of changed lines."""
    lines = file_diff.splitlines()[2:]
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    return f"{_file_name(file_diff)}: {display.count(added, 'line')} added, {removed} removed"


def _file_name(file_diff: str) -> str:
    """Return the file's name after the change; for a removed file, its name before."""
    names = [line[4:].partition("\t")[0].strip() for line in file_diff.splitlines()[:2]]
    name = next((name for name in reversed(names) if name != "/dev/null"), "")
    return name.removeprefix("a/").removeprefix("b/")


def _diff(text: str) -> Mapping[str, Any]:
    lines = text.splitlines(keepends=True)
    names = [line[4:].partition("\t")[0].removeprefix("b/").rstrip("\r\n") for line in lines if line.startswith("+++ ")]
    return {
        "files": list(dict.fromkeys(names)),
        "rows": _trusted(display.diff("".join(lines[:_LONGEST_DIFF])).html),
        "omitted": max(len(lines) - _LONGEST_DIFF, 0),
        "is_short": len(lines) <= _SHORT_DIFF,
    }
