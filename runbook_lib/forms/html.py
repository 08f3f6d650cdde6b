"""HTML for a run in a form: the plan, the progress and the result."""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from runbook_lib import display
from runbook_lib.forms import fields
from runbook_lib.records.cards import Card, Option
from runbook_lib.records.run_view import RunView

#: The most lines of a diff that is shown unfolded, and the most lines of a diff that are shown.
_SHORT_DIFF, _LONGEST_DIFF = 120, 2000
FAILED = "failed"
#: A line of output with the result of a step, or with one of its warnings.
_STEP_RESULT = re.compile(rf"(?:{'|'.join(map(re.escape, display.MARKS.values()))})  \S{{1,80}}:| *{display.WARNING} ")


def error(sentence: str) -> str:
    """Return a prominent error message.  Empty if the sentence is."""
    return _markup("error", sentence)


def problem(sentence: str) -> str:
    """Return a problem with the field above.  Empty if the sentence is."""
    return _markup("problem", sentence)


def hint(sentence: str) -> str:
    """Return a hint about the field above.  Empty if the sentence is."""
    return _markup("hint", sentence)


def card(shown: Card) -> str:
    """Return the evidence of a decision."""
    return _markup("card", shown)


def card_state(option: Option | None, reason: str, missing: str) -> str:
    """Return what has been decided on a card, or a sentence on what is ``missing``."""
    return _markup("card_state", option, reason, missing)


def open_cards(total: int, undecided: int) -> str:
    """Return the number of decisions, and of those without an answer."""
    return _markup("open_cards", total, undecided)


def plan(run: RunView, *, publish: bool, practice: bool, open_cards: int = 0) -> str:
    """Return the actions of *Apply*, the diffs of the files, and the results of each step."""
    actions: dict[bool, list[str]] = {False: [], True: []}
    for effect in run.planned:
        actions[bool(effect["publish"])].append(str(effect["sentence"]))
    diffs, data = [], []
    for text in run.diffs:
        code = ""
        for file in _split_files(text):
            if _is_data(file):
                data.append(_summary(file))
            else:
                code += file
        if code:
            diffs.append(_diff(code))
    steps = [(step, _trusted(step.plan_html())) for step in run.steps]
    outputs = _trusted("" if steps else run.plan_html())
    return _markup(
        "plan", run, publish, practice, open_cards, actions[False], actions[True], _warnings(run), diffs, data, steps,
        outputs,
    )  # fmt: skip


def progress_label(run: RunView | None, total: int) -> str:
    """Return a run's progress for screen readers, in words that change only when a step ends."""
    if not total:
        return "running"
    return f"{_count_ended(_newest_steps(run))} of {total} steps done"


def progress(run: RunView | None, output: str, seconds: float, total: int = 0) -> str:
    """Return the steps so far, one bar, and the last line of output since the last step ended.

    The bar counts CI jobs while a step follows CI, otherwise steps if their total is known.
    """
    steps = _newest_steps(run)
    last = ""
    for line in output.splitlines():
        if _STEP_RESULT.match(line):  # it would repeat the list of steps
            last = ""
        elif line.strip():
            last = line.strip()
    ended, unit = _count_ended(steps), "steps"
    following = next((each.progress for each in (*steps, run) if each and each.progress), None)
    if following:
        ended, total, unit = following["done"], following["total"], "jobs"
    minutes, rest = divmod(int(seconds), 60)
    elapsed = f"{minutes} min {rest} s".removeprefix("0 min ")
    return _markup("progress", steps, ended, total, unit, elapsed, last)


def result(run: RunView, *, open_cards: int = 0) -> str:
    """Return the outcome of a run: its sentence, the next action, links, each step, and the location of the record.

    The sentence of a failed run is left out: the error above shows it.  ``open_cards`` is the number of decisions
    that the form requests.
    """
    following = fields.in_form(run.next, run.notebook, run.parameters)
    if open_cards and run.state != "done":
        following = "Make the decisions listed above, then preview again."
    rows = []
    for step in _newest_steps(run):
        if run.state != FAILED or step.sentence not in run.sentence:
            outcome = display.mark(step.state, step.warnings)
            rows.append({"step": step.notebook, "outcome": outcome, "result": step.sentence})
    table = _trusted(display.table(rows).html if rows else "")
    pages = {"Its report": _raw_address(run.report)}
    return _markup("result", run, following, table, _warnings(run), pages)


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
    return str(getattr(_macros(), macro)(*values))


@cache
def _macros() -> Any:
    """Return the macros of the form's template, which escape their values."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["linked"] = lambda text: Markup(display.linked(str(text)))
    environment.globals["mark"] = display.mark
    return environment.get_template("form.html").module


def _trusted(markup: str) -> str:
    from markupsafe import Markup

    return Markup(markup)


def _warnings(run: RunView) -> list[str]:
    """Return the warnings of a run or of its steps."""
    return [warning for step in _newest_steps(run) or (run,) for warning in step.warnings]


def _newest_steps(run: RunView | None) -> list[RunView]:
    """Return the steps so far, each once, with the warnings that none before it has.

    A step may run once per round of CI, and several may find the same.
    """
    newest = {step.notebook: step for step in (run.steps if run else ())}
    known: set[str] = set()
    steps = []
    for step in newest.values():
        steps.append(replace(step, warnings=tuple(warning for warning in step.warnings if warning not in known)))
        known.update(step.warnings)
    return steps


def _count_ended(steps: Iterable[RunView]) -> int:
    return sum(step.is_closed for step in steps)


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
    signs = Counter(line[:1] for line in file_diff.splitlines()[2:])
    return f"{_file_name(file_diff)}: {display.count(signs['+'], 'line')} added, {signs['-']} removed"


def _file_name(file_diff: str) -> str:
    """Return the file's name after the change; for a removed file, its name before."""
    before, after = (line[4:].partition("\t")[0].strip() for line in [*file_diff.splitlines(), "", ""][:2])
    name = before if after == "/dev/null" else after
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
