"""What comes next in the words of a form."""

import pytest

from runbook_lib.checks import Next
from runbook_lib.notebook import fields


@pytest.mark.parametrize(
    ("following", "shown"),
    [
        (Next("Ask them."), "Ask them."),
        (
            Next.run("bump", "To follow it:", tag="26.04-py3", wait=True),
            "To follow it: Choose Wait for CI: True. Press",
        ),
        (Next.run("review", "Make 2 decisions:"), "Make 2 decisions: Decide on the cards"),
        (Next.run("investigate-ci", place="#12"), "Open investigate-ci with Where: #12."),
    ],
)
def test_what_comes_next_is_told_in_the_words_of_the_form(following: Next, shown: str) -> None:
    assert fields.in_form(following, "bump", {"tag": "26.04-py3"}).startswith(shown)
