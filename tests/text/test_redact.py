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
import string
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.text.redact import Redactor

SECRET = "s3cr&t/Val+ue\"quoted'\\x"

_RANDOM = random.Random(16)
_HEX, _LOW, _UP = "0123456789abcdef", string.ascii_lowercase + string.digits, string.ascii_uppercase + string.digits
_ANY = string.ascii_letters + string.digits


def some(length: int, characters: str = _ANY) -> str:
    """So many characters, with a digit and a letter among the first."""
    start = "7A" if characters == _UP else "7a"
    return start + "".join(_RANDOM.choice(characters) for _ in range(length - 2))


def joined(*parts: str) -> str:
    return "".join(parts)


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


_PEM_BODY = "\n".join(some(64) for _ in range(3)) + f"\n{some(30)}==\n"


def pem(kind: str) -> str:
    return f"-----BEGIN {kind}-----\n{_PEM_BODY}-----END {kind}-----\n"


#: By form: where it is described (a rule of gitleaks unless it is an address), and a token.
TOKENS = {
    "GitHub, personal": ("github-pat", joined("ghp", "_", some(36))),
    "GitHub, OAuth": ("github-oauth", joined("gho", "_", some(36))),
    "GitHub, app to user": ("github-app-token", joined("ghu", "_", some(36))),
    "GitHub, app": ("github-app-token", joined("ghs", "_", some(36))),
    "GitHub, refresh": ("github-refresh-token", joined("ghr", "_", some(76))),
    "GitHub, fine-grained": ("github-fine-grained-pat", joined("github_pat", "_", some(22), "_", some(59))),
    "GitLab, personal": ("gitlab-pat", joined("glpat", "-", some(20))),
    "GitLab, personal, routable": ("gitlab-pat-routable", joined("glpat", "-", some(27), ".", some(9, _LOW))),
    "GitLab, runner": ("gitlab-runner-authentication-token", joined("glrt", "-", some(20))),
    "GitLab, runner, old": ("gitlab-rrt", joined("GR", "1348941", some(20))),
    "GitLab, deploy": ("gitlab-deploy-token", joined("gldt", "-", some(20))),
    "GitLab, job": ("gitlab-cicd-job-token", joined("glcbt", "-", "1a_", some(20))),
    "GitLab, trigger": ("gitlab-ptt", joined("glptt", "-", some(40, _HEX))),
    "GitLab, feed": ("gitlab-feed-token", joined("glft", "-", some(20))),
    "GitLab, SCIM": ("gitlab-scim-token", joined("glsoat", "-", some(20))),
    "GitLab, agent": ("gitlab-kubernetes-agent-token", joined("glagent", "-", some(50))),
    "GitLab, OAuth": ("gitlab-oauth-app-secret", joined("gloas", "-", some(64))),
    "GitLab, mail": ("gitlab-incoming-mail-token", joined("glimt", "-", some(25))),
    "GitLab, flags": ("gitlab-feature-flag-client-token", joined("glffct", "-", some(20))),
    "Bitbucket": ("https://support.atlassian.com/bitbucket-cloud/docs/app-passwords", joined("AT", "BB", some(32))),
    "Atlassian": ("atlassian-api-token", joined("ATA", "TT3", some(186))),
    "npm": ("npm-access-token", joined("npm", "_", some(36))),
    "PyPI": ("pypi-upload-token", joined("pypi", "-AgEIcHlwaS5vcmc", some(60))),
    "RubyGems": ("rubygems-api-token", joined("rubygems", "_", some(48, _HEX))),
    "Artifactory": ("artifactory-api-key", joined("AK", "Cp", some(69))),
    "Buildkite": ("https://buildkite.com/docs/apis/managing-api-tokens", joined("bkua", "_", some(40, _HEX))),
    "Docker Hub": ("https://docs.docker.com/security/access-tokens", joined("dckr", "_pat_", some(27))),
    "Docker Hub, organization": ("https://docs.docker.com/security/access-tokens", joined("dckr", "_oat_", some(32))),
    "Sourcegraph": ("sourcegraph-access-token", joined("sgp", "_", some(40, _HEX))),
    "CircleCI": ("https://circleci.com/docs/managing-api-tokens", joined("CCI", "PAT_", some(22), "_", some(40, _HEX))),
    "SonarQube": ("sonar-api-token", joined("sq", "p_", some(40, _HEX))),
    "NVIDIA": ("https://docs.nvidia.com/ngc/latest/ngc-user-guide.html", joined("nvapi", "-", some(64))),
    "Hugging Face": ("huggingface-access-token", joined("hf", "_", some(34))),
    "Hugging Face, organization": ("huggingface-organization-api-token", joined("api", "_org_", some(34))),
    "OpenAI": ("openai-api-key", joined("sk", "-", some(20), "T3BlbkFJ", some(20))),
    "OpenAI, project": ("openai-api-key", joined("sk", "-proj-", some(74), "T3BlbkFJ", some(74))),
    "OpenAI, service": ("openai-api-key", joined("sk", "-svcacct-", some(74))),
    "Anthropic": ("anthropic-api-key", joined("sk", "-ant-api03-", some(93), "AA")),
    "Anthropic, admin": ("anthropic-admin-api-key", joined("sk", "-ant-admin01-", some(93), "AA")),
    "OpenRouter": ("https://openrouter.ai/docs/api-reference/authentication", joined("sk", "-or-v1-", some(64, _HEX))),
    "Groq": ("https://console.groq.com/docs", joined("gsk", "_", some(52))),
    "xAI": ("https://docs.x.ai", joined("xai", "-", some(80))),
    "Perplexity": ("perplexity-api-key", joined("pplx", "-", some(48))),
    "Replicate": ("https://replicate.com/docs/reference/http", joined("r", "8_", some(37))),
    "LangSmith": ("https://docs.smith.langchain.com", joined("lsv2", "_pt_", some(32, _HEX), "_", some(10, _HEX))),
    "Weights & Biases": ("https://docs.wandb.ai", joined("wandb", "_v1_", some(60))),
    "Databricks": ("databricks-api-token", joined("da", "pi", some(32, _HEX))),
    "Grafana": ("grafana-service-account-token", joined("gl", "sa_", some(32), "_", some(8, _HEX))),
    "Grafana, cloud": ("grafana-cloud-api-token", joined("gl", "c_", some(60))),
    "New Relic": ("new-relic-user-api-key", joined("NR", "AK-", some(27, _UP))),
    "Sentry": ("sentry-user-token", joined("sntry", "u_", some(64, _HEX))),
    "AWS": ("aws-access-token", joined("AK", "IA", some(16, _UP))),
    "AWS, temporary": ("aws-access-token", joined("AS", "IA", some(16, _UP))),
    "AWS Bedrock": ("aws-amazon-bedrock-api-key-long-lived", joined("AB", "SK", some(120))),
    "Google": ("gcp-api-key", joined("AI", "za", some(35))),
    "Google, OAuth": ("https://developers.google.com/identity/protocols/oauth2", joined("ya", "29.", some(60))),
    "Alibaba": ("alibaba-access-key-id", joined("LT", "AI", some(20))),
    "DigitalOcean": ("digitalocean-pat", joined("dop", "_v1_", some(64, _HEX))),
    "DigitalOcean, OAuth": ("digitalocean-access-token", joined("doo", "_v1_", some(64, _HEX))),
    "Cloudflare": ("cloudflare-origin-ca-key", joined("v1", ".0-", some(24, _HEX), "-", some(146, _HEX))),
    "Heroku": ("heroku-api-key-v2", joined("HR", "KU-AA", some(58))),
    "PlanetScale": ("planetscale-api-token", joined("pscale", "_tkn_", some(43))),
    "Tailscale": ("https://tailscale.com/kb/1277/key-prefixes", joined("tskey", "-auth-", some(12), "-", some(30))),
    "OpenShift": ("openshift-user-token", joined("sha256", "~", some(43))),
    "Vault": ("vault-service-token", joined("hv", "s.", some(90))),
    "Vault, batch": ("vault-batch-token", joined("hv", "b.", some(140))),
    "Terraform": ("hashicorp-tf-api-token", joined(some(14), ".atlasv1.", some(67))),
    "Pulumi": ("pulumi-api-token", joined("pul", "-", some(40, _HEX))),
    "Slack, bot": ("slack-bot-token", joined("xox", "b-", "123456789012-", some(24))),
    "Slack, user": ("slack-user-token", joined("xox", "p-", "123456789012-", some(32))),
    "Slack, app": ("slack-app-token", joined("xapp", "-1-", some(11, _UP), "-", some(64, _LOW))),
    "Stripe": ("stripe-access-token", joined("sk", "_live_", some(24))),
    "Stripe, restricted": ("stripe-access-token", joined("rk", "_test_", some(24))),
    "Stripe, webhook": ("https://docs.stripe.com/webhooks", joined("whsec", "_", some(32))),
    "SendGrid": ("sendgrid-api-token", joined("S", "G.", some(22), ".", some(43))),
    "age": ("age-secret-key", joined("AGE-SECRET", "-KEY-1", some(58, "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"))),
    "JSON web token": ("jwt", joined("ey", "J", some(33), ".ey", "J", some(60), ".", some(43))),
    "JSON web token without a signature": ("jwt", joined("ey", "J", some(33), ".ey", "J", some(60), ".")),
    "JSON web token, encrypted": ("https://www.rfc-editor.org/rfc/rfc7516", joined("ey", "J", some(30), "..", some(16), ".", some(40), ".", some(22))),
}  # fmt: skip


