"""git as it really is: clones, remotes, hooks and locks in tmp_path."""

import _thread
import contextlib
import threading
from pathlib import Path

import pytest
from clones import git, state
from stand_ins import stand_in
from waiting import wait_until

from runbook_lib.errors import Refused, RunbookError, Unreachable
from runbook_lib.world.git.checkout import Checkout, slug_of


def test_a_bare_repository_is_read_and_not_edited(remote: Path) -> None:
    bare = Checkout.open(remote)
    assert bare.bare
    assert bare.read(["pin", "missing"], "main") == {"pin": "old\r\n", "missing": None}
    with pytest.raises(Refused, match="bare repository"):
        bare.require_work_tree()


def test_reading_keeps_every_byte(checkout: Checkout) -> None:
    for ref in (None, "HEAD"):
        text = checkout.read(["odd\xa0name"], ref)["odd\xa0name"]
        assert text is not None
        assert text.encode("utf-8", "surrogateescape") == b"\xff\xfe no utf-8"


def test_a_branch_is_known_by_its_whole_name(checkout: Checkout) -> None:
    checkout.git("branch", "release/1")
    assert (checkout.branch_tip("release"), checkout.tracked_tip("origin", "core")) == (None, None)
    assert checkout.branch_tip("release/1") == checkout.tracked_tip("origin", "main") == checkout.resolve("HEAD")


def test_fetch_brings_the_commit_and_moves_no_ref(checkout: Checkout, remote: Path, tmp_path: Path) -> None:
    git(remote, "clone", "-q", ".", str(tmp_path / "other"))
    git(tmp_path / "other", "commit", "-q", "--allow-empty", "-m", "newer")
    git(tmp_path / "other", "push", "-q")
    before = state(checkout)
    tip = checkout.fetch("origin", "main")
    assert tip == git(remote, "rev-parse", "main")
    assert checkout.has(tip)
    assert state(checkout) == before


@pytest.mark.parametrize(
    ("remote_name", "branch", "error", "says"),
    [
        ("origin", "gone", RunbookError, "does not exist on the remote"),
        ("fork", "main", RunbookError, "has no remote named 'fork'"),
        (".", "main", RunbookError, "has no remote named '.'"),  # git would take these for repositories
        ("", "main", RunbookError, "has no remote named ''"),
        ("broken", "main", Unreachable, "could not be read"),
    ],
)
def test_fetch_reports_the_problem(
    checkout: Checkout, remote_name: str, branch: str, error: type[RunbookError], says: str
) -> None:
    checkout.git("remote", "add", "broken", "/does/not/exist")
    with pytest.raises(error, match=says):
        checkout.fetch(remote_name, branch)


def test_credentials_in_a_remote_never_show(checkout: Checkout) -> None:
    checkout.git("remote", "set-url", "origin", "https://user:s3cr%40t@127.0.0.1:1/o/n.git")
    asks = (
        lambda: checkout.remote_tip("origin", "main"),
        lambda: checkout.fetch("origin", "main"),
        lambda: checkout.push("origin", "main", "main", replaces=""),
    )
    for ask in asks:
        with pytest.raises((Unreachable, Refused)) as caught:
            ask()
        assert "127.0.0.1:1/o/n.git" in str(caught.value)
        assert "s3cr" not in str(caught.value)
    assert "s3cr" not in str(checkout.remote_url("origin"))
    assert checkout.repository() == "o/n"


def test_push_never_forces(checkout: Checkout, remote: Path) -> None:
    git(checkout.path, "switch", "-qc", "bump")
    git(checkout.path, "commit", "-q", "--allow-empty", "-m", "one")
    checkout.push("origin", "bump", "bump", replaces="")
    assert git(remote, "rev-parse", "bump") == checkout.resolve("HEAD")
    checkout.git("reset", "-q", "--hard", "main")
    git(checkout.path, "commit", "-q", "--allow-empty", "-m", "other")
    with pytest.raises(Refused, match=r"did not accept the branch .* The branch there has moved since it was read"):
        checkout.push("origin", "bump", "bump", replaces="")


@pytest.mark.parametrize(
    ("url", "slug"),
    [
        ("https://github.com/NVIDIA/Megatron-LM.git", "NVIDIA/Megatron-LM"),
        ("git@github.com:NVIDIA/Megatron-LM.git", "NVIDIA/Megatron-LM"),
        ("ssh://git@host:22/o/n", "o/n"),
        ("/srv/git/o/n.git", "o/n"),
    ],
)
def test_slug(url: str, slug: str) -> None:
    assert slug_of(url) == slug


def test_a_local_path_below_one_folder_names_no_repository() -> None:
    with pytest.raises(RunbookError, match="has no owner/name"):
        slug_of("n.git")


def test_variables_of_a_git_hook_do_not_bind_us_to_its_index(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    assert checkout.uncommitted(["pin"]) == []


def test_a_git_of_this_machine_comes_to_its_own_end_when_interrupted(checkout: Checkout) -> None:
    stand_in(checkout.path / ".git/hooks", "post-checkout", "touch begun\nsleep 0.2\ntouch done")

    def interrupt() -> None:
        wait_until((checkout.path / "begun").exists)
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with contextlib.suppress(KeyboardInterrupt):
        checkout.git("switch", "--quiet", "-c", "other")
        thread.join()
    assert (checkout.path / "done").exists()
