"""Secrets, in all the spellings in which they turn up."""

import base64
import html
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.redact import Redactor

SECRET = "s3cr&t/Val+ue\"quoted'\\x"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing to hide",
        "https://github.com/NVIDIA/Megatron-LM/pull/1?a=b@c",
        "git@github.com:NVIDIA/Megatron-LM.git",
        "5fe3f066585fe3f066585fe3f066585fe3f06658",
        "sha256:" + "a" * 64,
        "basic knowledge of the bearer",
        "nvcr.io/nvidia/pytorch:26.04-py3",
        "authorization: needed",
        "short",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert (
        Redactor({"GITHUB_TOKEN": SECRET, "MY_KEY": "short", "HOME": "/home/ada", "KEYBOARD": "qwertz-full"}).text(text)
        == text
    )


@pytest.mark.parametrize(
    "name", ["GITHUB_TOKEN", "GH_TOKEN", "NGC_API_KEY", "SOME_SECRET", "DB_PASSWORD", "db_password", "AWS_ACCESS_KEY_2"]
)
def test_values_of_secret_variables_go(name: str) -> None:
    assert Redactor({name: "0123456789abc"}).text("a 0123456789abc b") == "a *** b"


@pytest.mark.parametrize(
    "spelled",
    [
        SECRET,
        quote(SECRET, safe=""),
        html.escape(SECRET),
        json.dumps(SECRET),
        repr(SECRET),
        base64.b64encode(f"ada:{SECRET}".encode()).decode(),
        base64.b64encode(f"x-access-token:{SECRET}".encode()).decode(),
        base64.b64encode(f"{SECRET}:x".encode()).decode(),
        base64.urlsafe_b64encode(f"ab:{SECRET}".encode()).decode(),
        f"https://ada:{quote(SECRET, safe='')}@github.com/x.git",
    ],
)
def test_every_spelling_of_a_value_goes(spelled: str) -> None:
    clean = Redactor({"GITHUB_TOKEN": SECRET}).text(f"fatal: {spelled} was refused")
    assert clean.startswith("fatal: ")
    assert clean.endswith(" was refused")
    assert "***" in clean
    assert len(clean) < len("fatal:  was refused") + 40
    assert SECRET not in clean


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("ghp_" + "a1B2" * 9, "***"),
        ("x=github_pat_" + "a1B2_" * 9 + " y", "x=*** y"),
        ("ghs_" + "a1B2" * 9 + ".", "***."),
        ("glpat-" + "a1B2-" * 4 + "z", "***"),
        ("nvapi-" + "a1B2_" * 9, "***"),
        ("AKIAABCDEFGHIJKLMNOP", "***"),
        ("Authorization: Bearer abcdefghijklmnopqrstuvwxyz", "Authorization: Bearer ***"),
        ('{"Authorization": "Basic YWRhOnNlY3JldC1wYXNzd29yZA=="}', '{"Authorization": "Basic ***"}'),
        ("authorization: token abcdefgh1234", "authorization: token ***"),
        ("https://ada:pw@github.com/a/b.git", "https://***@github.com/a/b.git"),
        ("https://token@proxy:3128", "https://***@proxy:3128"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----", "***"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\\nb3Blbn\\n-----END OPENSSH PRIVATE KEY-----\\n", "***"),
        ("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcdefghijklmnop", "***"),
    ],
)
def test_known_forms_go_wherever_they_come_from(text: str, clean: str) -> None:
    assert Redactor({}).text(text) == clean


def test_lists_and_mappings_are_redacted_within() -> None:
    redactor = Redactor({"A_TOKEN": "0123456789"})
    data = {"0123456789": ["x 0123456789", {"a": ("0123456789", 1, None, True)}]}
    assert redactor.data(data) == {"***": ["x ***", {"a": ["***", 1, None, True]}]}


def test_nothing_prints_the_secrets() -> None:
    assert "0123456789" not in repr(Redactor({"A_TOKEN": "0123456789"}))


@given(st.text(min_size=8).filter(lambda text: "*" not in text), st.text(), st.text())
def test_no_value_survives(secret: str, before: str, after: str) -> None:
    assert secret not in Redactor({"A_TOKEN": secret}).text(before + secret + after)
