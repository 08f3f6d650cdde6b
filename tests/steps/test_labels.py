"""The table of labels; and the command on a clone and a forge."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from bumping import World, git, world
from hypothesis import given
from hypothesis import strategies as st
from layouts import DEV, GITLAB, INSTALL_TEST, LTS, image, layout

from runbook_lib.cli.__main__ import main
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins.known_sites import MEGATRON_LM
from runbook_lib.steps import labels
from runbook_lib.steps.labels import (
    ChangeFacts,
    bumped_by_paths,
    bumped_by_pins,
    needed_labels,
    newly_run_tests,
    table_rows,
)

MBRIDGE, NEMO_RL = "Run MBridge tests", "Run NeMoRL tests"
FULL, LIGHT, LTS_LABEL = "Run functional tests", "Run tests", "container::lts"
CASES = "tests/functional_tests/test_cases"
RECIPE = "tests/test_utils/recipes/h100/gpt.yaml"


def names(*paths: str, **facts: object) -> list[str]:
    return [label.name for label in needed_labels(paths, ChangeFacts(**facts))]  # type: ignore[arg-type]


def test_nothing_changed_needs_nothing() -> None:
    assert needed_labels(()) == ()
    assert table_rows(()) == []
    assert table_rows((), {FULL, LIGHT}) == []


@pytest.mark.parametrize(
    ("paths", "label"),
    [
        # docs, CI or tooling only: none
        ("docs/user-guide/index.md", ""), ("README.md", ""), ("megatron/core/transformer/README.md", ""),
        ("docs/conf.py", ""), ("tests/README.md", ""),
        (".github/workflows/cicd-main.yml", ""), (".gitlab/stages/01.build.yml", ""), (".gitlab-ci.yml", ""),
        ("tools/linter.py", ""), ("Makefile", ""), ("docs/a.md tools/b.py .github/c.yml", ""),
        # existing tests only
        ("tests/unit_tests/test_x.py", LIGHT), (RECIPE, LIGHT), (f"{CASES}/gpt/a/model_config.yaml", LIGHT),
        (f"{CASES}/gpt/a/golden_values_dev_dgx_h100.json", FULL),
        # containers and dependencies
        ("docker/Dockerfile.ci.dev", LIGHT), ("pyproject.toml", LIGHT), ("uv.lock docs/a.md", LIGHT),
        # numerics
        ("megatron/core/models/gpt/gpt_model.py", FULL), ("megatron/core/transformer/attention.py", FULL),
        ("megatron/core/optimizer/distrib_optimizer.py", FULL), ("megatron/core/distributed/a.py", FULL),
        ("megatron/core/transformer/moe/router.py", FULL), ("megatron/core/fp8_utils.py", FULL),
        ("megatron/core/transformer/attention.py tests/unit_tests/a.py docs/a.md", FULL),
        # other library code, and by default
        ("megatron/training/arguments.py", LIGHT), ("megatron/core/timers.py", LIGHT), ("pretrain_gpt.py", LIGHT),
        ("something/new.xyz", LIGHT), ("megatron/core/config_logger.py docs/a.md", LIGHT),
    ],
)  # fmt: skip
def test_the_table(paths: str, label: str) -> None:
    assert names(*paths.split()) == [label]


def test_a_new_test_needs_functional_tests() -> None:
    config = f"{CASES}/gpt/new/model_config.yaml"
    assert names(config, RECIPE, added=frozenset({config})) == [FULL]
    unit = "tests/unit_tests/test_new.py"
    assert names(unit, added=frozenset({unit})) == [LIGHT]


def test_a_test_that_runs_again_needs_functional_tests() -> None:
    (label,) = needed_labels([RECIPE, "docs/a.md"], ChangeFacts(newly_run=("gpt/a@dgx_h100 (dev)",)))
    assert (label.name, label.paths) == (FULL, (RECIPE,))
    assert "gpt/a@dgx_h100 (dev)" in label.reason


def test_the_rule_of_the_bump_wins() -> None:
    assert names("docker/Dockerfile.ci.dev") == [LIGHT]
    assert names(GITLAB, DEV, bumped=frozenset({"dev"})) == [FULL]
    assert names(GITLAB, LTS, bumped=frozenset({"lts"})) == [FULL, LTS_LABEL]
    (label,) = needed_labels([DEV, "megatron/training/arguments.py"], ChangeFacts(bumped=frozenset({"dev"})))
    assert label.paths == (DEV,)


@pytest.mark.parametrize(
    ("path", "labels"),
    [
        (".github/workflows/trigger-mbridge-tests.yml", ["", MBRIDGE]),
        ("megatron/core/pipeline_parallel/bridge_communicator.py", [FULL]),
        ("megatron/rl/agent/api.py", [LIGHT, NEMO_RL]),
        ("megatron/core/resharding/refit.py", [LIGHT, NEMO_RL]),
        ("docs/nemo_rl.md", ["", NEMO_RL]),
        ("megatron/core/nemo_rlx.py", [LIGHT]),
    ],
)
def test_additional_labels(path: str, labels: list[str]) -> None:
    assert names(path) == labels


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        (layout(3), layout(3), set()),
        (layout(3), layout(3, dev="26.04-py3"), {"dev"}),
        (layout(3), layout(3, lts="26.01-py3"), {"lts"}),
        (layout(3), layout(3, dev="26.04-py3", lts="26.01-py3"), {"dev", "lts"}),
        (layout(2), layout(3), set()),  # another row of the same image
        (layout(3), layout(4), set()),  # a Dockerfile's default, likewise
        ({**layout(3), DEV: image("26.04-py3")}, layout(3, dev="26.04-py3"), {"dev"}),  # a pin that a bump missed
        (layout(3), {**layout(3), INSTALL_TEST: layout(3, dev="26.04-py3")[INSTALL_TEST]}, set()),  # informational
        ({}, layout(3), set()), (layout(3), {}, set()),
    ],
)  # fmt: skip
def test_image_types_whose_pins_move(
    before: dict[str, str | None], after: dict[str, str | None], kinds: set[str]
) -> None:
    old, new = ({path: texts.get(path) for path in MEGATRON_LM.pin_paths} for texts in (before, after))
    assert bumped_by_pins(old, new) == kinds


def test_image_types_by_the_paths_of_pin_files() -> None:
    assert bumped_by_paths([GITLAB, "docker/Dockerfile.ci.dev"]) == set()
    assert bumped_by_paths([DEV]) == {"dev"}
    assert bumped_by_paths([DEV, LTS]) == {"dev", "lts"}


def recipe(scope: str, case: str = "a") -> dict[str, str | None]:
    return {
        RECIPE: f"spec: {{model: gpt}}\nproducts:\n  - test_case: [{case}]\n    products:\n"
        f"      - {{environment: [dev], scope: [{scope}], platforms: [dgx_h100]}}\n"
    }


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        ({}, {}, 0), (recipe("mr"), recipe("mr"), 0), (recipe("mr"), recipe("mr-broken"), 0),
        (recipe("nightly"), recipe("mr"), 0), ({RECIPE: "a: ["}, {RECIPE: "a: ["}, 0),
        (recipe("unit-tests", "tests/unit_tests/a/"), recipe("unit-tests", "tests/unit_tests/b/"), 0),
        (recipe("mr-broken"), recipe("mr"), 1), ({RECIPE: None}, recipe("mr"), 1), (recipe("mr", "b"), recipe("mr"), 1),
    ],
)  # fmt: skip
def test_tests_that_ci_newly_runs(before: dict[str, str | None], after: dict[str, str | None], count: int) -> None:
    assert newly_run_tests(before, after) == ("gpt/a@dgx_h100 (dev)",) * count


def test_the_state_of_present_labels() -> None:
    needed = needed_labels(["megatron/core/transformer/attention.py"])
    assert [row["state"] for row in table_rows(needed, {FULL, "other"})] == ["set"]
    table = table_rows(needed, {LIGHT})
    assert [(row["label"], row["state"]) for row in table] == [(FULL, "missing"), (LIGHT, "set, not needed")]
    assert "overrides" in str(table[1]["reason"])
    assert [row["state"] for row in table_rows(needed_labels(["README.md"]), set())] == ["–"]
    assert "state" not in table_rows(needed)[0]


@given(st.lists(st.text(min_size=1), min_size=1), st.booleans())
def test_any_path_has_exactly_one_label_that_chooses(paths: list[str], added: bool) -> None:
    labels = needed_labels(paths, ChangeFacts(added=frozenset(paths if added else ())))
    assert [label.name for label in labels if label.name in ("", FULL, LIGHT)] == [labels[0].name]
    assert set(labels[0].paths) <= set(paths)


# -- in a clone, and on a forge ------------------------------------------------------------------------------------


@pytest.fixture
def at(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as started:
        yield started


def test_a_range_of_a_clone(at: World, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(at.checkout.path)
    assert main(["labels", "--repo", place]) == 0
    assert "Nothing changes" in capsys.readouterr().out
    at.commit_on("main", "docs/more.md", "more")
    git(at.checkout.path, "fetch", "-q")
    assert main(["labels", "--repo", place, "main..origin/main"]) == 0
    assert "none   documentation only  docs/more.md" in capsys.readouterr().out
    assert git(at.checkout.path, "status", "--porcelain") == ""


def test_a_range_has_the_changes_since_both_diverged(at: World) -> None:
    text = (at.checkout.path / RECIPE).read_text()
    git(at.checkout.path, "switch", "-q", "-c", "back")
    (at.checkout.path / RECIPE).write_text(text.replace("mr-broken", "mr"))
    git(at.checkout.path, "commit", "-qam", "back")
    at.commit_on("main", "megatron/core/optimizer/a.py", "x = 1\n")
    git(at.checkout.path, "fetch", "-q")
    changes = labels.of_range(Checkout.open(at.checkout.path), "origin/main..back")
    assert changes.paths == (RECIPE,)
    assert changes.needed[0].name == FULL
    assert "gpt/gpt3_mcore_te_tp8_pp1_fp8@dgx_h100 (dev)" in changes.needed[0].reason


@pytest.mark.parametrize(
    ("what", "named"),
    [("gone..HEAD", "'gone..HEAD'"), ("HEAD..gone", "'HEAD..gone'"), ("main", "'main'")],
)
def test_an_unknown_change_is_reported(at: World, capsys: pytest.CaptureFixture[str], what: str, named: str) -> None:
    assert main(["labels", "--repo", str(at.checkout.path), what]) == 1
    assert named in capsys.readouterr().err


def test_another_repository_has_labels_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "remote", "add", "origin", "https://github.com/NVIDIA-NeMo/Megatron-Bridge")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "x")
    assert main(["labels", "--repo", str(tmp_path), "HEAD..HEAD"]) == 1
    assert "NVIDIA-NeMo/Megatron-Bridge" in capsys.readouterr().err


def test_a_clone_without_main_needs_a_range(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(tmp_path, "init", "-q", "-b", "trunk")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "x")
    git(tmp_path, "remote", "add", "origin", "https://github.com/NVIDIA/Megatron-LM")
    assert main(["labels", "--repo", str(tmp_path)]) == 1
    assert "no branch main" in capsys.readouterr().err


def test_a_pull_request_shows_the_state_of_its_labels(at: World) -> None:
    state = at.open_pr()
    assert state.pull is not None
    github = at.github()
    changes = labels.of_pull(at.checkout, github, state.pull.number)
    assert (names_and_states(changes), changes.limitation) == ([(FULL, "set")], "")
    github.remove_label(state.pull.number, FULL)
    github.add_label(state.pull.number, LIGHT)
    changes = labels.of_pull(at.checkout, github, state.pull.number)
    assert names_and_states(changes) == [(FULL, "missing"), (LIGHT, "set, not needed")]


def test_without_the_commit_only_the_paths_count(at: World, tmp_path: Path) -> None:
    state = at.open_pr()
    assert state.pull is not None
    git(tmp_path, "clone", "-q", "--single-branch", "--branch", "main", f"file://{at.remote}", "fresh")
    changes = labels.of_pull(Checkout.open(tmp_path / "fresh"), at.github(), state.pull.number)
    assert names_and_states(changes) == [(FULL, "set")]
    assert f"git fetch origin pull/{state.pull.number}/head" in changes.limitation


def names_and_states(changes: labels.LabelledChange) -> list[tuple[object, object]]:
    return [(row["label"], row["state"]) for row in table_rows(changes.needed, changes.present)]
