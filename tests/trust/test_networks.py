"""Where requests go: nothing for this machine to a proxy, and no redirect inwards or to plain HTTP."""

import contextlib
import ipaddress
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from bumping import git
from hypothesis import given
from hypothesis import strategies as st
from loopback import Handler, secured, serving
from stores import remote

from runbook_lib.errors import RunbookError, Unreachable
from runbook_lib.images.reference import ImageRef
from runbook_lib.world.git import command
from runbook_lib.world.github.client import GitHub
from runbook_lib.world.gitlab.client import GitLab
from runbook_lib.world.registry import OciRegistry
from runbook_lib.world.transport.urls import may_redirect

TOKEN = "glpat-of-nobody"
PROXIES = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
INSIDE = [
    "127.0.0.1", "127.0.0.2", "127.255.255.254", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "::ffff:7f00:2",
    "localhost", "LocalHost",
]  # fmt: skip


def recorder(into: list[str], status: int = 200, **headers: str) -> type[Handler]:
    """A handler that notes each request with its headers, and gives always the same answer."""

    class Recorder(Handler):
        def do_GET(self) -> None:
            into.append(f"{self.requestline}\n{self.headers}")
            self.answer(b"{}", status, headers)

        do_POST = do_CONNECT = do_GET

    return Recorder


def ask_github(url: str) -> object:
    return GitHub("o/r", {"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": url}).me()


def ask_gitlab(url: str, transport: httpx.BaseTransport | None = None) -> object:
    env = {"GITLAB_URL": url, "GITLAB_TOKEN": TOKEN, "GITLAB_PROJECT": "a/b"}
    return GitLab(env, transport=transport).pipeline(1)


def ask_registry(url: str, transport: httpx.BaseTransport | None = None) -> object:
    env, ref = {"RUNBOOK_REGISTRY": url, "NGC_API_KEY": TOKEN}, ImageRef.parse("nvcr.io/nvidia/pytorch:26.04-py3")
    return OciRegistry(ref, env, transport=transport).tags()


def ask_for_a_part(url: str, transport: httpx.BaseTransport | None = None) -> object:
    return remote(f"{url}/1", transport).part(0, 1)


def ask_git(url: str) -> object:
    place = Path.cwd()
    git(place, "init", "-q")
    git(place, "config", "remote.origin.url", f"{url.replace('://', f'://ada:{TOKEN}@')}/o/r.git")
    return command.git(place, "ls-remote", "--", "origin", remote="origin")