@pytest.mark.parametrize(
    "around",
    [
        "{}", "log: {} was refused", "a\n-{}\n", 'x="{}",', "\\n{}\\n", "https://x/?a={}&b=1", "\x1b[31m{}\x1b[0m",
        "db:5432:*:ada:{}", "machine x login ada password {}", "<password>{}</password>", '{"auth": "{}"}', "- key: {} #",
    ],
)  # fmt: skip
def test_a_token_goes_wherever_it_stands(around: str) -> None:
    for name, (_, token) in TOKENS.items():
        clean = Redactor({}).text(around.replace("{}", token))
        assert "***" in clean, name
        assert token[-12:] not in clean, name
        assert token[-24:-12] not in clean, name


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_token_goes_that_a_line_break_divides(newline: str) -> None:
    for name, (_, token) in TOKENS.items():
        for place in range(10, len(token) - 8, 7):
            text = (
                f"the process of rank 0 printed the following token: {token[:place]}{newline}{token[place:]} and ended"
            )
            clean = Redactor({}).text(text)
            assert clean.endswith(" and ended"), name
            assert clean.count(newline) == 1, name
            assert token[:8] not in clean or token[place:][:6] not in clean, (name, clean)
            assert token[place:][-7:] not in clean, (name, clean)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("<password>correct horse</password>", "<password>***</password>"),
        ('<add:apiKey id="1">0a1b2c</add:apiKey>', '<add:apiKey id="1">***</add:apiKey>'),
        ("a\ndb.example:5432:prod:ada:hunter2\nb", "a\ndb.example:5432:prod:ada:***\nb"),
        ("*:*:*:ada:hunter2!", "*:*:*:ada:***"),
        ("<tokenizer>GPT2BPETokenizer</tokenizer>", "<tokenizer>GPT2BPETokenizer</tokenizer>"),
        ("module.py:1553:12:error:x", "module.py:1553:12:error:x"),
    ],
)
def test_values_of_xml_and_pgpass_go(text: str, clean: str) -> None:
    assert Redactor({}).text(text) == clean


