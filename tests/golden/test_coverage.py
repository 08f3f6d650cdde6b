import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.golden.coverage import ScopedTest, coverage, scoped_tests

RECIPE = """\
spec: {model: gpt, platforms: dgx_a100}
products:
  - test_case: [one, ignored]
    products:
      - {environment: [dev, lts], scope: [mr-github, nightly], platforms: [dgx_h100]}
      - {environment: [dev], scope: [weekly], cadence: [weekly]}
  - test_case: [two]
    products:
      - {environment: [dev], scope: [mr], platforms: ["dg  x_h100"]}
"""


@pytest.mark.parametrize("text", ["", "a", "[]", "{}", "spec: {}", "spec: {}\nproducts: [1, {test_case: x}]"])
def test_no_rows(text):
    assert scoped_tests("r", text) == ([], [])


def test_rows_are_the_cartesian_product():
    found, problems = scoped_tests("r.yaml", RECIPE)
    assert [(row.case, row.environment, row.scope, row.platform) for row in found] == [
        ("one", "dev", "mr-github", "dgx_h100"),
        ("one", "dev", "nightly", "dgx_h100"),
        ("one", "lts", "mr-github", "dgx_h100"),
        ("one", "lts", "nightly", "dgx_h100"),
        ("one", "dev", "weekly", "dgx_a100"),
        ("two", "dev", "mr", "dg  x_h100"),
    ]
    assert found[0].golden == "gpt/one/golden_values_dev_dgx_h100.json"
    assert len(problems) == 2
    assert "'dg  x_h100'" in problems[1]


def test_a_recipe_that_is_not_yaml_is_named():
    assert "r.yaml cannot be read: it does not parse as YAML" in scoped_tests("r.yaml", "a: [")[1][0]


@given(st.text())
def test_a_text_that_cannot_be_read_is_reported_with_its_recipe(text):
    for recipe in (text, f"spec: {{}}\nproducts: [{text}]"):
        tests, problems = scoped_tests("recipes/r.yaml", recipe)
        assert all("recipes/r.yaml" in problem for problem in problems)
        assert all(isinstance(value, str) for test in tests for value in vars(test).values())


@pytest.mark.parametrize(
    ("scopes", "platform", "covered", "reason"),
    [
        (["mr-github"], "dgx_h100", True, ""),
        (["mr-github", "nightly"], "dgx_h100", False, "the run produced none"),
        (["mr-github"], "dgx_gb200", False, "GB200 runs only for maintainers"),
        (["nightly"], "dgx_h100", False, "runs nightly, in GitLab only"),
        (["weekly"], "dgx_h100", False, "runs weekly, in GitLab only"),
        (["mr"], "dgx_h100", False, "GitHub never runs the scope mr"),
        (["mr-github-broken", "flaky"], "dgx_h100", False, "quarantined"),
        ([], "dgx_h100", False, "no recipe uses it"),
    ],
)
def test_why_a_file_is_not_covered(scopes, platform, covered, reason):
    file = f"gpt/one/golden_values_dev_{platform}.json"
    used = [ScopedTest("gpt", "one", "dev", scope, platform) for scope in scopes]
    others = [file.replace("dev", "lts"), "gpt/one/model_config.yaml"]
    (found,) = coverage([file, *others], used, [file] if covered else [], "dev")
    assert (found.file, found.scopes, found.platform, found.covered) == (file, tuple(sorted(scopes)), platform, covered)
    assert found.reason.startswith(reason)
    assert bool(found.reason) == (not covered)


def test_the_second_file_of_a_resume_test_belongs_to_its_first():
    used = [ScopedTest("gpt", "one", "dev", "mr", "dgx_h100")]
    (found,) = coverage(["gpt/one/golden_values_dev_dgx_h100_2nd.json"], used, [], "dev")
    assert found.scopes == ("mr",)
