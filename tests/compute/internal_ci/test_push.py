"""The push to GitLab over the protocols that git speaks: the token reaches its own host, and nobody else sees it."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from bumping import git
from git_served import Served, serve

from runbook_lib.compute.internal_ci import dry_run
from runbook_lib.errors import Refused
from runbook_lib.git.checkout import Checkout

TOKEN = "glpat-secret-of-a-person"
TO = "pull-request/bump/main/dev-26.04-py3"


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
    with serve(tmp_path) as server:
        yield server


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
    settings = dry_run._credentials(url, served.url)
    assert TOKEN not in str(settings)
    assert checkout.remote_tip("gitlab", TO, settings) is None
    head = checkout.resolve("HEAD")
    checkout.push("gitlab", TO, head, replaces="", settings=settings)
    assert checkout.remote_tip("gitlab", TO, settings) == head
    assert tips(checkout) == f"refs/heads/{TO} {head}"
    assert set(served.asked) == {f"oauth2:{TOKEN}"}
    assert "push" in trace.read_text()
    assert TOKEN not in trace.read_text()
    config = git(checkout.path, "config", "--list")
    assert TOKEN not in config
    assert "credential" not in config


def test_without_a_token_the_message_names_gits_need(checkout: Checkout, served: Served) -> None:
    url = f"{served.url}/adlr/megatron-lm.git"
    git(checkout.path, "remote", "add", "gitlab", url)
    with pytest.raises(Refused, match=r"could not read Username|Authentication failed|terminal prompts disabled"):
        checkout.push("gitlab", TO, checkout.resolve("HEAD"), replaces="")
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
    settings = dry_run._credentials(url, gitlab)
    assert list(settings) == ([f"credential.{given}.helper"] if given else [])


def test_over_ssh(checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = tmp_path / "ssh"
    stub.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/called\nfor last; do :; done\ncd {tmp_path} && eval "$last"\n')
    stub.chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", shlex.quote(str(stub)))
    monkeypatch.setenv("GITLAB_TOKEN", TOKEN)
    git(checkout.path, "remote", "add", "gitlab", "git@gitlab.example.com:adlr/megatron-lm.git")
    head = checkout.resolve("HEAD")
    checkout.push("gitlab", TO, head, replaces="")
    assert checkout.remote_tip("gitlab", TO) == head
    called = (tmp_path / "called").read_text()
    assert "BatchMode=yes git@gitlab.example.com git-receive-pack 'adlr/megatron-lm.git'" in called
    assert TOKEN not in called


def test_a_lease_that_no_longer_holds(checkout: Checkout, tmp_path: Path) -> None:
    git(checkout.path, "remote", "add", "gitlab", str(tmp_path / "adlr/megatron-lm.git"))
    first = checkout.resolve("HEAD")
    checkout.push("gitlab", TO, first, replaces="")
    git(checkout.path, "commit", "-q", "--amend", "--allow-empty", "-m", "Another")
    second = checkout.resolve("HEAD")
    for seen in ("", "0" * 39 + "1", second):
        with pytest.raises(Refused, match="stale info"):
            checkout.push("gitlab", TO, second, replaces=seen)
    assert tips(checkout).endswith(first)
    checkout.push("gitlab", TO, second, replaces=first)
    assert tips(checkout).endswith(second)
    assert tips(checkout).count("\n") == 0


def test_settings_come_after_those_of_the_environment(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    from runbook_lib.git import command

    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "user.nick")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "theirs")
    found = command.git(checkout.path, "config", "--get-regexp", r"^user\.(nick|own)$", settings={"user.own": "x"})
    assert found == "user.nick theirs\nuser.own x"
    assert command.git(checkout.path, "config", "--get", "user.nick") == "theirs"
