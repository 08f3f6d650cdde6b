"""Secrets, in all the spellings in which they turn up."""

import base64
import html
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.text.redact import Redactor

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
        "next_token = torch.argmax(next_token_logits, dim=-1)",
        "tokenizer.pad_token = tokenizer.eos_token",
        "pad_token=<|endoftext|>, max_token: 40960000",
        "GH_TOKEN: ${{ secrets.GH_TOKEN }}",
        "export TOKEN=$(gh auth token)",
        "The password: whatever was agreed on.",
        "--tokenizer-type HuggingFaceTokenizer --hf-token hf_xxx",
        "ask-for-sk-learn-at-least-twenty-times",
        "a login of somebody\ndocker -p 8080:80",
        "?signature=short",
    ],
)
def test_text_without_a_secret_stays(text: str) -> None:
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
        ("\x1b[38;5;28mghp_" + "a1B2" * 9, "\x1b[38;5;28m***"),  # as a traceback is coloured
        ("\x1b[31mAKIAABCDEFGHIJKLMNOP", "\x1b[31m***"),
        ("first\\nsk-ant-api03-" + "a1B2_" * 9, "first\\n***"),
        ("x-access-token%3Aghp_" + "a1B2" * 9, "x-access-token%3A***"),
        ("ghp_a1B2\n    " + "a1B2" * 8 + " and more", "***\n and more"),  # wrapped
        ("npm_" + "a1B2" * 9 + "\nnext", "***\nnext"),
        ("AIza" + "a1B2-" * 7, "***"),
        ("pypi-AgEIcHlwaS5vcmc" + "a1B2_" * 9, "***"),
        ("https://hooks.slack.com/services/T01234567/B01234567/" + "a1B2" * 6, "https://hooks.slack.com/services/***"),
        ("https://ada:p@ss@github.com/a/b.git", "https://***@github.com/a/b.git"),
        ("https://ada:" + "x" * 900 + "@github.com/a", "https://***@github.com/a"),
        ("https://logs.example/1?se=2&sig=a1B2c3D4%2F%3D&x=1", "https://logs.example/1?se=2&sig=***&x=1"),
        ("WANDB_API_KEY=" + "5fe3f06658" * 4, "WANDB_API_KEY=***"),
        ("  DB_PASSWORD: hunter-2-hunter", "  DB_PASSWORD: ***"),
        ("{'password': 'hunter-2-hunter'}", "{'password': '***'}"),
        ('{\\"aws_secret_access_key\\": \\"wJalrXUtnFEMI/K7MDENG\\"}', '{\\"aws_secret_access_key\\": \\"***\\"}'),
        ("&quot;token&quot;: &quot;hunter-2-hunter&quot;", "&quot;token&quot;: &quot;***&quot;"),
        ("PRIVATE-TOKEN: hunter-2-hunter", "PRIVATE-TOKEN: ***"),
        ("ARG API_KEY=correct-horse", "ARG API_KEY=***"),
        ("ENV DB_PASSWORD correct-horse", "ENV DB_PASSWORD ***"),
        ("machine x.org\n  login ada\n  password battery", "machine x.org\n  login ada\n  password ***"),
        ("docker login -u ada -p correct-horse nvcr.io", "docker login -u ada -p *** nvcr.io"),
        ("--registry-password hunter-2", "--registry-password ***"),
        ('"auth": "YWRhOmhvcnNlLWJhdHRlcnk="', '"auth": "***"'),
        (
            "1Z -----BEGIN RSA PRIVATE KEY-----\n2.5Z #9 0.1 MIIE\n2.7Z abc=\n3Z -----END RSA PRIVATE KEY-----\n4Z x",
            "1Z ***4Z x",
        ),
    ],
)
def test_known_forms_go_wherever_they_come_from(text: str, clean: str) -> None:
    assert Redactor({}).text(text) == clean


