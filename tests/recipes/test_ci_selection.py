"""Labels of a pull request → the tests that CI selects."""

import pytest

from runbook_lib.errors import CannotTell
from runbook_lib.recipes.ci_selection import TREE, select_tests

#: As on core_r0.17.0: other names of scopes, no cadence, and a workload of CI counts as labelled.
OLDER_TREE = """
          HAS_RUN_TESTS=$(echo "$LABELS"      | jq 'any(. == "Run tests")')
          HAS_RUN_FUNCTIONAL=$(echo "$LABELS" | jq 'any(. == "Run functional tests")')
          HAS_LTS=$(echo "$LABELS"            | jq 'any(. == "container::lts")')

          # Scheduled/CI workloads have no PR — treat as "Run functional tests"
          [ "$IS_CI_WORKLOAD" == "true" ] && HAS_RUN_FUNCTIONAL=true

          if [ "$IS_MERGE_GROUP" == "true" ]; then
            SCOPE=mr-github; N_REPEAT=1; LIGHTWEIGHT=false
          elif [ "$HAS_RUN_TESTS" == "true" ]; then
            SCOPE=mr-github; N_REPEAT=1; LIGHTWEIGHT=true
          elif [ "$HAS_RUN_FUNCTIONAL" == "true" ]; then
            # As many as in GitLab.
            SCOPE=mr-github; N_REPEAT=5; LIGHTWEIGHT=false
          else
            SCOPE=mr-github-slim; N_REPEAT=5; LIGHTWEIGHT=false
          fi
"""


@pytest.mark.parametrize(
    ("labels", "scope", "repeats", "lightweight", "image", "cadence"),
    [
        (set(), "L0", 5, False, "dev", "pr"),
        ({"bug", "complexity: low", "run functional tests"}, "L0", 5, False, "dev", "pr"),
        ({"Run functional tests"}, "L1", 5, False, "dev", None),
        ({"Run tests"}, "L1", 1, True, "dev", None),
        ({"Run tests", "Run functional tests"}, "L1", 1, True, "dev", None),
        ({"container::lts"}, "L0", 5, False, "lts", "pr"),
        ({"container::lts", "Run functional tests"}, "L1", 5, False, "lts", None),
        ({"Run MBridge tests"}, "L0", 5, False, "dev", "pr"),
    ],
)
def test_labels_select_tests(
    labels: set[str], scope: str, repeats: int, lightweight: bool, image: str, cadence: str | None
) -> None:
    selection = select_tests(labels)
    assert (selection.scope, selection.repeats, selection.lightweight) == (scope, repeats, lightweight)
    assert (selection.image, selection.cadence) == (image, cadence)


@pytest.mark.parametrize(
    ("event", "workflow", "scope", "repeats", "cadence"),
    [
        ("merge_group", TREE, "L1", 1, "mergegroup"),
        ("schedule", TREE, "L1", 5, "nightly"),
        ("workflow_dispatch", TREE, "L1", 5, "nightly"),
        ("push", OLDER_TREE, "mr-github", 1, None),
        ("merge_group", OLDER_TREE, "mr-github", 1, None),
        ("schedule", OLDER_TREE, "mr-github", 5, None),
    ],
)
def test_the_event_and_the_workflow_of_a_run_decide(
    event: str, workflow: str, scope: str, repeats: int, cadence: str | None
) -> None:
    selection = select_tests({"Run tests", "container::lts"}, event, workflow)
    assert (selection.scope, selection.repeats, selection.cadence) == (scope, repeats, cadence)
    assert (selection.lightweight, selection.image == "lts") == (event == "push", event == "push")


def test_effects_of_all_labels_are_named() -> None:
    labels = {"Run tests", "Run functional tests", "Run NeMoRL tests", "container::lts", "complexity: high"}
    selection = select_tests(labels)
    assert selection.label == "Run tests"
    assert selection.overridden == ("Run functional tests",)
    assert selection.further == ("Run NeMoRL tests", "container::lts")
    assert selection.unused == ("complexity: high",)
    assert "lightweight" in selection.sentence
    assert all(label in selection.sentence for label in labels)
    # This branch has no tests of NeMo RL.
    assert "Run NeMoRL tests" in select_tests(labels, workflow=OLDER_TREE).unused


def test_a_workflow_that_decides_in_another_way_is_not_guessed() -> None:
    with pytest.raises(CannotTell, match="cicd-main"):
        select_tests({"Run tests"}, workflow="ARGS=(--scope mr-github --enable-lightweight-mode)")
