"""What a form shows as the next action: buttons and fields, no command."""

import ast
import re
from pathlib import Path

import pytest

from runbook_lib.forms.next_action import in_form
from runbook_lib.records.status import RERUN

LIBRARY = Path(__file__).resolve().parents[2] / "runbook_lib"
#: What belongs into a terminal.
COMMAND = re.compile(r"(?<!\w)-[pr] |environment/run|allow=|publish=|wait=|the same command")
BUMP = "environment/run papermill runbooks/bump.ipynb -p tag 26.04-py3 -p base 'core r1' -p apply True"


@pytest.mark.parametrize("text", ["", "07-sync-check; then a person: reviews.", "Read the log: https://example.org/1."])
def test_what_is_no_command_stays(text: str) -> None:
    assert in_form(text, "bump") == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (RERUN, "Press Preview, then Apply: completed work is detected and kept."),
        ("Run again with -p apply True -p publish True.", "Select Publish, then Preview and Apply."),
        ("-p apply True -p publish True", "Select Publish, then Preview and Apply."),
        (
            "Decide them; or add allow=partial-round.",
            "Decide them; or add Exceptions: partial-round.",
        ),
        (BUMP, "Press Preview, then Apply."),
        (
            f"Older: {BUMP.replace('bump.', '02-gitlab-pin.')}",
            "Older: Open 02-gitlab-pin with Tag: 26.04-py3; Base branch: core r1.",
        ),
        ('environment/run papermill a/bump.ipynb -r broken "x', "Press Preview, then Apply."),
        ("git -C '/a b' push origin x", "Push the branch with git."),
    ],
)
def test_a_command_becomes_buttons_and_fields(text: str, shown: str) -> None:
    assert in_form(text, "bump") == shown


def test_no_text_of_a_step_shows_a_command_in_a_form() -> None:
    texts = set()
    for path in [*LIBRARY.glob("steps/**/*.py"), *LIBRARY.glob("workflow/*.py")]:
        constants = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant))
        texts |= {node.value for node in constants if isinstance(node.value, str) and "\n" not in node.value}
    commands = [text for text in texts if COMMAND.search(text)]
    assert len(commands) > 20
    assert [text for text in commands if COMMAND.search(in_form(text, "bump"))] == []
