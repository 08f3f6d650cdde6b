"""Which tests are chosen for a cluster, and why some of them cannot run."""

from dataclasses import replace
from typing import Any

import pytest

from runbook_lib.compute.slurm.selection import prepare, read_tests, select
from runbook_lib.compute.slurm.site import Site
from runbook_lib.errors import Refused

RECIPE = """\
spec: {{model: {model}, nodes: 1, gpus: 8, platforms: dgx_h100, script: 'true'}}
products:
- test_case: [slim]
  products: [{{environment: [dev, lts], scope: [mr-github-slim]}}]
- test_case: [full]
  products: [{{environment: [dev], scope: [mr-github, nightly], platforms: [dgx_h100, dgx_gb200]}}]
- test_case: [late]
  products: [{{environment: [dev], scope: [nightly]}}]
- test_case: [put_away]
  products: [{{environment: [dev], scope: [mr-github-broken]}}]
- test_case: [cleans]
  products: [{{environment: [dev], scope: [cleanup], gpus: 0}}]
"""
TESTS, UNREADABLE = read_tests(
    {"a.yaml": RECIPE.format(model="gpt"), "b.yaml": RECIPE.format(model="moe"), "x.md": "[", "c.yaml": "["}
)
SITE = Site("/r")


@pytest.mark.parametrize(
    ("asked", "platform", "environment", "expected"),
    [
        (", ,", "dgx_h100", "dev", []),
        ("bump", "dgx_h100", "dev", ["gpt/slim", "gpt/full", "moe/slim", "moe/full"]),
        ("bump", "dgx_gb200", "dev", ["gpt/full", "moe/full"]),
        ("bump", "dgx_h100", "lts", ["gpt/slim", "moe/slim"]),
        ("nightly", "dgx_h100", "dev", ["gpt/full", "gpt/late", "moe/full", "moe/late"]),
        ("gpt/late, moe/slim", "dgx_h100", "dev", ["gpt/late", "moe/slim"]),
        ("mr-github-broken", "dgx_h100", "dev", ["gpt/put_away", "moe/put_away"]),
        ("ful", "dgx_h100", "dev", r"No recipe has the scope or the test 'ful' \(did you mean full\?\)"),
        ("bump zzz", "dgx_h100", "dev", "the test 'zzz'.* such as nightly"),
        ("cleans", "dgx_h100", "dev", "No recipe has the scope or the test 'cleans'"),
        ("slim", "dgx_gb200", "dev", r"slim runs on dgx_h100 \(dev\), dgx_h100 \(lts\), not on dgx_gb200 \(dev\)\."),
    ],
)
def test_tests_are_chosen_or_refused(asked: str, platform: str, environment: str, expected: list[str] | str) -> None:
    if isinstance(expected, str):
        with pytest.raises(Refused, match=expected):
            select(TESTS, asked, platform, environment)
    else:
        assert [f"{it.model}/{it.case}" for it in select(TESTS, asked, platform, environment)] == expected


def test_an_unreadable_recipe_file_is_reported() -> None:
    (sentence,) = UNREADABLE
    assert "c.yaml" in sentence


ONE_GPU = replace(TESTS[0].needs, gpus=1)
TWO, EIGHT = (f"MODEL_ARGS:\n  --tensor-model-parallel-size: {size}\n" for size in (2, 8))


@pytest.mark.parametrize(
    ("test", "least_gpus", "text", "obstacle"),
    [
        ({}, 0, None, ""),
        ({}, 0, f"{TWO}  --num-attention-heads: 16\n", ""),
        ({}, 0, TWO.replace("2", "16"), "multiple of 16"),
        ({}, 0, f"{EIGHT}  --num-attention-heads: 12\n", "12 attention heads cannot be divided by TP 8"),
        ({}, 0, "[", "model_config.yaml is not valid YAML"),
        ({}, 0, f"{TWO}  --overlap-moe-expert-parallel-comm: true\n", "exclude each other"),
        ({"platform": "dgx_new"}, 0, TWO, "'dgx_new' are unknown"),
        ({"needs": ONE_GPU}, 0, EIGHT, "requests 1 GPUs per node"),
        ({"needs": ONE_GPU}, 8, EIGHT, ""),
        ({"needs": ONE_GPU}, 4, EIGHT, "multiple of 8 (TP 8 × CP 1 × PP 1)."),  # more was given already
        ({"values": {"tag": "legacy"}}, 0, None, "only CI prepares"),
        ({"script": "{nothing}"}, 0, None, "{nothing}, without a value"),
    ],
)
def test_a_test_that_cannot_run_is_explained(
    test: dict[str, Any], least_gpus: int, text: str | None, obstacle: str
) -> None:
    prepared = prepare(replace(TESTS[0], **test), text, replace(SITE, least_gpus=least_gpus))
    assert obstacle in prepared.obstacle
    assert bool(prepared.obstacle) == bool(obstacle)
    assert prepared.test.needs.gpus >= least_gpus


def test_connections_follow_the_rule() -> None:
    assert prepare(TESTS[0], TWO, SITE).connections == 1
    assert prepare(replace(TESTS[0], platform="dgx_gb200"), TWO, SITE).connections is None