def test_tokens_go_without_anything_between_them() -> None:
    for (name, (_, first)), (other, (_, second)) in itertools.product(TOKENS.items(), repeat=2):
        if not second.startswith("ey"):  # such a token begins a word
            clean = Redactor({}).text(f"told: {first}{second}")
            assert first[-12:] not in clean, (name, other)
            assert second[-12:] not in clean, (name, other)


@pytest.mark.parametrize("cut", ["…", "...", "<...>its_end-1"])
def test_a_stump_of_a_secret_goes(cut: str) -> None:
    tokens = {**{name: token for name, (_, token) in TOKENS.items()}, "held": SECRET}
    tokens["an address"] = "https://ada:a-password-of-hers@x.example/"
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
    ],
)
def test_credentials_in_addresses_and_headers_go(text: str, clean: str) -> None:
    assert Redactor({}).text(text) == clean


@pytest.mark.parametrize(
    "kind", ["PRIVATE KEY", "RSA PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"]
)
def test_a_private_key_goes(kind: str) -> None:
    for text in (
        pem(kind),
        pem(kind).replace("\n", "\\n"),
        pem(kind).replace("\n", "\r\n"),
        "".join(f"2026-05-07T03:12:00.1Z [0]: {line}\n" for line in pem(kind).splitlines()),
        pem(kind).replace("\n", " "),
        pem(kind).partition("-----END")[0],
    ):
        clean = Redactor({}).text(f"before\n{text}")
        assert clean.startswith("before\n")
        for line in _PEM_BODY.split():
            assert line not in clean


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


