"""Credentials that stand in a remote's address."""

from pathlib import Path

import pytest
from bumping import git

from runbook_lib.errors import Refused, Unreachable
from runbook_lib.git.checkout import Checkout


def test_refusals_are_reported_without_them(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main", "checkout")
    git(tmp_path / "checkout", "commit", "-q", "--allow-empty", "-m", "One")
    git(tmp_path / "checkout", "remote", "add", "origin", "http://ada:s3cr%40t@127.0.0.1:1/x.git")
    checkout = Checkout.open(tmp_path / "checkout")
    with pytest.raises(Refused) as push:
        checkout.push("origin", "main", "main")
    with pytest.raises(Unreachable) as asked:
        checkout.fetch("origin", "main")
    for told in (str(push.value), str(asked.value)):
        assert "127.0.0.1:1/x.git" in told
        assert "s3cr" not in told
