"""What kind a commit is: the record says so, else its files do; its title never does."""

import pytest
from bumping import World, bump_to, git
from clones import commit

from runbook_lib.bump import branch_history
from runbook_lib.world.bump_branch import BumpBranch

GOLDEN = "tests/functional_tests/test_cases/gpt/gpt3_mcore_te_tp1_pp1/golden_values_dev_dgx_h100.json"
RECIPE = "tests/test_utils/recipes/h100/gpt.yaml"
TITLE = "test: refresh golden values for 26.04-py3"


@pytest.mark.parametrize(
    ("path", "title", "kind", "expected"),
    [
        (GOLDEN, "anything", "", True),
        (RECIPE, "anything", "", True),
        ("docs/notes.md", TITLE, "", False),
        ("docker/.ngc_version.dev", TITLE, "", False),
        (GOLDEN, TITLE, "pins", False),
        ("docs/notes.md", "anything", "refresh", True),
    ],
)
def test_a_commit_responds_to_ci_if_the_record_or_its_files_say_so(
    opened: World, path: str, title: str, kind: str, expected: bool
) -> None:
    git(opened.checkout.path, "switch", "-q", bump_to().branch)
    pushed = opened.head()
    commit(opened.checkout.path, {path: "changed\n"})
    git(opened.checkout.path, "commit", "-q", "--amend", "-m", title)
    tip = git(opened.checkout.path, "rev-parse", "HEAD")
    if kind:
        tree = git(opened.checkout.path, "rev-parse", "HEAD^{tree}")
        opened.step(bump_to()).planned_commit(pushed, tree, kind)
    branch = BumpBranch.find(opened.checkout, bump_to())
    assert branch_history.only_ci_answers(branch, pushed, tip, opened.records) is expected
    assert not branch_history.only_ci_answers(branch, tip, tip, opened.records)