def test_nothing_prints_the_secrets() -> None:
    assert "0123456789" not in repr(Redactor({"A_TOKEN": "0123456789"}))


@given(st.text(min_size=8).filter(lambda text: "*" not in text), st.text(), st.text())
def test_no_value_survives(secret: str, before: str, after: str) -> None:
    assert secret not in Redactor({"A_TOKEN": secret}).text(before + secret + after)


#: What CI and people write, and what is no secret.
STAYS = [
    "5fe3f066585fe3f066585fe3f06658abcdef0123", "commit 5fe3f066585fe3f066585fe3f06658abcdef0123 (HEAD -> main)",
    "sha256:" + "0123456789abcdef" * 4, "nvcr.io/nvidia/pytorch@sha256:" + "0a" * 32, "sha512-" + "a1B2" * 21 + "ab==",
    "--hash=sha256:" + "0123456789abcdef" * 4, "index 5fe3f06..a1b2c3d 100644", "md5 d41d8cd98f00b204e9800998ecf8427e",
    "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/module.py:1553",
    "tests/functional_tests/test_cases/gpt/gpt3_mcore_te_tp1_pp4_vp1_dist_optimizer_overlap_grad_reduce/model_config.yaml",
    "/workspace/checkpoints/iter_0000100/mp_rank_00_000/model_optim_rng.pt",
    '{"lm loss": {"start_step": 1, "end_step": 100, "step_interval": 5, "values": {"1": 10.85921, "2": 10.8593}}}',
    '"mem-allocated-bytes": {"start_step": 0, "end_step": 34, "step_interval": 5, "values": [1767237120.0]}',
    '"num-zeros": {"values": [1234567890, 2345678901]}', '"iteration-time": [12.64321, 0.33214]',
    " iteration 12/ 100 | consumed samples: 1234 | elapsed time per iteration (ms): 331.2 | lm loss: 1.234567E+00 |",
    "2026-05-07T03:12:00.1234567Z ##[group]Run actions/checkout@v4", "##[error]Process completed with exit code 1.",
    "[rank0]:[W507 03:12:00.123 ProcessGroupNCCL.cpp:1496] Warning: destroy_process_group() was not called",
    "NCCL version 2.27.3+cuda13.0", "NVIDIA Release 26.04 (build 123456789)", "torch==2.9.0a0+145a3a7bda.nv25.10",
    "CUDA_VERSION=13.0.2.006", "PATH=/usr/local/cuda/bin:/usr/bin", "PWD=/workspace/megatron-lm-2",
    "FAILED tests/unit_tests/test_a.py::test_b[1-bf16-True] - AssertionError: 0.1234 != 0.1235",
    'File "/opt/megatron-lm/megatron/core/tensor_parallel/layers.py", line 1234, in forward', "0x7f8a1c2d3e4f",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has 79.11 GiB",
    "next_token = torch.argmax(logits[:, -1])", "num_tokens: 40960000", "max_tokens=4096", "tokens_per_sec: 12345.67",
    "pad_token_id=128001", "eos_token: '<|im_end|>'", '"bos_token": "begin_of_text"', "tokenizer: GPT2BPETokenizer",
    "--tokenizer-model /mnt/artifacts/tokenizers/a1/tokenizer.model", "--seq-length 4096 --micro-batch-size 1",
    "secrets.GITHUB_TOKEN", "${{ secrets.NGC_API_KEY }}", "password: ${DB_PASSWORD}", "export NGC_API_KEY=$NGC_API_KEY",
    "TOKEN=$(cat /run/secrets/token)", "password: <your password>", "--password-stdin", "apiKey: '{{ api_key }}'",
    "The password: whatever was agreed on.", "secretKeyRef:", "key: linux-pip-5fe3f066585fe3f06658",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0a1b2c3d4e5f6g7h8i9j0k1l2m3n4o5p6q7r ada@x",
    "256 SHA256:uNiVztksCsDhcc0u9e8BrXJXVGDPkzLStBEUc1dVzcg github.com (ED25519)", "SHA256:abcdefghijklmnop",
    "550e8400-e29b-41d4-a716-446655440000", "https://github.com/NVIDIA/Megatron-LM/actions/runs/12345678901/job/98765432109",
    "https://nvcr.io/v2/nvidia/pytorch/manifests/26.04-py3", "https://api.github.com/repos/o/r/pulls?state=open&page=2",
    "https://x.org:8443/path/@scope/pkg", "git@github.com:NVIDIA/Megatron-LM.git", "ada@x.org", "docker run -u 1000:1000 image",
    "docker run -p 8080:80 image", "curl -sSL https://x.org/install.sh", "curl -u $USER:$TOKEN https://x", "author: Ada",
    "srun --container-image=nvcr.io#nvidia/pytorch:26.04-py3 --mpi=pmix", "#SBATCH --gpus-per-node=8",
    "pull-request/1234", "gpt3_tp1_pp2-2ab1", "dev-26.04-py3", "skip-learn-at-least-twenty-times", "task-1234567890abcdef",
    "-----BEGIN CERTIFICATE-----", "-----BEGIN PUBLIC KEY-----", "-----BEGIN PGP SIGNATURE-----", "Private key: not found",
    "Cookies are disabled.", "set-cookie", "basic knowledge", "bearer of bad news",
    "sess = tf.Session()", "session: 12 tests", "sig = inspect.signature(function)", "?signature=short", "AC power", "SK hynix",
    "a.b.c.d.e.f", "M" * 40, "eyJ", "eyJhbGciOiJub25lIn0", "SG.", "sq0", "s.split().rstrip().strip()", "dp.optimizer.step_function_name",
    "Step 3/12 : ARG FROM_IMAGE_NAME=nvcr.io/nvidia/pytorch:26.04-py3", "ENV TOKENIZERS_PARALLELISM false",
    "\x1b[36;1mpython -m pytest -x tests/unit_tests\x1b[0m", "\x1b[32m✓ passed\x1b[0m", "a\u200bb", "100%|\u2588\u2588| 12/12 [00:01<00:00]",
    "remote: Enumerating objects: 1234, done.", "Removing intermediate container 5fe3f066585f", "#7 sha256:0a1b2c3d 12.3MB / 45.6MB",
    "basic knowledge of the bearer", "authorization: needed", "pad_token=<|endoftext|>, max_token: 40960000", "GH_TOKEN: ${{ secrets.GH_TOKEN }}", "ask-for-sk-learn-at-least-twenty-times",
    "--tokenizer-type HuggingFaceTokenizer --hf-token hf_xxx", "sha256:" + "a" * 64, "short", "",
]  # fmt: skip


@pytest.mark.parametrize("text", STAYS)
def test_what_is_no_secret_stays(text: str) -> None:
    redactor = Redactor({"GITHUB_TOKEN": SECRET, "MY_KEY": "short", "HOME": "/home/ada", "KEYBOARD": "qwertz-full"})
    for around in ("{}", "2026-05-07T03:12:00.1234567Z {}", "{}\nnext line"):
        shown = around.replace("{}", text)
        assert redactor.text(shown) == shown
