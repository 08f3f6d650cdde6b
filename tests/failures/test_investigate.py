"""The investigation of any CI run: named by its branch, or by none; with its pull request."""

from collections.abc import Iterator

import pytest
from bumping import BRANCH, World, after_ci, bump_to, git, world

from runbook_lib.display import View
from runbook_lib.errors import RunbookError
from runbook_lib.failures.investigate import InvestigateCi, Investigation
from runbook_lib.world.ports import World as Outside

BUMP = bump_to("", mode="preview")


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A bump whose first CI run has ended.  Only the current branch changes here."""
    with world(tmp_path_factory.mktemp("world"), after_ci) as made:
        yield made


def look(at: World, place: str = "", *, has_token: bool = True) -> Investigation:
    github = at.github() if has_token else None
    return InvestigateCi(place).look(Outside(at.checkout, github, at.steps[-1]), BUMP)


def test_a_branch_represents_its_pull_request(at: World) -> None:
    by_branch = look(at, BRANCH)
    assert by_branch.place == look(at, "#10").place
    assert by_branch.pull is not None
    assert by_branch.pull.number == 10


def test_without_a_place_it_is_the_current_branch(at: World) -> None:
    git(at.checkout.path, "switch", "-q", BRANCH)
    assert look(at).pull is not None
    git(at.checkout.path, "switch", "-q", "-c", "local-work")
    alone = look(at, " ")
    assert alone.place is None
    assert "local-work" in alone.problem
    assert "without a token" in look(at, has_token=False).problem
    at.run(InvestigateCi(), tag="")
    assert (at.said("checks"), "local-work" in at.outcome()) == ([], True)
    git(at.checkout.path, "switch", "-q", "--detach")
    assert look(at).place is None
    with pytest.raises(RunbookError, match="no-such-branch"):
        look(at, "no-such-branch")


def test_the_pull_request_and_the_labels_of_its_run_are_shown_and_recorded(at: World) -> None:
    before = at.state()
    at.run(InvestigateCi("#10"), tag="")
    assert at.state() == before
    assert at.checks() == {"every failed job has a cause": "passed"}
    assert "golden drift, hang" in at.outcome()
    folder = at.steps[-1].folder
    assert folder is not None
    files = (folder / "files.csv").read_text()
    assert all(name in files for name in ("docker/.ngc_version.dev", ".gitlab/stages/01.build.yml"))
    assert "OutOfMemoryError" in (folder / "failures.csv").read_text()
    found = look(at, "#10")
    given = at.said("inputs")
    assert (given["labels"], given["pull_request"]) == (["Run functional tests"], 10)
    (shown,) = InvestigateCi("#10").plan(found, BUMP).shown
    assert isinstance(shown, View)
    pull = at.github().pull(10)
    parts = (pull.title, pull.author, pull.base_ref, "Run functional tests", "pytorch:26.04-py3")
    assert [part for part in parts if part not in shown.text] == []
