"""Credentials that stand in a remote's address: git is told them where no list of processes shows them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from bumping import git
from git_served import Served, serve

from runbook_lib.errors import Refused, Unreachable
from runbook_lib.git.checkout import Checkout

SECRET = "s3cr%40t+of-a-person"
SPELLED = "s3cr@t+of-a-person"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    git(tmp_path, "init", "-q", "--bare", "o/r.git")
    git(tmp_path, "-C", "o/r.git", "config", "http.receivepack", "true")
    with serve(tmp_path) as made:
        yield made


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    git(tmp_path, "init", "-q", "-b", "main", "checkout")
    git(tmp_path / "checkout", "commit", "-q", "--allow-empty", "-m", "One")
    return Checkout.open(tmp_path / "checkout")


def configured(checkout: Checkout, how: str, url: str) -> None:
    """A remote ``origin`` that leads to this address in one of the ways that git knows."""
    for name, value in {
        "url": [("remote.origin.url", url)],
        "an address to push to": [("remote.origin.url", url.replace("http:", "no:")), ("remote.origin.pushurl", url)],
        "a rule": [(f"url.{url.removesuffix('r.git')}.insteadOf", "forge:"), ("remote.origin.url", "forge:r.git")],
        "a rule to push": [
            (f"url.{url.removesuffix('r.git')}.pushInsteadOf", "no:"), ("remote.origin.url", "no:r.git"),
        ],
    }[how]:  # fmt: skip
        git(checkout.path, "config", name, value)


@pytest.mark.parametrize("how", ["url", "an address to push to", "a rule", "a rule to push"])
@pytest.mark.parametrize("user", ["ada:", ""])
def test_no_process_shows_them_and_git_knows_them(
    checkout: Checkout, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, user: str
) -> None:
    configured(checkout, how, f"{served.url.replace('://', f'://{user}{SECRET}@')}/o/r.git")
    # A person's own helpers: they would answer otherwise, and be told what is none of their business.
    own = f'!f() {{ echo "$1" >> {tmp_path}/helped; echo username=x; echo password=y; }}; f'
    for name in ("credential.helper", f"credential.{served.url}.helper"):
        git(checkout.path, "config", name, own)
    before = (checkout.path / ".git/config").read_bytes()
    monkeypatch.setenv("GIT_TRACE", str(tmp_path / "trace"))  # every command line that git starts
    checkout.push("origin", "main", "main")
    if "push" not in how:
        assert checkout.fetch("origin", "main") == checkout.resolve("HEAD")
    assert git(tmp_path / "o/r.git", "rev-parse", "main") == checkout.resolve("HEAD")
    assert set(served.asked) == {f"ada:{SPELLED}" if user else f"{SPELLED}:"}
    traced = (tmp_path / "trace").read_text()
    assert "git remote-http" in traced
    assert not [line for line in traced.splitlines() if "s3cr" in line]
    assert not (tmp_path / "helped").exists()
    assert (checkout.path / ".git/config").read_bytes() == before


def test_another_remote_of_the_checkout_uses_the_users_own_helper(
    checkout: Checkout, served: Served, tmp_path: Path
) -> None:
    git(checkout.path, "remote", "add", "origin", f"{served.url}/o/r.git")
    git(checkout.path, "remote", "add", "mine", f"{served.url.replace('://', f'://{SECRET}@')}/o/r.git")
    git(checkout.path, "config", "credential.helper", "!f() { echo username=own; echo password=helper; }; f")
    checkout.push("origin", "main", "main")
    assert set(served.asked) == {"own:helper"}


def test_refusals_are_reported_without_them(checkout: Checkout, tmp_path: Path) -> None:
    configured(checkout, "url", f"http://ada:{SECRET}@127.0.0.1:1/x.git")
    with pytest.raises(Refused) as push:
        checkout.push("origin", "main", "main")
    with pytest.raises(Unreachable) as asked:
        checkout.fetch("origin", "main")
    for told in (str(push.value), str(asked.value)):
        assert "127.0.0.1:1/x.git" in told
        assert "s3cr" not in told
