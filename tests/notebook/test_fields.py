"""The fields of a form, the problems of typed values, and what comes next in the words of a form."""

import pytest

from runbook_lib.checks import Next
from runbook_lib.notebook import fields
from runbook_lib.pins.repositories import MEGATRON_LM


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("tag", "", ""), ("tag", "26.04-py3", ""), ("image_type", "lts", ""), ("base", "core_r0.18.0", ""),
        ("decisions", "d.yaml", ""), ("repo", "anything", ""), ("wait", True, ""),
        ("tag", " 26.04-PY3 ", "did you mean '26.04-py3'?"),
        ("tag", "26.4", "a month has two digits"),
        ("tag", "nvcr.io/nvidia/pytorch:26.04-py3", "give only the tag"),
        ("base", "a..b", "base='a..b'"),
        ("remote", "", "remote=''"),
        ("repo", "~nobody-at-all/x", "~nobody-at-all"),
        ("site", "a\0", "invisible"),
    ],
)  # fmt: skip
def test_a_problem_names_the_value(name: str, value: str | bool, problem: str) -> None:
    found = fields.problem(name, value, MEGATRON_LM)
    assert (problem in found, bool(found)) == (True, bool(problem))


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
