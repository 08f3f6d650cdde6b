"""The fields of a form, and the problems of typed values."""

import pytest

from runbook_lib.checks import Next
from runbook_lib.forms import fields
from runbook_lib.text.notebook_file import Parameter


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tag", ""), ("tag", "26.04-py3"), ("image_type", "lts"), ("base", "core_r0.18.0"), ("remote", "fork"),
        ("decisions", ""), ("decisions", "d.yaml"), ("run_id", ""), ("run_id", "5000000015"),
        ("run_id", "https://github.com/o/r/actions/runs/12/job/3"), ("run_id", "#12"),
        ("run_id", "feature/faster"), ("run_id", "https://gitlab.com/o/r/-/pipelines/7"),
        ("repo", "anything"), ("publish", True),
        ("refs", "main dev"),
    ],
)  # fmt: skip
def test_a_valid_value_has_no_problem(name: str, value: str | bool) -> None:
    assert fields.problem(name, value) == ""


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("tag", " 26.04-PY3 ", "did you mean '26.04-py3'?"),
        ("tag", "26.4", "a month has two digits"),
        ("tag", "nvcr.io/nvidia/pytorch:26.04-py3", "give only the tag"),
        ("base", "a..b", "base='a..b'"),
        ("remote", "", "remote=''"),
        ("run_id", "the newest", "'the newest'"),
    ],
)
def test_a_problem_names_the_value(name: str, value: str, named: str) -> None:
    assert named in fields.problem(name, value)


def test_lts_is_valid_but_comes_with_advice() -> None:
    assert fields.advice("image_type", "dev") == ""
    assert "maintainer" in fields.advice("image_type", "lts")
    assert fields.problem("image_type", "lts") == ""


def test_every_parameter_has_a_field() -> None:
    declared = [Parameter("tag", str, "", "the month"), Parameter("source", str, "")]
    tag, audit = fields.fields(declared)
    assert (tag.label, tag.help, tag.seldom) == ("Tag", "the month", False)
    assert (audit.name, audit.seldom) == ("source", True)


@pytest.mark.parametrize(
    ("following", "shown"),
    [
        (Next("Ask them."), "Ask them."),
        (
            Next.run("bump", "To follow it:", tag="26.04-py3", wait=True),
            "To follow it: Choose Wait for CI: True. Press",
        ),
        (Next.run("review", "Make 2 decisions:"), "Make 2 decisions: Decide on the cards above"),
        (Next.run("investigate-ci", place="#12"), "Open investigate-ci with Where: #12."),
    ],
)
def test_what_comes_next_is_told_in_the_words_of_the_form(following: Next, shown: str) -> None:
    assert fields.in_form(following, "bump", {"tag": "26.04-py3"}).startswith(shown)
