"""The fields of a form: what is wrong with what was typed, in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.forms import fields
from runbook_lib.runner.parameters import Parameter
from runbook_lib.text.decisions import entries
from runbook_lib.text.redact import Redactor


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tag", ""), ("tag", "26.04-py3"), ("image_type", "lts"), ("base", "core_r0.18.0"), ("remote", "fork"),
        ("allow", ""), ("allow", "older-tag, unverified-tag"), ("run_id", ""), ("run_id", "5000000015"),
        ("run_id", "https://github.com/o/r/actions/runs/12/job/3"), ("accept", ""), ("accept", "a/b/c.json: right"),
        ("broken", "case@dgx_h100: it hangs; other: slow"), ("repo", "anything"), ("publish", True),
        ("refs", "main dev"),
    ],
)  # fmt: skip
def test_nothing_is_wrong_with(name: str, value: str | bool) -> None:
    assert fields.problem(name, value) == ""


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("tag", " 26.04-PY3 ", "did you mean '26.04-py3'?"),
        ("tag", "26.4", "a month has two digits"),
        ("tag", "nvcr.io/nvidia/pytorch:26.04-py3", "give the tag alone"),
        ("base", "a..b", "base='a..b'"),
        ("remote", "", "remote=''"),
        ("allow", "all", "unknown exception: all"),
        ("run_id", "newest", "is no number and no address of a CI run"),
        ("accept", "a/b/c.json", "must read"),
        ("broken", "a: b; a: c", "names a twice"),
    ],
)
def test_what_is_wrong_is_said_in_words(name: str, value: str, says: str) -> None:
    assert says in fields.problem(name, value)


def test_lts_is_advised_against_and_allowed() -> None:
    assert fields.advice("image_type", "dev") == ""
    assert "maintainer" in fields.advice("image_type", "lts")
    assert fields.problem("image_type", "lts") == ""


def test_the_fields_are_the_parameters_but_apply() -> None:
    declared = [Parameter("tag", str, "", "the month"), Parameter("apply", bool, True), Parameter("audit", str, "")]
    tag, audit = fields.fields(declared)
    assert (tag.label, tag.help, tag.seldom) == ("Tag", "the month", False)
    assert (audit.name, audit.seldom) == ("audit", True)


WORD = st.text(st.characters(exclude_characters=";:", exclude_categories=["C", "Z"]), min_size=1)


@given(
    st.dictionaries(
        WORD,
        st.text(st.characters(exclude_categories=["C"]), min_size=1).filter(lambda it: it.replace(";", " ").split()),
    )
)
def test_what_is_decided_is_read_back(chosen: dict[str, str]) -> None:
    told = entries(fields.decided(chosen), "accept", "name: reason", Redactor({}))
    assert told == {name: " ".join(reason.replace(";", ",").split()) for name, reason in chosen.items()}


@pytest.mark.parametrize(
    ("chosen", "says"), [({}, ""), ({"a": "b"}, ""), ({"a": " ;", "b": "\xa0"}, "a, b have no reason")]
)
def test_a_decision_needs_a_reason(chosen: dict[str, str], says: str) -> None:
    told = fields.unreasoned(chosen)
    assert says in told
    assert bool(told) == bool(says)
