"""Secrets: each is removed where it stands, and nothing that CI prints is taken for one.

The secrets are put together here, so that nobody who scans this repository finds one.
"""

# A row of a table stays on its line.
# ruff: noqa: E501

import base64
import html
import itertools
import json
import random
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from secret_forms import FORMS, drawn, pem

from runbook_lib.text.redact import Redactor

SECRET = "s3cr&t/Val+ue\"quoted'\\x"


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


_DRAW = random.Random(16)
TOKENS = {name: drawn(form, _DRAW) for name, (_, form) in FORMS.items()}


@pytest.mark.parametrize(
    "around",
    [
        "{}", "log: {} was refused", "a\n-{}\n", 'x="{}",', "\\n{}\\n", "https://x/?a={}&b=1", "\x1b[31m{}\x1b[0m",
        "db:5432:*:ada:{}", "machine x login ada password {}", "<password>{}</password>", '{"auth": "{}"}', "- key: {} #",
    ],
)  # fmt: skip
def test_a_token_goes_wherever_it_stands(around: str) -> None:
    for name, token in TOKENS.items():
        clean = Redactor({}).text(around.replace("{}", token))
        assert "***" in clean, name
        assert token[-12:] not in clean, name
        assert token[-24:-12] not in clean, name


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_token_goes_that_a_line_break_divides(newline: str) -> None:
    for name, token in TOKENS.items():
        for place in range(10, len(token) - 8, 7):
            text = (
                f"the process of rank 0 printed the following token: {token[:place]}{newline}{token[place:]} and ended"
            )
            clean = Redactor({}).text(text)
            assert clean.endswith(" and ended"), name
            assert clean.count(newline) == 1, name
            assert token[:8] not in clean or token[place:][:6] not in clean, (name, clean)
            assert token[place:][-7:] not in clean, (name, clean)


def test_tokens_go_without_anything_between_them() -> None:
    for (name, first), (other, second) in itertools.product(TOKENS.items(), repeat=2):
        if not second.startswith("ey"):  # such a token begins a word
            clean = Redactor({}).text(f"told: {first}{second}")
            assert first[-12:] not in clean, (name, other)
            assert second[-12:] not in clean, (name, other)


@pytest.mark.parametrize("cut", ["…", "...", "<...>its_end-1"])
def test_a_stump_of_a_secret_goes(cut: str) -> None:
    tokens = {**TOKENS, "held": SECRET, "an address": "https://ada:a-password-of-hers@x.example/"}
    for name, token in tokens.items():
        for length in range(34, len(token) - 10, 3):
            clean = Redactor({"A_TOKEN": SECRET}).text(f"Text(value='{token[:length]}{cut}")
            assert token[length - 6 : length] not in clean, (name, clean)
            assert "its_end" not in clean


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Authorization: Bearer abcdefghijklmnopqrstuvwxyz", "Authorization: Bearer ***"),
        ('{"Authorization": "Basic YWRhOnNlY3JldC1wYXNzd29yZA=="}', '{"Authorization": "Basic ***"}'),
        ("authorization: token abcdefgh1234abcdefgh", "authorization: token ***"),
        (
            "http.extraheader=AUTHORIZATION: basic YWRhOnNlY3JldC1wYXNzd29yZA==",
            "http.extraheader=AUTHORIZATION: basic ***",
        ),
        ("https://ada:pw@github.com/a/b.git", "https://***@github.com/a/b.git"),
        ("https://token@proxy:3128", "https://***@proxy:3128"),
        ("https://ada:p@ss@github.com/a/b.git", "https://***@github.com/a/b.git"),
        ("https://ada:" + "x" * 900 + "@github.com/a", "https://***@github.com/a"),
        ("postgresql://ada:horse@db:5432/x", "postgresql://***@db:5432/x"),
        ("x-access-token%3Aghp_" + "a1B2" * 9, "x-access-token%3A***"),
        ("https://hooks.slack.com/services/T01234567/B01234567/" + "a1B2" * 6, "https://hooks.slack.com/***"),
        ("<password>correct horse</password>", "<password>***</password>"),
        ('<add:apiKey id="1">0a1b2c</add:apiKey>', '<add:apiKey id="1">***</add:apiKey>'),
        ("a\ndb.example:5432:prod:ada:hunter2\nb", "a\ndb.example:5432:prod:ada:***\nb"),
        ("*:*:*:ada:hunter2!", "*:*:*:ada:***"),
        ("<tokenizer>GPT2BPETokenizer</tokenizer>", "<tokenizer>GPT2BPETokenizer</tokenizer>"),
        ("module.py:1553:12:error:x", "module.py:1553:12:error:x"),
    ],
)
def test_credentials_in_addresses_headers_xml_and_pgpass_go(text: str, clean: str) -> None:
    assert Redactor({}).text(text) == clean


