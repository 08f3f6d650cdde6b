"""What the practice checkout holds: branches, pins, recipes, test cases and golden values."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from runbook_lib.images.tags.ngc import NgcTag
from runbook_lib.pins import plan as pins
from runbook_lib.pins.check import check_pins, outcome
from runbook_lib.pins.known_sites import MEGATRON_LM
from runbook_lib.practice import content, seed

TIPS = {commit.branch: commit.tree for commit in content.history()}


def test_commit_ids_are_the_same_everywhere(tmp_path: Path) -> None:
    """Whoever changes the template counts its VERSION up, and puts the new commits here."""
    seed.create(tmp_path / "remote.git", tmp_path / "checkout")
    command = ["git", "for-each-ref", "--format=%(refname:short) %(objectname)"]
    branches = subprocess.run(command, cwd=tmp_path / "remote.git", check=True, capture_output=True, text=True).stdout
    assert content.VERSION == 5
    assert dict(line.split() for line in branches.splitlines()) == {
        "core_r0.1.0": "f65debfc5e9ce10f7dbb0d249b1a076206a8fbe1",
        "dev": "0cb54a049422eecb5d2e031c9cf9d70cdb5cd7fa",
        "main": "688ffca5716938e5001d1a11e66970165a43e190",
    }


@pytest.mark.parametrize(
    ("branch", "answer"), [("main", "in sync"), ("dev", "out of sync"), ("core_r0.1.0", "in sync")]
)
def test_the_pins_of_each_branch(branch: str, answer: str) -> None:
    tree = TIPS[branch]
    verdicts = check_pins({path: tree.get(path) for path in MEGATRON_LM.pin_paths}, MEGATRON_LM)
    assert outcome(verdicts) == answer
    assert {verdict.path for verdict in verdicts if verdict.state == "out of sync"} == (
        {"docker/.ngc_version.dev"} if branch == "dev" else set()
    )


def test_a_bump_of_main_moves_four_pins_and_warns_of_the_rest() -> None:
    texts = {path: TIPS["main"].get(path) for path in MEGATRON_LM.paths}
    plan = pins.plan(texts, MEGATRON_LM, NgcTag.parse("26.04-py3"), "dev").for_cuda("13.2")
    assert [change.path for change in plan.changes] == [
        "docker/.ngc_version.dev",
        ".gitlab/stages/01.build.yml",
        ".gitlab/stages/01.build.yml",
        "docker/Dockerfile.ci.dev",
    ]
    assert plan.platforms == ("amd64", "arm64")
    lagging = " ".join(warning for warning in plan.warnings if "older than" in warning)
    for path in (
        "docker/Dockerfile.ci.nemo", "docker/Dockerfile.linting", ".github/workflows/install-test.yml",
        "docs/get-started/install.md",
    ):  # fmt: skip
        assert f"{path}:" in lagging
    assert sum("for CUDA 13.1" in warning for warning in plan.warnings) == 2


def rows(tree: content.Tree) -> Iterator[tuple[str, str, str, str]]:
    """Model, test case, environment and platform of every row of every recipe."""
    for path, text in tree.items():
        if not path.startswith("tests/test_utils/recipes/"):
            continue
        recipe: Any = YAML(typ="safe").load(text)
        for entry in recipe["products"]:
            for product in entry["products"]:
                for environment in product["environment"]:
                    for platform in product.get("platforms", [recipe["spec"]["platforms"]]):
                        yield recipe["spec"]["model"], entry["test_case"][0], environment, platform


def test_recipes_test_cases_and_golden_files_belong_together() -> None:
    tree = TIPS["main"]
    functional = {row for row in rows(tree) if row[0] != "unit-tests"}
    for model, case, environment, platform in functional:
        assert f"{content.CASES}/{model}/{case}/model_config.yaml" in tree
        assert f"{content.CASES}/{model}/{case}/golden_values_{environment}_{platform}.json" in tree
    golden = [path for path in tree if "/golden_values_" in path and not path.endswith("_2nd.json")]
    assert len(golden) == len(functional)
    assert {row[1] for row in rows(tree) if row[0] == "unit-tests"} == {
        "tests/unit_tests/data/",
        "tests/unit_tests/models/",
    }
