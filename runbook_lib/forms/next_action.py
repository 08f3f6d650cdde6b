"""The next action of a run in the words of a form: its buttons and fields instead of commands.  Pure."""

import re
import shlex
from pathlib import PurePath

from runbook_lib.forms.fields import LABELS

_AGAIN = "Press Preview, then Apply"
_PUBLISH = "Select Publish, then Preview and Apply"
_COMMAND = "environment/run papermill "
#: What the steps say of their commands, and what a form says instead; an earlier row goes first.
_PHRASES = (
    ("Run again with -p apply True -p publish True", _PUBLISH),
    ("-p apply True -p publish True", f"{_PUBLISH}."),
    ("Run again with -p apply True", _AGAIN),
    ("publish=True", f"{_PUBLISH}."),
    (", with publish", ", with Publish selected"),
    ("Run internal-ci again with publish", _PUBLISH),
    ("Run bump again, or with wait=True", f"{_AGAIN}; with Wait for CI it follows CI"),
    ("Run bump again", _AGAIN),
    ("Run the same command again", _AGAIN),
    ("Run again with a tag, such as -p tag 26.04-py3.", "Choose a tag."),
    ("Run again with the tag of a bump, such as -r tag 26.04-py3.", "Choose the tag of a bump."),
    (
        "-r tag 26.04-py3; or without a bump, -r run_id with any run, such as '#12'",
        "Choose a tag; or without a bump, a CI run",
    ),
    ("Name a run: -r place '#12'", f"Enter under {LABELS['place']}: '#12'"),
    (
        '-r reenable "case@platform: reason", or -r broken to file an issue.',
        f'Enter "case@platform: reason" under {LABELS["reenable"]} or {LABELS["broken"]}.',
    ),
    ("run the same command again", "preview and apply again"),
    ("Run again when", f"{_AGAIN} when"),
)
#: Any other parameter of a command.
_PARAMETER = re.compile(r"(?<!\w)-[pr] ([a-z_]{1,30}) |(?<!\w)(allow)=")


def in_form(text: str, notebook: str) -> str:
    """Return a next action in the words of the form of ``notebook``."""
    for phrase, replacement in _PHRASES:
        text = text.replace(phrase, replacement)
    if text.startswith("git "):
        return "Push the branch with git."
    sentence, found, command = text.partition(_COMMAND)
    sentence = _PARAMETER.sub(lambda match: f"{_label(match[1] or match[2])}: ", sentence)
    return sentence + _open(command, notebook) if found else sentence


def _label(parameter: str) -> str:
    return LABELS.get(parameter, parameter)


def _open(command: str, notebook: str) -> str:
    """Return what to open instead of running this command, and the fields to fill in."""
    try:
        path, *arguments = shlex.split(command)
    except ValueError:  # not a complete command
        path, *arguments = command.split()
    name = PurePath(path).stem
    values = []
    for flag, parameter, value in zip(arguments, arguments[1:], arguments[2:], strict=False):
        if flag in ("-p", "-r") and parameter not in ("apply", "publish"):
            values.append(f"{_label(parameter)}: {value}")
    if name == notebook:
        return f"{_AGAIN}."
    return f"Open {name}{' with ' if values else ''}{'; '.join(values)}."
