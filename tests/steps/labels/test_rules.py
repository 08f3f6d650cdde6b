"""The label table: paths in, labels with reasons out; and the same by the command, in a clone and on a forge."""

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
from runbook_lib.steps.labels import change
from runbook_lib.steps.labels.rules import MBRIDGE, NEMO_RL, Facts, anew, by_paths, moved, rows, wanted

FULL, LIGHT, LTS_LABEL = "Run functional tests", "Run tests", "container::lts"
CASES = "tests/functional_tests/test_cases"
RECIPE = "tests/test_utils/recipes/h100/gpt.yaml"


def names(*paths: str, **facts: object) -> list[str]:
    return [it.name for it in wanted(paths, Facts(**facts))]  # type: ignore[arg-type]


def test_nothing_changed_needs_nothing() -> None:
    assert wanted(()) == ()
    assert rows(()) == []
    assert rows((), {FULL, LIGHT}) == []


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


def test_a_new_test_needs_the_run_that_its_golden_values_come_from() -> None:
    config = f"{CASES}/gpt/new/model_config.yaml"
    assert names(config, RECIPE, added=frozenset({config})) == [FULL]
    unit = "tests/unit_tests/test_new.py"
    assert names(unit, added=frozenset({unit})) == [LIGHT]


def test_a_test_that_comes_back_needs_it_too_and_is_named() -> None:
    (found,) = wanted([RECIPE, "docs/a.md"], Facts(running=("gpt/a@dgx_h100 (dev)",)))
    assert (found.name, found.paths) == (FULL, (RECIPE,))
    assert "gpt/a@dgx_h100 (dev)" in found.reason


def test_the_rule_of_the_bump_wins() -> None:
    assert names("docker/Dockerfile.ci.dev") == [LIGHT]
    assert names(GITLAB, DEV, bumped=frozenset({"dev"})) == [FULL]
    assert names(GITLAB, LTS, bumped=frozenset({"lts"})) == [FULL, LTS_LABEL]
    (found,) = wanted([DEV, "megatron/training/arguments.py"], Facts(bumped=frozenset({"dev"})))
    assert found.paths == (DEV,)


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
def test_labels_beside(path: str, labels: list[str]) -> None:
    assert names(path) == labels


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        (layout(3), layout(3), set()),
        (layout(3), layout(3, dev="26.04-py3"), {"dev"}),
        (layout(3), layout(3, lts="26.01-py3"), {"lts"}),
        (layout(3), layout(3, dev="26.04-py3", lts="26.01-py3"), {"dev", "lts"}),
        (layout(2), layout(3), set()),  # a row more, of the same image
        (layout(3), layout(4), set()),  # a Dockerfile's default, likewise
        ({**layout(3), DEV: image("26.04-py3")}, layout(3, dev="26.04-py3"), {"dev"}),  # what a bump forgot
        (layout(3), {**layout(3), INSTALL_TEST: layout(3, dev="26.04-py3")[INSTALL_TEST]}, set()),  # informational
        ({}, layout(3), set()), (layout(3), {}, set()),
    ],
)  # fmt: skip
def test_which_pins_move(before: dict[str, str | None], after: dict[str, str | None], kinds: set[str]) -> None:
    was, now = ({path: texts.get(path) for path in MEGATRON_LM.pin_paths} for texts in (before, after))
    assert moved(was, now) == kinds


def test_by_the_paths_alone_only_the_pin_files_tell() -> None:
    assert by_paths([GITLAB, "docker/Dockerfile.ci.dev"]) == set()
    assert by_paths([DEV]) == {"dev"}
    assert by_paths([DEV, LTS]) == {"dev", "lts"}


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
def test_what_ci_runs_anew(before: dict[str, str | None], after: dict[str, str | None], count: int) -> None:
    assert anew(before, after) == ("gpt/a@dgx_h100 (dev)",) * count


def test_what_is_set_and_what_lacks() -> None:
    needed = wanted(["megatron/core/transformer/attention.py"])
    assert [row["state"] for row in rows(needed, {FULL, "other"})] == ["set"]
    table = rows(needed, {LIGHT})
    assert [(row["label"], row["state"]) for row in table] == [(FULL, "lacks"), (LIGHT, "set, not asked for")]
    assert "wins over" in str(table[1]["reason"])
    assert [row["state"] for row in rows(wanted(["README.md"]), set())] == ["–"]
    assert "state" not in rows(needed)[0]