TOKENS = ("ghp_" + "a1B2" * 9, "glpat-" + "a1B2-" * 4, "nvapi-" + "a1B2_" * 9, "AKIAABCDEFGHIJKLMNOP")


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("before", ["", "x-access-token:", "a:", "oauth2:", "$oauthtoken:"])
def test_known_forms_go_from_base64_too(token: str, before: str) -> None:
    for after in ("", "\n", ":x"):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            run = encode(f"{before}{token}{after}".encode()).decode()
            for around in ("{}", "\\n{}", "x{}", "auth={};", '"{}"'):
                clean = Redactor({}).text(around.format(run))
                assert "***" in clean
                assert not any(run[at : at + 12] in clean for at in range(len(before) * 4 // 3 + 4, len(run) - 20))


def test_a_declared_secret_is_removed_from_base64_too() -> None:
    run = base64.b64encode(b"a=1 MY_TOKEN=hunter-2-hunter and more text").decode()
    assert Redactor({}).text(run) == f"{run[:17]}***{run[38:]}"


def test_base64_without_a_token_stays() -> None:
    run = base64.b64encode(bytes(range(256)) * 400).decode()
    assert Redactor({}).text(run) == run
    both = run[:40] + base64.b64encode(TOKENS[0].encode()).decode().rstrip("=") + run[:40]
    assert Redactor({}).text(both) == f"{run[:40]}***{run[:40]}"


def test_each_line_of_a_value_goes() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nshort\n-----END PRIVATE KEY-----"
    redactor = Redactor({"A_KEY": key})
    assert redactor.text("line 2 is MIIEvQIBADANBgkqhkiG9w0B, line 3 is short") == "line 2 is ***, line 3 is short"
    assert redactor.text("-----BEGIN") == "-----BEGIN"


def test_lines_of_a_key_go_without_its_first() -> None:
    line, last = base64.b64encode(bytes(range(48))).decode(), base64.b64encode(bytes(range(30))).decode()
    assert Redactor({}).text(f"a\n{line}\n{last}\n-----END RSA PRIVATE KEY-----") == (
        "a\n***\n***\n-----END RSA PRIVATE KEY-----"
    )
    assert Redactor({}).text(f"a\n{base64.b64encode(bytes(31)).decode()}\nb") == "a\n***\nb"
    assert Redactor({}).text("sha256:" + "0a" * 32) == "sha256:" + "0a" * 32


@pytest.mark.parametrize("before", ["", "    ", "2026-05-07T03:12:00.12Z [default0]:", "#7 0.1 "])
def test_the_last_line_of_a_key_goes_though_the_end_was_cut_off(before: str) -> None:
    line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQDJ+x/2vC5DzL9k"
    for last in ("4H+pzjhfnHtlNY/IycIkHOE2SkOIZvYYO0nnMpsGycxl/DI94rwlHHDT/lY=", "DI94rwlHHDT", "lY=="):
        text = f"{before}{line}\n{before}{line}\n{before}{last}\n{before}and a word"
        assert Redactor({}).text(text) == f"{before}***\n{before}***\n{before}***\n{before}and a word"


def test_a_value_that_was_wrapped_goes() -> None:
    redactor = Redactor({"A_TOKEN": "0123456789abc"})
    assert redactor.text("a 0123\n    456789abc b\n0123456789abc") == "a ***\n b\n***"
    assert redactor.text("0123\r\n4567\n89abc\n\nx") == "***\n\n\n\nx"


def test_lists_and_mappings_are_redacted_within() -> None:
    redactor = Redactor({"A_TOKEN": "0123456789"})
    data = {"0123456789": ["x 0123456789", {"a": ("0123456789", 1, None, True)}]}
    assert redactor.data(data) == {"***": ["x ***", {"a": ["***", 1, None, True]}]}


def test_growing_text_is_searched_only_in_its_new_part() -> None:
    searched = []

    class Counting(Redactor):
        def text(self, text: str) -> str:
            searched.append(text)
            return super().text(text)

    data = Counting({"A_TOKEN": "s3cret-value"}).growing()
    assert data({"a": ["s3cret-value", "b"]}) == {"a": ["***", "b"]}
    assert data({"a": ["s3cret-value", "b", "and s3cret-value", "b"]}) == {"a": ["***", "b", "and ***", "b"]}
    assert searched == ["a", "s3cret-value", "b", "and s3cret-value"]


def test_nothing_prints_the_secrets() -> None:
    assert "0123456789" not in repr(Redactor({"A_TOKEN": "0123456789"}))


@given(st.text(min_size=8).filter(lambda text: "*" not in text), st.text(), st.text())
def test_no_value_survives(secret: str, before: str, after: str) -> None:
    assert secret not in Redactor({"A_TOKEN": secret}).text(before + secret + after)
