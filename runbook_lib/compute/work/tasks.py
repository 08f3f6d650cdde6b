"""The tasks that belong inside the image, and their steps, from the table ``tasks.toml``.  Pure.

Both projects build and develop inside containers, and always with uv: CUDA, PyTorch and packages compiled against them
come from the image; another machine would resolve, build and lock different packages.
Sources: Megatron-LM's ``skills/mcore-build-and-dependency``, Megatron-Bridge's ``skills/build-and-dependency``.
"""

import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

_TABLE: Mapping[str, Any] = tomllib.loads(
    resources.files("runbook_lib.compute.work").joinpath("tasks.toml").read_text("utf-8")
)
#: The values of the notebook's parameter ``task``, with descriptions.
TASKS: Mapping[str, str] = _TABLE["tasks"]
_LINE_WIDTH = 110


@dataclass(frozen=True)
class WorkStep:
    """One command of a task, run on the host or in the container.

    ``reason`` is one or more sentences; ``env`` has pairs of a name and a value.  A step that needs a ``terminal`` is
    only shown.
    """

    title: str
    command: tuple[str, ...]
    place: Literal["host", "container"]
    reason: str
    gpus: bool = False
    terminal: bool = False
    env: tuple[tuple[str, str], ...] = ()


def make_step(name: str, **values: str | tuple[str, ...]) -> WorkStep:
    """Return a step of the table with its placeholders replaced.

    A tuple replaces a word of the command that consists only of its placeholder, with one word per element.
    """
    row = _TABLE["steps"][name]
    command: list[str] = []
    for word in shlex.split(row["command"]):
        value = values.get(word.strip("{}"))
        if word.startswith("{") and isinstance(value, tuple):
            command += value
        else:
            command.append(word.format_map(values))
    title, reason = row["title"].format_map(values), row["reason"].format_map(values).strip()
    env = tuple((variable, value.format_map(values)) for variable, value in row.get("env", {}).items())
    return WorkStep(**{**row, "title": title, "command": tuple(command), "reason": reason, "env": env})


def wrap_command(words: tuple[str, ...]) -> str:
    """Return a command ready to paste into a shell, wrapped between words to lines of about 110 characters."""
    lines = [""]
    for word in words:
        quoted = shlex.quote(word)
        if lines[-1] and len(lines[-1]) + len(quoted) >= _LINE_WIDTH:
            lines.append("   ")
        lines[-1] = f"{lines[-1]} {quoted}"
    return " \\\n".join(lines).lstrip()
