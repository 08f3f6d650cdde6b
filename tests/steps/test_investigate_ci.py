"""The investigation of any CI run: named by its branch, or by none; with its pull request, and what its labels run."""

from collections.abc import Iterator

import pytest
from bumping import BRANCH, World, bump_to, git, world_after_ci

from runbook_lib.errors import RunbookError
from runbook_lib.steps import investigate_ci


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A bump whose first CI run has ended.  Only the current branch changes here."""
    with world_after_ci(tmp_path_factory.mktemp("world")) as made:
        yield made


def test_a_branch_represents_its_pull_request(at: World) -> None:
    by_branch = investigate_ci.look(at.checkout, at.github(), BRANCH)
    assert by_branch.place == investigate_ci.look(at.checkout, at.github(), "#10").place
    assert by_branch.pull is not None
    assert by_branch.pull.number == 10


def test_without_a_place_it_is_the_current_branch(at: World) -> None:
    git(at.checkout.path, "switch", "-q", BRANCH)
    assert investigate_ci.look(at.checkout, at.github(), "").pull is not None
    git(at.checkout.path, "switch", "-q", "-c", "local-work")
    alone = investigate_ci.look(at.checkout, at.github(), " ")
    assert alone.place is None
    assert "local-work" in alone.problem
    git(at.checkout.path, "switch", "-q", "--detach")
    assert investigate_ci.look(at.checkout, at.github(), "").place is None
    with pytest.raises(RunbookError, match="no-such-branch"):
        investigate_ci.look(at.checkout, at.github(), "no-such-branch")


def test_the_pull_request_and_what_its_labels_run_are_shown_and_recorded(at: World) -> None:
    found = investigate_ci.look(at.checkout, at.github(), "#10")
    pull = at.github().pull(10)
    text = found.show().text
    for part in (pull.title, pull.author, pull.base_ref, "Run functional tests", "scope L1", "5 repeats"):
        assert part in text
    step = at.step(bump_to(mode="preview"))
    investigate_ci.verify(step, found)
    assert at.said("given")[-1]["values"]["selected_tests"] == found.selection


def test_a_workflow_without_the_decision_tree_leaves_the_selection_unknown(
    at: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(investigate_ci, "WORKFLOW_FILE", "README.md")
    assert investigate_ci.look(at.checkout, at.github(), "#10").selection.startswith("unknown")
    monkeypatch.setattr(investigate_ci, "WORKFLOW_FILE", "no/such/file.yml")
    assert "does not exist" in investigate_ci.look(at.checkout, at.github(), "#10").selection
