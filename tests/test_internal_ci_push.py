"""The push to GitLab over the protocols that git speaks: the token reaches its own host, and nobody else sees it."""

import base64
import os
import shlex
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from bumping import git

from runbook_lib import internal_ci_ahead
from runbook_lib.checkout import Checkout
from runbook_lib.errors import Refused

TOKEN = "glpat-secret-of-a-person"
TO = "pull-request/bump/main/dev-26.04-py3"


class Served:
    """A bare repository behind HTTP, which asks who one is; ``asked`` are the passwords that were given."""

    def __init__(self, root: Path) -> None:
        self.root, self.url = root, ""
        self.asked: list[str] = []

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        given = handler.headers.get("Authorization", "")
        size = int(handler.headers.get("Content-Length") or 0)
        body = handler.rfile.read(size)
        if not given:
            handler.send_response(401)
            handler.send_header("WWW-Authenticate", 'Basic realm="GitLab"')
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        self.asked.append(base64.b64decode(given.removeprefix("Basic ")).decode())
        path, _, query = handler.path.partition("?")
        env = {
            "GIT_PROJECT_ROOT": str(self.root), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path, "QUERY_STRING": query,
            "REQUEST_METHOD": handler.command, "CONTENT_TYPE": handler.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(size), "REMOTE_USER": "somebody",
            "HTTP_CONTENT_ENCODING": handler.headers.get("Content-Encoding", ""), "PATH": os.environ["PATH"],
        }  # fmt: skip
        done = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True, check=True)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
        handler.send_response(int(headers.pop("Status", "200 OK").split()[0]))
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A clone with one commit, and beside it the bare repository adlr/megatron-lm."""
    git(tmp_path, "init", "-q", "--bare", "adlr/megatron-lm.git")
    git(tmp_path, "-C", "adlr/megatron-lm.git", "config", "http.receivepack", "true")
    git(tmp_path, "init", "-q", "checkout")
    git(tmp_path / "checkout", "commit", "-q", "--allow-empty", "-m", "One")
    return Checkout.open(tmp_path / "checkout")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.answer(self)

        do_POST = do_GET  # noqa: N815 - the name that http.server calls

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    made.url = f"http://127.0.0.1:{server.server_port}"
    yield made
    server.shutdown()
    server.server_close()


def tips(checkout: Checkout) -> str:
    return git(checkout.path.parent / "adlr/megatron-lm.git", "for-each-ref", "--format=%(refname) %(objectname)")


def test_the_token_opens_https_and_is_seen_nowhere(
    checkout: Checkout, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{served.url}/adlr/megatron-lm.git"
    git(checkout.path, "remote", "add", "gitlab", url)
    trace = tmp_path / "trace"
    monkeypatch.setenv("GIT_TRACE", str(trace))  # every command line that git starts
    monkeypatch.setenv("GITLAB_TOKEN", TOKEN)
    settings = internal_ci_ahead._credentials(url, served.url)
    assert TOKEN not in str(settings)
    assert checkout.remote_tip("gitlab", TO, settings) is None
    head = checkout.resolve("HEAD")
    checkout.push_commit("gitlab", head, TO, seen=None, settings=settings)
    assert checkout.remote_tip("gitlab", TO, settings) == head
    assert tips(checkout) == f"refs/heads/{TO} {head}"
    assert set(served.asked) == {f"oauth2:{TOKEN}"}
    assert "push" in trace.read_text()
    assert TOKEN not in trace.read_text()
    config = git(checkout.path, "config", "--list")
    assert TOKEN not in config
    assert "credential" not in config


def test_without_a_token_it_is_said_that_git_needs_one(checkout: Checkout, served: Served) -> None:
    url = f"{served.url}/adlr/megatron-lm.git"
    git(checkout.path, "remote", "add", "gitlab", url)
    with pytest.raises(Refused, match=r"could not read Username|Authentication failed|terminal prompts disabled"):
        checkout.push_commit("gitlab", checkout.resolve("HEAD"), TO, seen=None)
    assert served.asked in ([], [":"])
    assert tips(checkout) == ""


@pytest.mark.parametrize(
    ("url", "gitlab", "given"),
    [
        ("https://gitlab.example.com/a/b.git", "https://gitlab.example.com", "https://gitlab.example.com"),
        ("https://gitlab.example.com:8443/a/b", "https://gitlab.example.com:8443", "https://gitlab.example.com:8443"),
        ("https://gitlab.example.com:443/a/b", "https://gitlab.example.com", "https://gitlab.example.com:443"),
        ("https://gitlab.example.com:8443/a/b", "https://gitlab.example.com", ""),  # perhaps another's server
        ("https://gitlab.example.com/a/b", "https://gitlab.example.com:8443", ""),
        ("http://localhost/a/b", "https://localhost", ""),
        ("https://gitlab.example.com/a/b.git", "https://gitlab.example.com/below", "https://gitlab.example.com"),
        ("http://127.0.0.1:80/a/b", "http://127.0.0.1", "http://127.0.0.1:80"),
        ("http://127.0.0.1:80/a/b", "http://127.0.0.1:81", ""),
        ("http://gitlab.example.com/a/b", "http://gitlab.example.com", ""),  # in the clear
        ("https://other.example.com/a/b", "https://gitlab.example.com", ""),
        ("ssh://git@gitlab.example.com/a/b", "https://gitlab.example.com", ""),
        ("git@gitlab.example.com:a/b", "https://gitlab.example.com", ""),
        ("/srv/a", "https://gitlab.example.com", ""),
    ],
)
def test_for_which_addresses_git_may_ask_for_the_token(url: str, gitlab: str, given: str) -> None:
    settings = internal_ci_ahead._credentials(url, gitlab)
    assert list(settings) == ([f"credential.{given}.helper"] if given else [])


def test_over_ssh(checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = tmp_path / "ssh"
    stub.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/called\nfor last; do :; done\ncd {tmp_path} && eval "$last"\n')
    stub.chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", shlex.quote(str(stub)))
    monkeypatch.setenv("GITLAB_TOKEN", TOKEN)
    git(checkout.path, "remote", "add", "gitlab", "git@gitlab.example.com:adlr/megatron-lm.git")
    head = checkout.resolve("HEAD")
    checkout.push_commit("gitlab", head, TO, seen=None)
    assert checkout.remote_tip("gitlab", TO) == head
    called = (tmp_path / "called").read_text()
    assert "BatchMode=yes git@gitlab.example.com git-receive-pack 'adlr/megatron-lm.git'" in called
    assert TOKEN not in called


def test_a_lease_that_no_longer_holds(checkout: Checkout, tmp_path: Path) -> None:
    git(checkout.path, "remote", "add", "gitlab", str(tmp_path / "adlr/megatron-lm.git"))
    first = checkout.resolve("HEAD")
    checkout.push_commit("gitlab", first, TO, seen=None)
    git(checkout.path, "commit", "-q", "--amend", "--allow-empty", "-m", "Another")
    second = checkout.resolve("HEAD")
    for seen in (None, "0" * 39 + "1", second):
        with pytest.raises(Refused, match="look again"):
            checkout.push_commit("gitlab", second, TO, seen=seen)
    assert tips(checkout).endswith(first)
    checkout.push_commit("gitlab", second, TO, seen=first)
    assert tips(checkout).endswith(second)
    assert tips(checkout).count("\n") == 0


def test_settings_come_after_those_of_the_environment(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    from runbook_lib import git_command

    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "user.nick")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "theirs")
    found = git_command.git(checkout.path, "config", "--get-regexp", r"^user\.(nick|own)$", settings={"user.own": "x"})
    assert found == "user.nick theirs\nuser.own x"
    assert git_command.git(checkout.path, "config", "--get", "user.nick") == "theirs"
