"""The texts of a run phrased for a form: buttons and fields instead of commands and their options.  Pure."""

import re
import shlex
from dataclasses import replace
from pathlib import PurePath

from runbook_lib.forms.fields import LABELS
from runbook_lib.records.cards import Card
from runbook_lib.records.run_view import RunView

_AGAIN = "Press Preview, then Apply"
_PUBLISH = "Select Publish, then Preview and Apply"
_AFTER_CI = "Once CI has ended, press Preview, then Apply; with Wait for CI selected, Apply waits for CI itself"
#: The beginning of a command that runs a notebook, in a clone or with an installed package.
_COMMAND = re.compile(r"(?:environment/run papermill|runbook run) ")
#: The wording of the steps, and its replacement in a form; earlier rows are applied first.
_PHRASES = (
    ("Run again with -p mode publish", _PUBLISH),
    ("-p mode publish", f"{_PUBLISH}."),
    ("Run it: ", ""),
    (", with mode=publish", ", with Publish selected"),
    ("Run again with mode=publish", _PUBLISH),
    (" with mode=publish", " with Publish selected"),
    ("Run bump again, or with wait=True", _AFTER_CI),
    ("Run bump again", _AGAIN),
    ("Run 04-run-ci again, or with wait=True to follow it", _AFTER_CI),
    ("Run the same command again", _AGAIN),
    ("Run again with a tag, such as -p tag 26.04-py3.", "Choose a tag."),
    ("Run again with the tag of a bump, such as -r tag 26.04-py3.", "Choose the tag of a bump."),
    (
        "-r tag 26.04-py3; or without a bump, -r run_id with any run, such as '#12'",
        "Choose a tag; or without a bump, a CI run",
    ),
    ("Name a run: -r place '#12'", f"Enter under {LABELS['place']}: '#12'"),
    ("in a file: -r decisions FILE", f"in a file, and enter its path under {LABELS['decisions']}."),
    ("run the same command again", "preview and apply again"),
    ("Run again when", f"{_AGAIN} when"),
)
#: Any other parameter of a command.
_PARAMETER = re.compile(r"(?<!\w)-[pr] ([a-z_]{1,30})\b( ?)")


def in_form(text: str, notebook: str) -> str:
    """Return a next action phrased for the form of ``notebook``; a command at its end becomes what to open."""
    if text == "mode=publish":
        return f"{_PUBLISH}."
    if text.startswith("git "):
        return "Push the branch with git."
    sentence = sentence_in_form(text)
    command = _COMMAND.search(sentence)
    if command is None:
        return sentence
    return sentence[: command.start()] + _open(sentence[command.end() :], notebook)


def sentence_in_form(text: str) -> str:
    """Return a sentence phrased for a form; a complete command in it stays."""
    for phrase, replacement in _PHRASES:
        text = text.replace(phrase, replacement)
    command = _COMMAND.search(text)
    end = command.start() if command else len(text)
    return _PARAMETER.sub(_field, text[:end]) + text[end:]


def run_in_form(run: RunView) -> RunView:
    """Return a run whose sentences, and those of its steps, are phrased for a form."""
    steps = tuple(run_in_form(step) for step in run.steps)
    return replace(run, sentence=sentence_in_form(run.sentence), steps=steps)


def card_in_form(card: Card) -> Card:
    """Return a decision card with its texts phrased for a form."""
    details = tuple((label, sentence_in_form(text)) for label, text in card.details)
    return replace(card, headline=sentence_in_form(card.headline), details=details)


def _field(match: re.Match[str]) -> str:
    """Return the field of a parameter; an option of another program stays."""
    label = LABELS.get(match[1])
    if label is None:
        return match[0]
    return label if match[1] and not match[2] else f"{label}: "


def _open(command: str, notebook: str) -> str:
    """Return the notebook to open instead of running this command, and the fields to fill in."""
    try:
        words = shlex.split(command)
    except ValueError:  # not a complete command
        words = command.split()
    name = PurePath("".join(words[:1])).stem
    values = {}
    for flag, parameter, value in zip(words[1:], words[2:], words[3:], strict=False):
        if flag in ("-p", "-r") and parameter not in ("mode",):
            values[parameter] = value
    if name == notebook:
        return f"{_AFTER_CI}." if values.get("wait") == "True" else f"{_AGAIN}."
    filled_in = "; ".join(f"{LABELS.get(parameter, parameter)}: {value}" for parameter, value in values.items())
    return f"Open {name}{' with ' if filled_in else ''}{filled_in}."
