"""The fields of a notebook's form: labels, choices, and validation of typed values.  Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook_lib import notebooks
from runbook_lib.checks import Next
from runbook_lib.errors import RunbookError
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import MEGATRON_LM, Repository
from runbook_lib.text.notebook_file import Parameter

#: Labels by parameter; other parameters are labelled with their names.
LABELS = {
    "tag": "Tag", "repo": "Checkout", "image_type": "Image type", "base": "Base branch", "remote": "Push to",
    "decisions": "File of decisions",
    "mode": "Apply", "wait": "Wait for CI",
    "run_id": "CI run", "source": "Source",
    "place": "Where",
    "task": "Task", "where": "Runs", "image": "Image", "tests": "Tests",
    "how": "How", "arguments": "Arguments",
    "site": "Site file", "jobs": "Jobs",
    "good": "Last good tag", "test": "Test", "metric": "Metric", "budget": "Runs at most",
}  # fmt: skip
#: Seldom needed, so hidden at first.
SELDOM = (
    "remote", "decisions", "source",
    "jobs",
)  # fmt: skip
#: The values of fields with a fixed choice, and their labels; `choices` has two more.
_CHOICES: Mapping[str, Mapping[str, str]] = {
    "image_type": {"dev": "dev: what CI runs in by default", "lts": "lts: the long-term image"},
    "mode": {"": "here only: nothing leaves this machine", "publish": "publish: push, pull request, labels, comments"},
    "source": {"github": "GitHub, then GitLab", "gitlab": "GitLab only"},
    "how": {
        "build": "build: the image of this checkout",
        "stack": "stack: fw-base, Megatron-Bridge and fw-final, each built on the previous one",
        "pull": "pull: the image that internal CI built",
    },
}
_COMMON = ("tag", "image_type", "base", "remote")
_LTS = "LTS pins rarely move, and a maintainer decides when. Do you really mean the LTS image?"


_ADDRESS = r"(?:https?|file)://\S{1,300}/(?:actions/runs|pull|pipelines)/[0-9]{1,18}(?![0-9])\S{0,300}"
#: The number or address of a run, a pull request or a pipeline, or a branch.
_RUN = rf"#?[0-9]{{1,18}}|{_ADDRESS}|[A-Za-z_][A-Za-z0-9._/+-]{{0,200}}"


@dataclass(frozen=True)
class Field:
    """A field.  ``help`` is the comment in the parameters cell; a ``seldom`` field is hidden at first."""

    name: str
    label: str
    help: str
    default: str | bool
    seldom: bool


def fields(parameters: Iterable[Parameter]) -> tuple[Field, ...]:
    """Return the form fields for a notebook's parameters, in the same order."""
    visible = list(parameters)
    seldom: tuple[str, ...] = SELDOM
    if {"decisions", "wait", "run_id"} <= {parameter.name for parameter in visible}:
        seldom = (*SELDOM, "run_id")  # the bump notebook, which hides the parameters of single steps
    result = []
    for parameter in visible:
        name = parameter.name
        result.append(Field(name, LABELS.get(name, name), parameter.help, parameter.default, name in seldom))
    return tuple(result)


def choices(name: str) -> Mapping[str, str]:
    """Return the labels of a field's values; none for a field that takes any text."""
    if name not in ("task", "where"):
        return _CHOICES.get(name, {})
    # Imported for these fields only: every form waits for what is imported above.
    from runbook_lib.compute.tasks import TABLE, TASKS

    if name == "task":
        return {task: f"{task}: {text}" for task, text in TASKS.items()}
    return {"": "(what this machine has)"} | {target: f"{target}: {text}" for target, text in TABLE["where"].items()}


def problem(name: str, value: str | bool, repository: Repository = MEGATRON_LM) -> str:
    """Return the problem of a value, as a sentence; empty if it is valid.  ``repository`` defines its tags."""
    if isinstance(value, bool):
        return ""
    if not value.isprintable():
        return f"{value!r} contains an invisible character. Type the value again."
    try:
        if name in _COMMON:
            given: Any = {name: value}
            Bump.parse(**given, repository=repository)
    except RunbookError as error:
        return str(error)
    if name == "run_id":
        return _run_problem(value)
    if name in ("repo", "decisions"):
        return _path_problem(value)
    return ""


def in_form(following: Next, notebook: str, values: Mapping[str, object]) -> str:
    """Return what comes next in the form of ``notebook``, which has these values: what to press instead of commands."""
    name = following.notebook
    changes = {each: value for each, value in following.parameters.items() if values.get(each) != value}
    filled_in = ", ".join(f"{LABELS.get(each, each)}: {value}" for each, value in changes.items())
    action = ""
    if name == notebooks.REVIEW:
        action = "Decide on the cards above, then press Preview and Apply."
    elif name == notebook:
        action = f"{f'Choose {filled_in}. ' if filled_in else ''}Press Preview, then Apply."
    elif name:
        action = f"Open {name}{' with ' if filled_in else ''}{filled_in}."
    return f"{following.because} {action}".strip()


def advice(name: str, value: str | bool) -> str:
    """Return advice on a value, which blocks nothing; empty if there is none."""
    return _LTS if (name, value) == ("image_type", "lts") else ""


def _run_problem(value: str) -> str:
    text = value.strip()
    if not text or re.fullmatch(_RUN, text):
        return ""
    return f"{value!r} names no CI run. Enter its number or URL, a pull request (#12) or a branch, or leave this empty."


def _path_problem(value: str) -> str:
    try:
        Path(value).expanduser()
    except RuntimeError:
        return f"{value!r} starts with the home folder of a user who does not exist on this machine."
    return ""
