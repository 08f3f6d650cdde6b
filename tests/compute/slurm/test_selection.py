"""Which tests are chosen for a cluster, and why some of them cannot run."""

from dataclasses import replace

import pytest

from runbook_lib.compute.slurm.selection import prepare, read_tests, select
from runbook_lib.compute.slurm.site import Site
from runbook_lib.errors import Refused
from runbook_lib.recipes.workloads import Workload

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
SITE = Site("/c", "/r")


def names(asked: str, platform: str = "dgx_h100", environment: str = "dev") -> list[str]:
    return [f"{it.model}/{it.case}" for it in select(TESTS, asked, platform, environment)]


@pytest.mark.parametrize("asked", ["", " ", ", ,"])
def test_an_empty_request_has_an_empty_result(asked: str) -> None:
    assert names(asked) == []


@pytest.mark.parametrize(
    ("asked", "platform", "environment", "expected"),
    [
        ("bump", "dgx_h100", "dev", ["gpt/slim", "gpt/full", "moe/slim", "moe/full"]),
        ("bump", "dgx_gb200", "dev", ["gpt/full", "moe/full"]),
        ("bump", "dgx_h100", "lts", ["gpt/slim", "moe/slim"]),
        ("nightly", "dgx_h100", "dev", ["gpt/full", "gpt/late", "moe/full", "moe/late"]),
        ("late", "dgx_h100", "dev", ["gpt/late", "moe/late"]),
        ("gpt/late, moe/slim", "dgx_h100", "dev", ["gpt/late", "moe/slim"]),
        ("mr-github-broken", "dgx_h100", "dev", ["gpt/put_away", "moe/put_away"]),
    ],
)
def test_tests_are_chosen(asked: str, platform: str, environment: str, expected: list[str]) -> None:
    assert names(asked, platform, environment) == expected


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("ful", "No recipe has the scope or the test 'ful' (did you mean full?)"),
        ("zzz", "such as nightly"),
        ("cleans", "No recipe has the scope or the test 'cleans'"),
        ("bump zzz", "the test 'zzz'"),
    ],
)
def test_a_word_that_names_nothing_is_refused(asked: str, says: str) -> None:
    with pytest.raises(Refused) as error:
        names(asked)
    assert says in str(error.value)


def test_a_test_of_another_platform_is_refused_with_where_it_runs() -> None:
    with pytest.raises(Refused, match=r"slim runs on dgx_h100 \(dev\), dgx_h100 \(lts\), not on dgx_gb200 \(dev\)\."):
        names("slim", "dgx_gb200")


def test_an_unreadable_recipe_file_is_reported() -> None:
    (sentence,) = UNREADABLE
    assert "c.yaml" in sentence


def config(**arguments: int) -> str:
    return "MODEL_ARGS:\n" + "".join(f"  --{name.replace('_', '-')}: {it}\n" for name, it in arguments.items())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, ""),
        (config(tensor_model_parallel_size=2, num_attention_heads=16), ""),
        (config(tensor_model_parallel_size=16), "multiple of 16"),
        (config(tensor_model_parallel_size=8, num_attention_heads=12), "12 attention heads cannot be divided by TP 8"),
        ("[", "model_config.yaml is not valid YAML"),
        (config(tensor_model_parallel_size=2) + "  --overlap-moe-expert-parallel-comm: true\n", "exclude each other"),
    ],
)
def test_a_test_that_cannot_run_is_explained(text: str | None, says: str) -> None:
    held = prepare(TESTS[0], text, SITE).obstacle
    assert says in held
    assert bool(held) == bool(says)


def test_connections_follow_the_rule() -> None:
    text = config(tensor_model_parallel_size=2)
    assert prepare(TESTS[0], text, SITE).connections.value == 1
    assert prepare(replace(TESTS[0], platform="dgx_gb200"), text, SITE).connections.value is None
    assert "dgx_new" in prepare(replace(TESTS[0], platform="dgx_new"), text, SITE).obstacle


def test_a_site_that_gives_more_gpus_lets_a_test_run() -> None:
    small, text = replace(TESTS[0], gpus=1), config(tensor_model_parallel_size=8)
    assert "1 GPUs per node" in prepare(small, text, SITE).obstacle
    assert prepare(small, text, replace(SITE, least_gpus=8)).obstacle == ""
    assert "Its recipe asks" not in prepare(small, text, replace(SITE, least_gpus=4)).obstacle  # more was given already


def test_tests_of_older_releases_are_held() -> None:
    old = Workload("r", "unit-tests", "t", "dev", "dgx_h100", (), 1, 8, 60, "true", {"tag": "legacy"})
    assert "only CI prepares" in prepare(old, None, SITE).obstacle


def test_a_script_with_a_place_that_has_no_value_is_held() -> None:
    assert "{nothing}, without a value" in prepare(replace(TESTS[0], script="{nothing}"), None, SITE).obstacle
