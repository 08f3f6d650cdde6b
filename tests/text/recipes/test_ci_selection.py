"""Labels of a pull request → the tests that CI selects."""

import pytest

from runbook_lib.errors import CannotTell
from runbook_lib.text.recipes.ci_selection import describe_selection

#: The decision of main at d98e8a64, and of core_r0.17.0: other names of scopes, and no cadence.
TREE = """
          HAS_RUN_TESTS=$(echo "$LABELS"      | jq 'any(. == "Run tests")')
          HAS_RUN_FUNCTIONAL=$(echo "$LABELS" | jq 'any(. == "Run functional tests")')
          HAS_LTS=$(echo "$LABELS"            | jq 'any(. == "container::lts")')

          if [ "$IS_MERGE_GROUP" == "true" ]; then
            SCOPE=L1; N_REPEAT=1; LIGHTWEIGHT=false
          elif [ "$HAS_RUN_TESTS" == "true" ]; then
            SCOPE=L1; N_REPEAT=1; LIGHTWEIGHT=true
          elif [ "$HAS_RUN_FUNCTIONAL" == "true" ]; then
            # As many as in GitLab.
            SCOPE=L1; N_REPEAT=5; LIGHTWEIGHT=false
          elif [ "$IS_CI_WORKLOAD" == "true" ] || [ "$EVENT_NAME" == "workflow_dispatch" ]; then
            SCOPE=L1; N_REPEAT=5; LIGHTWEIGHT=false
          else
            SCOPE=L0; N_REPEAT=5; LIGHTWEIGHT=false
          fi
          CADENCE=pr
"""
OLDER_TREE = TREE.replace("L1", "mr-github").replace("L0", "mr-github-slim").replace("CADENCE=pr", "")


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (set(), "scope L0, 5 repeats, golden values compared, only tests of the cadence pr; no label decides."),
        ({"bug", "container::lts", "run functional tests"}, "scope L0, 5 repeats, golden values compared, only tests"),
        ({"Run functional tests"}, "scope L1, 5 repeats, golden values compared; decided by 'Run functional tests'."),
        ({"Run tests", "Run functional tests"}, "scope L1, 1 repeat, lightweight (4 steps, golden values not compared"),
    ],
)
def test_labels_select_tests(labels: set[str], sentence: str) -> None:
    assert describe_selection(labels, TREE).startswith(sentence)


def test_another_branch_has_names_of_its_own() -> None:
    sentence = describe_selection({"bug"}, OLDER_TREE)
    assert sentence.startswith("scope mr-github-slim, ")
    assert "cadence" not in sentence


def test_a_workflow_that_decides_in_another_way_is_not_guessed() -> None:
    with pytest.raises(CannotTell, match="cicd-main"):
        describe_selection({"Run tests"}, workflow="ARGS=(--scope mr-github --enable-lightweight-mode)")
