"""What validates an LTS bump, derived from the recipes of the checkout; and the pipelines that count for it."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from clones import commit

from runbook_lib.bump import gitlab_tests
from runbook_lib.notebook.place import RunTarget
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import MEGATRON_BRIDGE
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.gitlab.models import Bridge, Pipeline

TAG = "25.11-py3"
LTS_ROWS = """\
type: basic
spec: {model: gpt}
products:
  - test_case: [a]
    products:
      - {environment: [lts], scope: [mr, mr-github]}
      - {environment: [dev], scope: [mr]}
  - test_case: [b, c]
    products:
      - {environment: [dev, lts], scope: [nightly]}
      - {environment: [lts], scope: [mr-broken]}
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    monkeypatch.setenv("RUNBOOK_PRACTICE_HOME", str(tmp_path / "world"))
    return RunTarget({}).checkout


def branch(checkout: Checkout, **parameters: str) -> BumpBranch:
    commit = checkout.git("rev-parse", "HEAD")
    return BumpBranch(checkout, Bump.parse(tag=TAG, **parameters), "origin", commit, None)


def test_a_dev_bump_has_no_validation_of_its_own(checkout: Checkout) -> None:
    assert gitlab_tests.describe(branch(checkout)) == ()
    bridge = replace(branch(checkout), bump=Bump.parse(tag=TAG, repository=MEGATRON_BRIDGE))
    assert gitlab_tests.describe(bridge) == ()


def test_the_rows_of_the_recipes_decide_which_scopes_are_run(checkout: Checkout) -> None:
    recipes = "tests/test_utils/recipes"
    shutil.rmtree(checkout.path / recipes)
    commit(checkout.path, {f"{recipes}/gpt.yaml": LTS_ROWS})
    text = "\n".join(gitlab_tests.describe(branch(checkout, image_type="lts")))
    assert "container::lts" in text
    assert "tests=mr." in text
    assert "tests=nightly" in text
    assert "tests=weekly" not in text
    assert "source=gitlab" in text


def test_only_pipelines_that_run_lts_tests_count() -> None:
    class Listed:
        """The bridges of three pipelines."""

        def bridges(self, pipeline: int) -> list[Bridge]:
            return {
                1: [],
                2: [Bridge("functional:run_dev_dgx_h100", "success", "dev", "dgx_h100", 20)],
                3: [Bridge("functional:run_lts_dgx_a100", "created", "lts", "dgx_a100", None)],
                4: [Bridge("functional:run_lts_dgx_a100", "success", "lts", "dgx_a100", 40)],
            }[pipeline]

    pipelines = [Pipeline(id=number, sha="a", ref="b", status="success", url="u") for number in (1, 2, 3, 4)]
    counted = gitlab_tests.testing(Listed(), pipelines)  # type: ignore[arg-type]
    assert [pipeline.id for pipeline in counted] == [4]


def test_an_lts_bump_has_its_own_title() -> None:
    dev, lts = Bump.parse(tag=TAG), Bump.parse(tag=TAG, image_type="lts")
    assert dev.title != lts.title
    assert "LTS" in lts.title
    assert TAG in lts.title
