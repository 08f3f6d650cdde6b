"""The tasks that belong inside the image, and their steps, from the table ``tasks.toml``.  Pure.

Both projects build and develop inside containers, and always with uv: CUDA, PyTorch and packages compiled against them
come from the image; another machine would resolve, build and lock different packages.
Sources: Megatron-LM's ``skills/mcore-build-and-dependency``, Megatron-Bridge's ``skills/build-and-dependency``.
"""

import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from runbook_lib.errors import RunbookError

_TABLE: Mapping[str, Any] = tomllib.loads(
    resources.files("runbook_lib.compute.work").joinpath("tasks.toml").read_text("utf-8")
)
#: The values of the notebook's parameter ``task``, with descriptions.
TASKS: Mapping[str, str] = _TABLE["tasks"]
_LINE_WIDTH = 110


@dataclass(frozen=True)
class WorkStep:
    """One command of a task, run on the host or in the container.

    ``reason`` is one or more sentences; ``env`` has pairs of a name and a value; ``overwrites`` lists the files whose
    content is first saved in git's object store.  A step that needs a ``terminal`` is only shown.
    """

    title: str
    command: tuple[str, ...]
    place: Literal["host", "container"]
    reason: str
    gpus: bool = False
    terminal: bool = False
    env: tuple[tuple[str, str], ...] = ()
    overwrites: tuple[str, ...] = ()


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
    overwrites = tuple(row.get("overwrites", ()))
    fields = {"title": title, "command": tuple(command), "reason": reason, "env": env, "overwrites": overwrites}
    return WorkStep(**{**row, **fields})


def parse_variables(text: str) -> tuple[tuple[str, str], ...]:
    """Parse the variables to set inside, such as ``CHECKPOINT_OPTIMIZATION=true``.  Raises RunbookError."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise RunbookError(f"env={text!r} cannot be read: {error}.") from error
    variables = []
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or not value.isprintable():
            raise RunbookError(f"env contains {word!r}; it must be NAME=value, such as CHECKPOINT_OPTIMIZATION=true.")
        variables.append((name, value))
    return tuple(variables)


def wrap_command(words: tuple[str, ...]) -> str:
    """Return a command ready to paste into a shell, wrapped between words to lines of about 110 characters."""
    lines = [""]
    for word in words:
        quoted = shlex.quote(word)
        if lines[-1] and len(lines[-1]) + len(quoted) >= _LINE_WIDTH:
            lines.append("   ")
        lines[-1] = f"{lines[-1]} {quoted}"
    return " \\\n".join(lines).lstrip()