@pytest.mark.parametrize(
    "kind", ["PRIVATE KEY", "RSA PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"]
)
def test_a_private_key_goes(kind: str) -> None:
    key = pem(kind, _DRAW)
    logged = "".join(f"2026-05-07T03:12:00.1Z [0]: {line}\n" for line in key.splitlines())
    others = (key.replace("\n", newline) for newline in ("\\n", "\r\n", " "))
    for text in (key, logged, key.partition("-----END")[0], *others):
        clean = Redactor({}).text(f"before\n{text}")
        assert clean.startswith("before\n")
        assert not [line for line in key.splitlines()[1:-1] if line in clean]


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
        "\n".join([SECRET[:7], SECRET[7:15], SECRET[15:]]),
        "\r\n".join([SECRET[:7], SECRET[7:]]),
        json.dumps(SECRET),
        repr(SECRET),
        b64(SECRET),
        b64(f"{SECRET}\n"),
        b64(f"x-access-token:{SECRET}"),  # which is 15 bytes, so the value is encoded as by itself
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
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


def test_each_line_of_a_value_goes() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nshort\n-----END PRIVATE KEY-----"
    redactor = Redactor({"A_KEY": key})
    assert redactor.text("line 2 is MIIEvQIBADANBgkqhkiG9w0B, line 3 is short") == "line 2 is ***, line 3 is short"
    assert redactor.text("-----BEGIN") == "-----BEGIN"


def test_lists_and_mappings_are_redacted_within() -> None:
    redactor = Redactor({"A_TOKEN": "0123456789"})
    data = {"0123456789": ["x 0123456789", {"a": ("0123456789", 1, None, True)}]}
    assert redactor.data(data) == {"***": ["x ***", {"a": ["***", 1, None, True]}]}
    assert "0123456789" not in repr(redactor)


@given(st.text(min_size=8).filter(lambda text: "*" not in text), st.text(), st.text())
def test_no_value_survives(secret: str, before: str, after: str) -> None:
    assert secret not in Redactor({"A_TOKEN": secret}).text(before + secret + after)


#: What CI and people write, and what is no secret: one of each kind, and all that looks like a form.
STAYS = [
    "commit 5fe3f066585fe3f066585fe3f06658abcdef0123 (HEAD -> main)", "sha512-" + "a1B2" * 21 + "ab==",
    "nvcr.io/nvidia/pytorch@sha256:" + "0a" * 32, "#7 sha256:0a1b2c3d 12.3MB / 45.6MB",
    "tests/functional_tests/test_cases/gpt/gpt3_mcore_te_tp1_pp4_vp1_dist_optimizer_overlap_grad_reduce/model_config.yaml",
    '{"lm loss": {"start_step": 1, "end_step": 100, "step_interval": 5, "values": {"1": 10.85921, "2": 10.8593}}}',
    "2026-05-07T03:12:00.1234567Z ##[group]Run actions/checkout@v4", "torch==2.9.0a0+145a3a7bda.nv25.10",
    "[rank0]:[W507 03:12:00.123 ProcessGroupNCCL.cpp:1496] Warning: destroy_process_group() was not called",
    "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/module.py:1553", "PATH=/usr/local/cuda/bin:/usr/bin",
    "FAILED tests/unit_tests/test_a.py::test_b[1-bf16-True] - AssertionError: 0.1234 != 0.1235",
    "max_tokens=4096", "eos_token: '<|im_end|>'", "tokenizer: GPT2BPETokenizer", "pad_token=<|endoftext|>",
    "--tokenizer-type HuggingFaceTokenizer --hf-token hf_xxx", "--tokenizer-model /mnt/artifacts/a1/tokenizer.model",
    "${{ secrets.NGC_API_KEY }}", "password: ${DB_PASSWORD}", "export NGC_API_KEY=$NGC_API_KEY",
    "TOKEN=$(cat /run/secrets/token)", "password: <your password>", "The password: whatever was agreed on.",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0a1b2c3d4e5f6g7h8i9j0k1l2m3n4o5p6q7r ada@x",
    "256 SHA256:uNiVztksCsDhcc0u9e8BrXJXVGDPkzLStBEUc1dVzcg github.com (ED25519)",
    "550e8400-e29b-41d4-a716-446655440000", "https://api.github.com/repos/o/r/pulls?state=open&page=2",
    "https://x.org:8443/path/@scope/pkg", "git@github.com:NVIDIA/Megatron-LM.git", "docker run -u 1000:1000 image",
    "curl -u $USER:$TOKEN https://x", "task-1234567890abcdef", "ask-for-sk-learn-at-least-twenty-times",
    "-----BEGIN CERTIFICATE-----", "-----BEGIN PUBLIC KEY-----", "Private key: not found", "set-cookie",
    "basic knowledge of the bearer", "bearer of bad news", "authorization: needed", "?signature=short", "SK hynix",
    "a.b.c.d.e.f", "M" * 40, "eyJ", "eyJhbGciOiJub25lIn0", "SG.", "sq0", "dp.optimizer.step_function_name",
    "\x1b[36;1mpython -m pytest -x tests/unit_tests\x1b[0m", "a\u200bb", "100%|\u2588\u2588| 12/12 [00:01<00:00]", "",
]  # fmt: skip


@pytest.mark.parametrize("text", STAYS)
def test_what_is_no_secret_stays(text: str) -> None:
    redactor = Redactor({"GITHUB_TOKEN": SECRET, "MY_KEY": "short", "HOME": "/home/ada", "KEYBOARD": "qwertz-full"})
    for around in ("{}", "2026-05-07T03:12:00.1234567Z {}", "{}\nnext line"):
        shown = around.replace("{}", text)
        assert redactor.text(shown) == shown
