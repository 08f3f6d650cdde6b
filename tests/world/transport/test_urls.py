"""Which addresses a token may be sent to: those of GITHUB_API_URL, GITLAB_URL and RUNBOOK_REGISTRY."""

from collections.abc import Callable

import httpx
import pytest

from runbook_lib.errors import RunbookError
from runbook_lib.world import registry
from runbook_lib.world.github.client import GitHub
from runbook_lib.world.gitlab.client import GitLab
from runbook_lib.world.transport import urls


@pytest.mark.parametrize(
    "text",
    [
        "https://api.github.com", "https://ghe.example.com/api/v3", "https://ghe.example.com:8443/api/v3/",
        "http://127.0.0.1:4711", "http://localhost/gitlab", "http://[::1]:80", "https://[fe80::1]", "https://10.0.0.7",
    ],
)  # fmt: skip
def test_an_address_of_the_web_is_taken_as_it_stands(text: str) -> None:
    assert urls.service_address("X", text, "y") == text


NO_ADDRESS = [
    "", "forge.test", "ftp://forge.test", "file:///etc/passwd", "https://", "https:///path", "//forge.test",
    "https://me:hush@forge.test", "https://:hush@forge.test", "https://me@forge.test", "https://hush@127.0.0.1",
    "https://forge.test?token=hush", "https://forge.test/#hush", "https://forge.test:0", "https://forge.test:99999",
    "https://forge.test:1x", "https://forge.test\n.evil.test", "https://forge.test\\@evil.test",
    "https://forge.test%2f@evil.test", "https://forge.test /x", " https://forge.test", "https://førge.test",
    "https://forge.test/\x1b[31m", "https://[::1", "https://-forge.test",
]  # fmt: skip
IN_CLEAR = [
    "http://forge.test", "http://forge.test/api/v3", "http://10.0.0.7", "http://127.0.0.1.evil.test", "http://[::2]",
    "http://127.1", "http://0.0.0.0", "http://localhost.evil.test",
]  # fmt: skip


def github(url: str) -> object:
    return GitHub("o/r", {"GITHUB_TOKEN": "x", "GITHUB_API_URL": url}, httpx.MockTransport(_never))


def gitlab(url: str) -> object:
    return GitLab({"GITLAB_URL": url, "GITLAB_TOKEN": "x", "GITLAB_PROJECT": "a/b"})


def _never(request: httpx.Request) -> httpx.Response:
    raise AssertionError(f"{request.url} was asked")


@pytest.mark.parametrize("connect", [github, gitlab])
@pytest.mark.parametrize(
    ("url", "words"),
    [(url, "is not a URL such as https://") for url in NO_ADDRESS] + [(url, "plain http://") for url in IN_CLEAR],
)
def test_the_token_goes_nowhere_else(connect: Callable[[str], object], url: str, words: str) -> None:
    if (connect is github and not url) or (connect is gitlab and url != url.strip()):
        return  # GitHub's own; taken without the space around it
    with pytest.raises(RunbookError) as caught:
        connect(url)
    assert words in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("url", [*NO_ADDRESS, "https://forge.test/v2"])
def test_a_registry_has_scheme_host_and_port_alone(url: str) -> None:
    with pytest.raises(RunbookError) as caught:
        registry._parse_address(url)
    assert "hush" not in str(caught.value)
