"""The tasks that belong inside the image: the table ``tasks.toml``, and how its rows become commands.  Pure.

Both projects build and develop inside containers, and always with uv: CUDA, PyTorch and packages compiled against them
come from the image; another machine would resolve, build and lock different packages.
"""

import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

from runbook_lib.errors import Refused, RunbookError

TABLE: Mapping[str, Any] = tomllib.loads((files("runbook_lib.compute") / "tasks.toml").read_text("utf-8"))
#: The values of the notebook's parameter ``task``, with descriptions.
TASKS: Mapping[str, str] = {name: row["is"] for name, row in TABLE["tasks"].items() if "is" in row}
#: Paths of a checkout whose existence is a fact.
FILES: tuple[str, ...] = tuple(TABLE["files"])
#: Facts about a checkout, a place and the task's arguments, by their names in the table.
Values = Mapping[str, str | bool | Sequence[str]]


@dataclass(frozen=True)
class WorkStep:
    """One command of a task, run on the host or in the container.

    ``reason`` is one or more sentences; ``env`` has variables by name.  A step that needs a ``terminal`` is only shown.
    """

    title: str
    command: tuple[str, ...]
    place: Literal["host", "container"] = "host"
    reason: str = ""
    gpus: bool = False
    terminal: bool = False
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """The command, ready to paste into a shell."""
        return shlex.join(self.command)


@dataclass(frozen=True)
class TaskPlan:
    """The steps of a task; ``idle`` says why there is nothing to do, and ``next`` what is left to the user."""

    steps: tuple[WorkStep, ...] = ()
    idle: str = ""
    next: str = ""
    warnings: tuple[str, ...] = ()


def plan_task(name: str, values: Values) -> TaskPlan:
    """Return the plan of a row of the table.  Raises Refused, with the row's own sentence."""
    row = TABLE["tasks"][name]
    values, texts = {**values, **row.get("values", {})}, {}
    for key in ("refuse", "idle", "next", "warn"):
        texts[key] = [text.format_map(values) for when, text in row.get(key, {}).items() if holds(when, values)]
    if texts["refuse"]:
        raise Refused(" ".join(texts["refuse"]))
    if texts["idle"]:
        return TaskPlan(idle=" ".join(texts["idle"]))
    steps = []
    for names in row["steps"]:
        for name in [names] if isinstance(names, str) else names:
            if holds(TABLE["steps"][name].get("when", ""), values):
                steps.append(make_step(name, values))
                break
    return TaskPlan(tuple(steps), "", " ".join(texts["next"]), tuple(texts["warn"]))


def make_step(name: str, values: Values) -> WorkStep:
    """Return a step of the table with its placeholders replaced."""
    row = TABLE["steps"][name]
    env = {variable: value.format_map(values) for variable, value in row.get("env", {}).items()}
    title, reason = (row[key].format_map(values) for key in ("title", "reason"))
    gpus, terminal = row.get("gpus", False), row.get("terminal", False)
    return WorkStep(title, expand(row["command"], values), row["place"], reason, gpus, terminal, env)


def expand(command: str, values: Values) -> tuple[str, ...]:
    """Return the words of a command with their placeholders replaced.

    A list replaces a word that consists only of its placeholder, with one word per element.
    """
    words: list[str] = []
    for word in shlex.split(command):
        value = values.get(word[1:-1]) if word.startswith("{") else None
        if isinstance(value, list | tuple):
            words += value
        else:
            words.append(word.format_map(values))
    return tuple(words)


def holds(condition: str, values: Values) -> bool:
    """Return True if all facts of a condition hold; ``!`` is not."""
    return all(bool(values.get(fact.removeprefix("!"))) != fact.startswith("!") for fact in condition.split())


def split_words(arguments: str) -> tuple[str, ...]:
    """Split a parameter into words like a shell.  Raises RunbookError."""
    try:
        return tuple(shlex.split(arguments))
    except ValueError as error:
        raise RunbookError(f"arguments={arguments!r} cannot be read: {error}.") from error