@given(st.lists(st.text(min_size=1), min_size=1), st.booleans())
def test_any_path_has_exactly_one_label_that_chooses(paths: list[str], added: bool) -> None:
    found = wanted(paths, Facts(added=frozenset(paths if added else ())))
    assert [it.name for it in found if it.name in ("", FULL, LIGHT)] == [found[0].name]
    assert set(found[0].paths) <= set(paths)


# -- in a clone, and on a forge ------------------------------------------------------------------------------------


@pytest.fixture
def at(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def test_a_range_of_a_clone(at: World, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(at.checkout.path)
    assert main(["labels", "--repo", place]) == 0
    assert "Nothing changes" in capsys.readouterr().out
    at.commit_on("main", "docs/more.md", "more")
    git(at.checkout.path, "fetch", "-q")
    assert main(["labels", "--repo", place, "main..origin/main"]) == 0
    assert "none   documentation only  docs/more.md" in capsys.readouterr().out
    assert git(at.checkout.path, "status", "--porcelain") == ""


def test_a_range_looks_at_what_changed_since_both_parted(at: World) -> None:
    text = (at.checkout.path / RECIPE).read_text()
    git(at.checkout.path, "switch", "-q", "-c", "back")
    (at.checkout.path / RECIPE).write_text(text.replace("mr-broken", "mr"))
    git(at.checkout.path, "commit", "-qam", "back")
    at.commit_on("main", "megatron/core/optimizer/a.py", "x = 1\n")
    git(at.checkout.path, "fetch", "-q")
    found = change.of_range(Checkout.open(at.checkout.path), "origin/main..back")
    assert found.paths == (RECIPE,)
    assert found.needed[0].name == FULL
    assert "gpt/gpt3_mcore_te_tp8_pp1_fp8@dgx_h100 (dev)" in found.needed[0].reason


@pytest.mark.parametrize(
    ("what", "says"),
    [("gone..HEAD", "is no range of commits"), ("HEAD..gone", "is no range"), ("main", "is neither the number")],
)
def test_what_is_no_change_is_told(at: World, capsys: pytest.CaptureFixture[str], what: str, says: str) -> None:
    assert main(["labels", "--repo", str(at.checkout.path), what]) == 1
    assert says in capsys.readouterr().err


def test_another_repository_has_labels_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "remote", "add", "origin", "https://github.com/NVIDIA-NeMo/Megatron-Bridge")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "x")
    assert main(["labels", "--repo", str(tmp_path), "HEAD..HEAD"]) == 1
    assert "a clone of NVIDIA-NeMo/Megatron-Bridge, and the table of labels is that of" in capsys.readouterr().err


def test_a_clone_without_main_needs_a_range(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(tmp_path, "init", "-q", "-b", "trunk")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "x")
    git(tmp_path, "remote", "add", "origin", "https://github.com/NVIDIA/Megatron-LM")
    assert main(["labels", "--repo", str(tmp_path)]) == 1
    assert "no branch main" in capsys.readouterr().err


def test_a_pull_request_shows_what_is_set(at: World) -> None:
    made = at.open_pr()
    assert made.pull is not None
    github = at.github()
    found = change.of_pull(at.checkout, github, made.pull.number)
    assert (names_and_states(found), found.unsure) == ([(FULL, "set")], "")
    github.remove_label(made.pull.number, FULL)
    github.add_label(made.pull.number, LIGHT)
    found = change.of_pull(at.checkout, github, made.pull.number)
    assert names_and_states(found) == [(FULL, "lacks"), (LIGHT, "set, not asked for")]


def test_without_the_commit_the_paths_must_tell(at: World, tmp_path: Path) -> None:
    made = at.open_pr()
    assert made.pull is not None
    git(tmp_path, "clone", "-q", "--single-branch", "--branch", "main", f"file://{at.remote}", "fresh")
    found = change.of_pull(Checkout.open(tmp_path / "fresh"), at.github(), made.pull.number)
    assert names_and_states(found) == [(FULL, "set")]
    assert f"git fetch origin pull/{made.pull.number}/head" in found.unsure


def names_and_states(found: change.Changed) -> list[tuple[object, object]]:
    return [(row["label"], row["state"]) for row in rows(found.needed, found.present)]