CLIENTS: dict[str, Callable[[str], object]] = {
    "GitHub": ask_github, "GitLab": ask_gitlab, "registry": ask_registry, "parts": ask_for_a_part, "git": ask_git,
}  # fmt: skip


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., list[str]]]:
    """Sets variables to a proxy of our own, and gives the list of what the proxy was asked."""
    asked: list[str] = []
    monkeypatch.chdir(tmp_path)
    for name in (*PROXIES, "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with serving(recorder(asked, 502)) as url:

        def use(*names: str) -> list[str]:
            for name in names:
                monkeypatch.setenv(name, url)
            return asked

        yield use


@pytest.mark.parametrize("client", CLIENTS)
def test_nothing_for_this_machine_goes_to_a_proxy(
    client: str, proxied: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    through_proxy = proxied(*PROXIES)
    for number, host in enumerate(("127.0.0.1", "localhost", "127.0.0.2")):
        monkeypatch.setenv("NO_PROXY", ("", "example.com", "127.0.0.1.example.com,.localhost")[number])
        direct: list[str] = []
        # "{}" is no answer of any of them
        with serving(recorder(direct), host) as url, contextlib.suppress(RunbookError):
            CLIENTS[client](url)
        assert direct
        assert through_proxy == []


OUTSIDE_TO_INSIDE = [
    *(f"{scheme}://{f'[{host}]' if ':' in host else host}:8080/x" for host in INSIDE for scheme in ("http", "https")),
    "http://127.1/", "https://127.1/", "https://0x7f.0.0.1/", "https://2130706433/", "https://0177.0.0.1/",
    "https://localhost./", "https://a.localhost/", "https://0.0.0.0/", "https://[::]/",
    "http://10.0.0.1/", "https://10.0.0.1/", "https://192.168.1.1/", "https://172.16.0.1/", "https://169.254.169.254/",
    "http://169.254.169.254/latest/meta-data/", "https://[fe80::1]/", "https://[fd00::1]/", "https://100.64.0.1/",
    "https://[::ffff:10.0.0.1]/", "http://forge.example/", "http://other.example/", "ftp://other.example/",
    "file:///etc/passwd", "gopher://127.0.0.1/", "//127.0.0.1/", "///etc/passwd", "http:/127.0.0.1", "http://[::1",
    "https://", "https://forge.example@127.0.0.1/", "https://127.0.0.1#@forge.example/",
]  # fmt: skip


def answering(location: str, asked: list[str], *, asks_for_token: bool = False) -> httpx.MockTransport:
    """Everything redirects: forge.example itself, or its token service, and what it leads to."""

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        if request.url.host == "forge.example" and asks_for_token:
            realm = {"WWW-Authenticate": f'Bearer realm="{location}"'}
            return httpx.Response(404 if request.url.path == "/token" else 401, headers=realm)
        if request.url.host == "forge.example":
            return httpx.Response(302, headers={"Location": location})
        return httpx.Response(206, content=b"x", headers={"Content-Range": "bytes 0-0/1"})

    return httpx.MockTransport(answer)


@pytest.mark.parametrize("asks_for_token", [False, True])
@pytest.mark.parametrize("ask", [ask_for_a_part, ask_registry, ask_gitlab])
def test_neither_redirect_nor_token_service_leads_inwards_or_to_plain_http(
    ask: Callable[[str, httpx.BaseTransport], object], asks_for_token: bool
) -> None:
    for location in OUTSIDE_TO_INSIDE:
        asked: list[str] = []
        with pytest.raises(RunbookError):
            ask("https://forge.example", answering(location, asked, asks_for_token=asks_for_token))
        assert {(httpx.URL(url).scheme, httpx.URL(url).host) for url in asked} == {("https", "forge.example")}, location


def test_no_redirect_leads_inwards_by_a_detour() -> None:
    """From this machine to the network is allowed; back again is not."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        there = "https://storage.example/" if request.url.host == "127.0.0.1" else "http://127.0.0.1:9/secret"
        return httpx.Response(302, headers={"Location": there})

    with pytest.raises(Unreachable):
        ask_for_a_part("http://127.0.0.1:8", httpx.MockTransport(answer))
    assert asked == ["http://127.0.0.1:8/1", "https://storage.example/"]


@given(st.integers(0, 2**32 - 1), st.sampled_from([str, lambda it: str(int(it)), lambda it: hex(int(it))]))
def test_every_spelling_of_an_address_is_read(number: int, spelled: Callable[[ipaddress.IPv4Address], str]) -> None:
    address = ipaddress.IPv4Address(number)
    allowed = may_redirect(("https", "forge.example"), ("https", spelled(address)))
    assert allowed == address.is_global


@pytest.mark.parametrize("client", CLIENTS)
def test_https_does_not_lead_to_plain_http(client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    context = secured(tmp_path / "both.pem")
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO"):
        monkeypatch.setenv(name, str(tmp_path / "both.pem"))
    first: list[str] = []
    second: list[str] = []
    with serving(recorder(second)) as plain:
        # git appends nothing to a Location: it must end as what it asked for.
        location = f"{plain}/o/r.git/info/refs?service=git-upload-pack"
        redirecting = serving(recorder(first, 302, Location=location), context=context)
        with redirecting as url, pytest.raises(RunbookError):
            CLIENTS[client](url)
    assert first
    assert second == []
