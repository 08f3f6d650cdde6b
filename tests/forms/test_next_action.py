"""What a form shows as the next action: buttons and fields, no command."""

import ast
import re
from pathlib import Path

import pytest

from runbook_lib.failures import patterns
from runbook_lib.forms.next_action import card_in_form, in_form, sentence_in_form
from runbook_lib.records.cards import Card
from runbook_lib.records.status import RERUN

LIBRARY = Path(__file__).resolve().parents[2] / "runbook_lib"
SUBJECTS = ("bisect", "bump", "compute", "failures", "golden", "notebook")
#: What belongs into a terminal.
COMMAND = re.compile(r"(?<!\w)-[pr] |environment/run|mode=|wait=|the same command")
BUMP = "environment/run papermill runbooks/bump.ipynb -p tag 26.04-py3 -p base 'core r1' -r mode publish"


@pytest.mark.parametrize("text", ["", "07-sync-check; then a person: reviews.", "Read the log: https://example.org/1."])
def test_text_without_a_command_stays(text: str) -> None:
    assert in_form(text, "bump") == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (RERUN, "Press Preview, then Apply: completed work is detected and kept."),
        ("Run again with -p mode publish.", "Select Publish, then Preview and Apply."),
        ("-p mode publish", "Select Publish, then Preview and Apply."),
        (BUMP, "Press Preview, then Apply."),
        (
            f"Older: {BUMP.replace('bump.', '02-gitlab-pin.')}",
            "Older: Open 02-gitlab-pin with Tag: 26.04-py3; Base branch: core r1.",
        ),
        (
            f"{BUMP} -p wait True".replace("runbooks/", "/a/b/"),
            f"{sentence_in_form('Run bump again, or with wait=True')}.",
        ),
        ("runbook run 08-after-merge -r tag 26.10-py3", "Open 08-after-merge with Tag: 26.10-py3."),
        ('environment/run papermill a/bump.ipynb -r source "x', "Press Preview, then Apply."),
        (f"{BUMP} -p wait True", f"{sentence_in_form('Run bump again, or with wait=True')}."),
        ("git -C '/a b' push origin x", "Push the branch with git."),
    ],
)
def test_a_command_becomes_buttons_and_fields(text: str, shown: str) -> None:
    assert in_form(text, "bump") == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("The branch has moved: cp -r old new, or git fetch -p origin now.", None),
        (f"The old plan: {BUMP}", None),
        (
            "In step 5 (without a bump: 05-golden-values with -r run_id).",
            "In step 5 (without a bump: 05-golden-values with CI run).",
        ),
        ("-r source 'x' reads it.", "Source: 'x' reads it."),
        (f"It was killed. {RERUN}", "It was killed. Press Preview, then Apply: completed work is detected and kept."),
        ("environment/run papermill ", None),
    ],
)
def test_a_sentence_names_fields(text: str, shown: str | None) -> None:
    assert sentence_in_form(text) == (text if shown is None else shown)


def test_no_advice_of_triage_names_a_parameter_in_a_form() -> None:
    advice = [rule.advice for rule in patterns.LINES] + list(patterns.ADVICE.values())
    assert any(COMMAND.search(text) for text in advice)
    assert [text for text in advice if COMMAND.search(sentence_in_form(text))] == []


def test_the_texts_of_a_card_name_fields() -> None:
    card = Card("broken:a", "a", "See -r run_id 12", (("Advice", "Use -r source gitlab"),), ())
    shown = card_in_form(card)
    assert (shown.headline, shown.details) == ("See CI run: 12", (("Advice", "Use Source: gitlab"),))


def test_no_text_of_a_step_shows_a_command_in_a_form() -> None:
    texts = set()
    for path in (path for folder in SUBJECTS for path in LIBRARY.glob(f"{folder}/**/*.py")):
        constants = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant))
        texts |= {node.value for node in constants if isinstance(node.value, str) and "\n" not in node.value}
    commands = [text for text in texts if COMMAND.search(text)]
    assert len(commands) > 20
    assert [text for text in commands if COMMAND.search(in_form(text, "bump"))] == []
