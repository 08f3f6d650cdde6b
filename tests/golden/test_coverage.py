import pytest

from runbook_lib.golden.coverage import coverage, coverage_rows
from runbook_lib.text.recipes.rows import RecipeRow
from runbook_lib.text.yaml_spans import Cell


def row(*scopes, platform="dgx_h100"):
    cells = tuple(Cell(scope, 0, 0, 1) for scope in scopes)
    return RecipeRow("r.yaml", 1, "gpt", ("one",), ("dev", "lts"), (platform,), cells)


@pytest.mark.parametrize(
    ("scopes", "platform", "covered", "reason"),
    [
        (["mr-github"], "dgx_h100", True, "covered"),
        (["mr-github", "nightly"], "dgx_h100", False, "the run produced none"),
        (["mr-github"], "dgx_gb200", False, "GB200 runs only for maintainers"),
        (["nightly"], "dgx_h100", False, "runs nightly, in GitLab only"),
        (["weekly"], "dgx_h100", False, "runs weekly, in GitLab only"),
        (["mr"], "dgx_h100", False, "runs mr, in GitLab only"),
        (["mr-github-broken", "flaky"], "dgx_h100", False, "quarantined"),
        ([], "dgx_h100", False, "no recipe uses it"),
    ],
)
def test_why_a_file_is_not_covered(scopes, platform, covered, reason):
    file = f"gpt/one/golden_values_dev_{platform}.json"
    others = [file.replace("dev", "lts"), "gpt/one/model_config.yaml"]
    (found,) = coverage([file, *others], [row(*scopes, platform=platform)], [file] if covered else [], "dev")
    assert (found.file, found.scopes, found.platform) == (file, tuple(sorted(scopes)), platform)
    assert (found.kind == "covered") == covered
    assert str(coverage_rows([found])[0]["why"]).startswith(reason)
